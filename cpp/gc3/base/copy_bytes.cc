#include "gc3/base/copy_bytes.h"

#include <algorithm>
#include <array>
#include <chrono>

namespace gc3 {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kPage = 4096;
constexpr std::size_t kVector = 32;
constexpr int kSeveral = 4;
using Pages = std::array<std::byte, 3 * kPage>;

// The shortest of several times: something else may have the core in some.
std::chrono::nanoseconds time_of(Pages& pages, std::size_t behind) {
  constexpr int kTries = 8;
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < kTries; ++i) {
    const void* from = pages.data();
    void* to = pages.data() + kPage + behind;
    std::size_t bytes = kPage;
    const auto begin = std::chrono::steady_clock::now();
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - begin);
  }
  return least;
}

// Between whole vectors of 32 bytes, since a distance of a whole one may be as fast as any other.
std::size_t measure() {
  alignas(kPage) Pages pages{};
  const auto is_slow = [&pages](std::size_t behind) {
    return time_of(pages, behind) > kSeveral * time_of(pages, kPage / 2);
  };
  if (is_slow(kVector + kVector / 2)) return 2 * kVector - 1;
  return is_slow(kVector / 2) ? kVector - 1 : 0;
}
#else
std::size_t measure() { return 0; }  // without such an instruction
#endif

}  // namespace

std::size_t slow_behind() {
  static const std::size_t slow = measure();
  return slow;
}

void copy_lagging(void* to, const void* from, std::size_t bytes) {
  using Vector [[gnu::vector_size(16)]] = std::uint8_t;
  using Line = std::array<Vector, 4>;
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % sizeof(Line);  // so that stores are aligned
  std::memcpy(out, in, sizeof(Line));
  std::size_t at = head;
  for (; at + sizeof(Line) <= bytes; at += sizeof(Line)) {
    Line line;
    std::memcpy(&line, in + at, sizeof line);
    std::memcpy(out + at, &line, sizeof line);
    asm volatile("" : : : "memory");  // or the compiler would make `rep movs` of it again
  }
  std::memcpy(out + bytes - sizeof(Line), in + bytes - sizeof(Line), sizeof(Line));
}

}  // namespace gc3
