#include "gc3/base/copy_bytes.h"

#include <array>

namespace gc3 {

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
