// How much is sent unasked.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "gc3/runtime/p2p/pipe.h"

namespace gc3::p2p {

// Of what a rank has sent another unasked and that one has not asked for, messages themselves and keeping them.
inline constexpr std::uint64_t kMostHeld = std::uint64_t{1} << 20U;
inline constexpr std::uint64_t kKeeping = 128;
// Offers to one rank, each of which that rank keeps in mind.
inline constexpr std::size_t kMostOffers = std::size_t{1} << 16U;
// Those of another host that are kept, with the ones that it has withdrawn, of which nobody tells.
inline constexpr std::size_t kMostOffersKept = 16 * kMostOffers;
// The ring of the pipe between two ranks of a group of so many. A sender that has no room waits for the receiver, and
// lines that come back soon have to be fetched from its caches: on an Intel Xeon 64 messages of 16 KiB went 1.4 times
// as fast through 512 KiB as through 128. With more than 17 ranks the rings to one of them take no more than with 17,
// as far as each has 128 KiB.
inline constexpr std::uint64_t ring_among(std::uint64_t ranks) {
  constexpr std::uint64_t kInAll = 16 * PipeSize::kRing;
  return std::clamp(std::bit_floor(kInAll / std::max<std::uint64_t>(ranks - 1, 1)), PipeSize::kRing / 4,
                    PipeSize::kRing);
}
// A message of more bytes than this would leave few for others.
inline constexpr std::uint64_t kMostEager = 4 * kPayload;
inline constexpr std::uint64_t kLeastRead = std::uint64_t{16} << 10U;

inline std::uint64_t cost_of(std::uint64_t bytes) { return bytes + kKeeping; }

}  // namespace gc3::p2p
