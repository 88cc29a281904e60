// Where the engine of processes changes its ways: from which message size on ranks read each other's memory, how large
// the slots are through which messages are copied, and how long a wait spins. The best values depend on the machine:
// they are measured, or told by a file or a row of a table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gc3 {

struct Thresholds {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // The sizes in bytes from which reading a message from its sender's memory is faster than copying it through shared
  // memory: if it is only moved, if the receiver reduces or forwards it, and if the sender writes half of it.
  std::uint64_t moved = kNever;
  std::uint64_t combined = kNever;
  std::uint64_t halved = kNever;
  // The most bytes of a slot where messages of that size are copied: sender and receiver should find it in their
  // caches.
  std::uint64_t copied_slot = 256 * 1024;
  // The number of checks of a wait before it yields the core, where each rank has a core.
  std::uint64_t spins = 8000;

  bool operator==(const Thresholds&) const = default;
};

struct ThresholdInfo {
  std::string_view name;
  std::uint64_t Thresholds::* member;
  std::uint64_t least;
  std::uint64_t most;
  bool may_be_never;
};

inline constexpr std::array<ThresholdInfo, 5> kThresholds = {{
    {"read_moved", &Thresholds::moved, 4096, std::uint64_t{1} << 40U, true},
    {"read_combined", &Thresholds::combined, 4096, std::uint64_t{1} << 40U, true},
    {"read_halved", &Thresholds::halved, 4096, std::uint64_t{1} << 40U, true},
    {"copied_slot", &Thresholds::copied_slot, 4096, std::uint64_t{1} << 40U, false},
    {"spins", &Thresholds::spins, 0, 1'000'000, false},
}};

// Values for some thresholds.
struct ThresholdChanges {
  std::array<std::optional<std::uint64_t>, kThresholds.size()> values = {};

  bool operator==(const ThresholdChanges&) const = default;
  bool empty() const { return *this == ThresholdChanges{}; }
  // Why there is no such threshold, or it cannot have the value; empty: it is set.
  std::string set(std::string_view name, std::uint64_t value);
  // The same for a number, or "never".
  std::string set(std::string_view name, std::string_view value);
  Thresholds applied_to(Thresholds all) const;
};

// "never", or the number.
std::string threshold_text(std::uint64_t value);

}  // namespace gc3
