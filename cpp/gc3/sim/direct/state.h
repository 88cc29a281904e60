// What a run knows of the threadblocks of a one-sided program, and of what they wait for.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/sim/machine.h"

namespace gc3::sim::direct {

inline constexpr std::uint32_t kInAir = 4;  // pieces of a move that are under way at once

enum class Phase : std::uint8_t { arrives, moves, ends, waits, finished };

struct alignas(64) Block {
  Time at = 0;             // of its next event, or of its last one
  Time stored = 0;         // until then all that it has stored arrives
  Time over_links = 0;     // of the pieces of a move so far: time on links,
  Time hops = 0;           // and of loads without it
  std::uint64_t left = 0;  // bytes of a move that are not asked for
  std::uint64_t piece = 0;
  std::uint32_t step = 0;
  std::uint32_t step_count = 0;
  std::uint32_t first_step = 0;
  std::uint32_t rank = 0;
  std::uint32_t in_air = 0;
  std::uint32_t record = kNone;
  Phase phase = Phase::arrives;
  bool issues = false;   // an event for its next piece is in the queue
  bool packets = false;  // the move has packets, and is one piece: what arrives first can be used first
};

struct Piece {
  std::uint64_t bytes = 0;
  bool loaded = false;
};

// Something that another threadblock waits for, and the record of who did it.
struct Told {
  Time at = 0;
  std::uint32_t record = kNone;
};
struct Counter {
  std::deque<Told> told;  // not taken yet
  std::vector<std::uint32_t> waiting;
};
struct Packet {
  Time first = -1;  // it is there, in part; -1: not written yet
  Time last = 0;
  std::uint32_t record = kNone;
  std::vector<std::uint32_t> waiting;
};

}  // namespace gc3::sim::direct
