#include "gc3/base/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "gc3/base/errors/processes.h"

namespace gc3 {
namespace {

constexpr std::size_t kLeast = 16;  // bytes; a shorter one can be guessed
constexpr std::size_t kMost = 4096;

Diagnostic unusable(std::string text) { return Diagnostic(ErrorCode::BadSecret, std::move(text)); }

Status check_size(const std::string& secret, const std::string& name) {
  if (secret.size() >= kLeast && secret.size() <= kMost) return {};
  return unusable(name + " has " + (secret.size() > kMost ? "more than " : "") +
                  std::to_string(std::min(secret.size(), kMost)) + " bytes; " + std::to_string(kLeast) + " to " +
                  std::to_string(kMost) + " are a secret");
}

// All checks use the open file, because its name may refer to another file a moment later.
Status check_file(int file, const std::string& name) {
  struct stat about{};
  if (fstat(file, &about) != 0) return unusable(name + ": " + std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return unusable(name + " is no ordinary file");
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return unusable(name + " belongs to user " + std::to_string(about.st_uid) + ", this process to user " +
                    std::to_string(geteuid()));
  }
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if ((about.st_mode & kOthers) != 0) return unusable(name + " is open to other users: `chmod 600` closes it");
  return {};
}

Result<std::string> read_file(const std::string& path) {
  const std::string name = "GC3_SECRET_FILE='" + path + "'";
  // Non-blocking: opening a FIFO would otherwise wait for a writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return unusable(name + ": " + std::strerror(errno));
  Status fit = check_file(file, name);
  std::string secret;
  std::array<char, kMost + 2> buffer{};  // one for a newline, one to detect a longer file
  ssize_t got = 1;
  while (fit.ok() && got > 0 && secret.size() < buffer.size()) {
    got = read(file, buffer.data(), buffer.size() - secret.size());
    if (got > 0) secret.append(buffer.data(), static_cast<std::size_t>(got));
    if (got < 0) fit = unusable(name + ": " + std::strerror(errno));
  }
  close(file);
  if (!fit.ok()) return fit.error();
  if (secret.ends_with('\n')) secret.pop_back();
  GC3_CHECK(check_size(secret, name));
  return secret;
}

}  // namespace

Result<std::string> read_secret(const Environment& environment) {
  GC3_ASSIGN(const Knobs knobs, read_knobs(environment));
  for (const std::string name : {"GC3_SECRET", "GC3_SECRET_FILE"}) {
    const char* const value = environment(name.c_str());
    if (value != nullptr && *value == '\0') {
      return unusable(name + " is set and empty; unset it for a job without a secret");
    }
  }
  if (!knobs.secret.empty() && !knobs.secret_file.empty()) {
    return unusable("GC3_SECRET and GC3_SECRET_FILE are both set");
  }
  if (!knobs.secret_file.empty()) return read_file(knobs.secret_file);
  if (!knobs.secret.empty()) GC3_CHECK(check_size(knobs.secret, "GC3_SECRET"));
  return knobs.secret;
}

}  // namespace gc3
