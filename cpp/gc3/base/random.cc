#include "gc3/base/random.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "gc3/base/errors/verifier.h"

namespace gc3 {

Status draw_random(std::span<std::uint64_t> words) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20U;  // per call: a larger one delays signals
  std::span<std::byte> rest = std::as_writable_bytes(words);
  while (!rest.empty()) {
    // The system call itself, because the C library's function may keep a state of its own in this process.
    const long got = ::syscall(SYS_getrandom, rest.data(), std::min(rest.size(), kMostBytes), 0U);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Diagnostic(ErrorCode::NoRandomness, "getrandom: " + std::string(std::strerror(errno)));
    rest = rest.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace gc3
