// What carries the messages of programs between hosts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gc3 {

// none: all ranks are on one host.
#define GC3_TRANSPORTS(GC3_TRANSPORT) \
  GC3_TRANSPORT(tcp)                  \
  GC3_TRANSPORT(ucx)
enum class TransportKind : std::uint8_t {
  none,
#define GC3_TRANSPORT(name) name,
  GC3_TRANSPORTS(GC3_TRANSPORT)
#undef GC3_TRANSPORT
};
inline constexpr auto kTransports = std::to_array<std::string_view>({"",
#define GC3_TRANSPORT(name) #name,
                                                                     GC3_TRANSPORTS(GC3_TRANSPORT)
#undef GC3_TRANSPORT
});

constexpr std::string_view name_of(TransportKind kind) { return kTransports[static_cast<std::size_t>(kind)]; }

constexpr std::optional<TransportKind> parse_transport(std::string_view name) {
  for (std::size_t i = 0; i < kTransports.size(); ++i) {
    if (kTransports[i] == name) return static_cast<TransportKind>(i);
  }
  return {};
}

}  // namespace gc3
