#include "gc3/runtime/core/sharing/single_copy.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace gc3::core {
namespace {

// Of a wait before it yields or sleeps. To wake a rank that sleeps on an idle core takes 50 to 100 us in a virtual
// machine, or from a deep state of the core. Whoever sleeps sooner than that has to be woken by the other rank in turn,
// and with no load at all neither ever finds the other one awake.
constexpr double kSpinNs = 200'000;
constexpr std::uint64_t kLeastSlot = 64 * 1024;
constexpr std::uint64_t kMostSlot = 1024 * 1024;
constexpr std::uint64_t kFewestSpins = 500;
constexpr std::uint64_t kMostSpins = 40'000;

// A quarter of a core's own cache, so that the buffers have room beside the slot.
std::uint64_t slot_in_cache() {
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);  // 0 or -1: unknown
  if (cache <= 0) return Thresholds{}.copied_slot;
  return std::clamp(static_cast<std::uint64_t>(cache) / 4, kLeastSlot, kMostSlot);
}

std::string tenths(std::uint64_t ns) {
  const std::uint64_t found = (ns + 50) / 100;
  return std::to_string(found / 10) + "." + std::to_string(found % 10);
}

}  // namespace

void SingleCopy::choose(bool core_each, double check) {
  thresholds = {};
  thresholds.copied_slot = slot_in_cache();
  thresholds.spins = std::clamp(static_cast<std::uint64_t>(kSpinNs / std::max(check, 1.0)), kFewestSpins, kMostSpins);
  // If ranks share cores, a slot is often still in the cache, and waiting for the receiver costs more.
  const std::uint64_t fewest = core_each ? kCopySizes[0] : kCopySizes[1];
  if (source != Source::measured) {
    thresholds.moved = thresholds.combined = fewest;
    thresholds.halved = kCopySizes[1];
    return;
  }
  // A message that is longer than a slot is copied in pieces, so at the rate of shorter ones where that is better: one
  // copy of all of it may not fit the caches.
  CopyTimes copied = times;
  for (std::size_t i = 1; i < copied.size(); ++i) {
    if (kCopySizes[i] <= thresholds.copied_slot) continue;
    const auto pieces = static_cast<std::uint32_t>(kCopySizes[i] / kCopySizes[i - 1]);
    copied[i].put = std::min(copied[i].put, pieces * copied[i - 1].put);
    copied[i].take = std::min(copied[i].take, pieces * copied[i - 1].take);
  }
  // The smallest size from which on reading is never slower than the copies that it replaces.
  const auto least = [fewest](const auto& is_faster) {
    std::uint64_t from = Thresholds::kNever;
    for (std::size_t i = kCopySizes.size(); i-- != 0 && kCopySizes[i] >= fewest && is_faster(i);) from = kCopySizes[i];
    return from;
  };
  thresholds.moved =
      least([&](std::size_t i) { return copied[i].read <= std::uint64_t{copied[i].put} + copied[i].take; });
  // Data to be reduced is read to a buffer and reduced from there, as it would be from shared memory. So reading saves
  // only the sender's copy.
  thresholds.combined = least([&](std::size_t i) { return copied[i].read <= copied[i].put; });
  // With both ranks copying half a message, against two copies that overlap: of long messages one rank copies in a tile
  // while the other copies out the previous one. For the smallest size a second system call does not pay.
  thresholds.halved =
      least([&](std::size_t i) { return i != 0 && copied[i].read / 2 <= std::max(copied[i].put, copied[i].take); });
}

std::string SingleCopy::describe() const {
  std::string uses;
  const auto add = [&uses](std::uint64_t least, const char* what) {
    if (least == Thresholds::kNever) return;
    const bool whole = least % 1024 == 0;
    uses += (uses.empty() ? "from " : ", from ") + std::to_string(whole ? least >> 10U : least) +
            (whole ? " KiB " : " B ") + what;
  };
  if (reads) {
    add(thresholds.moved, "if they are copied");
    add(thresholds.combined, "if they are reduced");
    if (writes) add(thresholds.halved, "by sender and receiver together");
  }
  uses =
      uses.empty() ? "messages are copied through shared memory" : "messages are read from the sender's memory " + uses;
  uses += "; waits spin " + std::to_string(thresholds.spins) + " times";
  const bool timed = std::ranges::any_of(times, [](const CopyTime& t) { return t.read != 0; });
  if (source == Source::given) uses += "; given";
  if (source == Source::assumed) uses += "; not measured";
  if (source == Source::kept || source == Source::measured) uses += "; measured " + utc(measured_at);
  if (source == Source::kept) uses += " and kept";
  if (!remark.empty()) uses += " (" + remark + ")";
  if (!timed) return uses;
  uses += ", in us by shared memory and by reading:";
  for (std::size_t i = 0; i < kCopySizes.size(); ++i) {
    uses += (i == 0 ? " " : ", ") + std::to_string(kCopySizes[i] >> 10U) + " KiB " +
            tenths(std::uint64_t{times[i].put} + times[i].take) + " and " + tenths(times[i].read);
  }
  return uses;
}

}  // namespace gc3::core
