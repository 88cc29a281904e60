// How much is sent unasked.
#pragma once

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
// A message of more bytes than this would leave few for others.
inline constexpr std::uint64_t kMostEager = 4 * kPayload;
inline constexpr std::uint64_t kLeastRead = std::uint64_t{16} << 10U;

inline std::uint64_t cost_of(std::uint64_t bytes) { return bytes + kKeeping; }

}  // namespace gc3::p2p
