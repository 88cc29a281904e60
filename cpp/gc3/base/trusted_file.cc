#include "gc3/base/trusted_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gc3 {
namespace {

std::string system_says(int error) { return std::string(": ") + std::strerror(error); }

// All checks use the open file, because its name may refer to another file a moment later.
std::string check(int file, mode_t closed) {
  struct stat about{};
  if (fstat(file, &about) != 0) return system_says(errno);
  if (!S_ISREG(about.st_mode)) return " is no ordinary file";
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return " belongs to user " + std::to_string(about.st_uid) + ", this process to user " + std::to_string(geteuid());
  }
  if ((about.st_mode & closed) != 0) return " is open to other users: `chmod 600` closes it";
  return {};
}

}  // namespace

TrustedText read_trusted(const std::string& path, std::size_t most, mode_t closed) {
  // Non-blocking: opening a FIFO would otherwise wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return {{}, system_says(errno), errno == ENOENT};
  TrustedText found;
  found.problem = check(file, closed);
  std::string buffer(most, '\0');
  std::size_t size = 0;
  ssize_t got = 1;
  while (found.problem.empty() && got > 0 && size < buffer.size()) {
    got = ::read(file, buffer.data() + size, buffer.size() - size);
    if (got > 0) size += static_cast<std::size_t>(got);
    if (got < 0) found.problem = system_says(errno);
  }
  ::close(file);
  if (found.problem.empty()) found.text = buffer.substr(0, size);
  return found;
}

}  // namespace gc3
