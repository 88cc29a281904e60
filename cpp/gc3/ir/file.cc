#include "gc3/ir/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gc3/base/errors/files.h"
#include "gc3/base/interrupt.h"

namespace gc3::ir {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// Writes all bytes; returns 0 or the errno of the failure.
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

constexpr int kSliceMs = 100;
constexpr int kOpenTimeoutMs = 5000;

// Returns when there is data to read or some time has passed, so that the caller can end the work in between.
void wait_for_input(int fd) {
  pollfd waits{fd, POLLIN, 0};
  ::poll(&waits, 1, kSliceMs);
  call_hook();
}

std::string real_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  return failed ? path : real.string();
}

}  // namespace

Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t most) {
  const auto fail = [&](const std::string& why) {
    return Diagnostic(ErrorCode::FileUnreadable, "'" + path + "': " + why);
  };
  // Non-blocking, so that open() does not wait for the other end of a pipe.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return fail(reason(errno));
  struct stat about = {};
  if (::fstat(file.get(), &about) != 0) return fail(reason(errno));
  if (S_ISDIR(about.st_mode)) return fail(reason(EISDIR));
  std::vector<std::byte> bytes;
  // One byte more than the size, so that reading a regular file ends without growing the buffer. A pipe has no size:
  // the buffer doubles.
  const bool is_regular = S_ISREG(about.st_mode);
  std::size_t room = is_regular ? static_cast<std::size_t>(about.st_size) + 1 : std::size_t{1} << 16U;
  std::size_t used = 0;
  int left_ms = kOpenTimeoutMs;
  for (;;) {
    if (used > most || room > 2 * most + (std::size_t{1} << 17U)) {
      return fail("larger than the " + std::to_string(most >> 20U) + " MiB that it may have");
    }
    if (bytes.size() < room) bytes.resize(room);
    const ssize_t n = ::read(file.get(), bytes.data() + used, bytes.size() - used);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      wait_for_input(file.get());
      left_ms = 0;  // a writer has opened the other end, now or before
      continue;
    }
    if (n < 0) return fail(reason(errno));
    if (n == 0 && used == 0 && S_ISFIFO(about.st_mode) && left_ms > 0) {  // the other end is not open yet
      if ((left_ms -= kSliceMs) <= 0) return fail("a pipe that nobody writes to");
      ::poll(nullptr, 0, kSliceMs);
      call_hook();
      continue;
    }
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
    if (used == bytes.size()) room = 2 * bytes.size();
  }
  bytes.resize(used);
  return bytes;
}

Status write_file(const std::string& name, std::span<const std::byte> bytes) {
  const auto fail = [&](int error) {
    return Diagnostic(ErrorCode::FileUnwritable, "'" + name + "': " + reason(error));
  };
  struct stat about = {};
  const bool exists = ::stat(name.c_str(), &about) == 0;
  if (exists && S_ISDIR(about.st_mode)) return fail(EISDIR);
  if (exists && !S_ISREG(about.st_mode)) {  // write to a device or a pipe, do not replace it
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) return fail(errno);
    int error = write_all(file.get(), bytes);
    if (!file.close() && error == 0) error = errno;
    return error == 0 ? Status() : fail(error);
  }
  const std::string path = exists ? real_path(name) : name;  // resolve a link, so that it stays a link
  // The process id and a number keep writers of the same path apart; O_EXCL guarantees it.
  std::string temporary;
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; ++attempt) {
    temporary = path + "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".tmp";
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) return fail(errno);
  }
  if (fd < 0) return fail(EEXIST);
  FileDescriptor file(fd);
  int error = write_all(file.get(), bytes);
  if (!file.close() && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return {};
  ::unlink(temporary.c_str());
  return fail(error);
}

}  // namespace gc3::ir
