// A direct program decoded for execution, and where its counters and scratch lie in memory.
//
// Counters and scratch contain no pointers and begin as zeros, so that several processes can map them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/direct/program.h"
#include "gc3/runtime/interp/layout.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::direct {

using ir::direct::Op;
using ir::direct::Program;
using model::Buffer;

// Consecutive chunks of a rank's buffer, from `chunk` on.
struct Place {
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;
  Buffer buffer = Buffer::input;
  bool packet = false;
};

// A step whose operands are places, a multicast one being the places of its group, and in place the canonical ones.
struct Step {
  Op op = Op::sync;
  bool packets = false;  // some place of a move is of packets
  std::uint32_t count = 0;
  std::uint32_t first = 0;  // of a move in Decoded::places, otherwise in Program::objects
  std::uint32_t sources = 0;
  std::uint32_t targets = 0;
  std::uint32_t channel = kNone;
};

struct Decoded {
  Program program;
  std::vector<Step> steps;  // as in the program
  std::vector<Place> places;
  std::vector<std::uint32_t> scratch_chunks;  // by rank; a packet takes two
  // By rank: in place, some step writes to the input outside the output that lies within it. Only the output may be
  // written in the caller's memory, so the rank works on a copy of its input.
  std::vector<bool> copies_input;
  // What other ranks do with the input and the output of each rank, and whether they store to its scratch.
  enum class Use : std::uint8_t { nothing, loads, stores };
  std::vector<std::array<Use, 2>> uses;
  bool stores_to_scratch = false;

  // Refuses malformed programs, and those that write to input out of place.
  static Result<Decoded> create(const Program& program);
  std::span<const Place> sources(const Step& s) const { return std::span(places).subspan(s.first, s.sources); }
  std::span<const Place> targets(const Step& s) const {
    return std::span(places).subspan(s.first + s.sources, s.targets);
  }
  // Of one rank, where chunks have `stride` bytes.
  std::size_t scratch_bytes(std::uint32_t rank, std::size_t stride) const {
    return stride * scratch_chunks[rank] * program.halves;
  }
};

// What engines ask a plan for: the collective, and the buffers of the ranks.
interp::Plan plan_of(const Decoded& program);

// The counters of a program's objects and ranks. They never restart, so a call needs no preparation.
class Counters {
 public:
  static std::size_t bytes(const Program& p) {
    return sizeof(interp::Counter) *
           (2 * p.channels.size() + p.semaphores.size() + p.barriers.size() + p.collective.ranks());
  }
  // Where those of semaphores and barriers begin; those of a channel are two.
  static std::size_t semaphores_at(const Program& p) { return 2 * p.channels.size(); }
  static std::size_t barriers_at(const Program& p) { return semaphores_at(p) + p.semaphores.size(); }
  static std::size_t ranks_at(const Program& p) { return barriers_at(p) + p.barriers.size(); }
  // The rank that waits for each counter of an object.
  static std::vector<std::uint32_t> waiters(const Program& p);
  Counters(void* base, const Program& p)
      : base_(static_cast<interp::Counter*>(base)),
        semaphores_(semaphores_at(p)),
        barriers_(barriers_at(p)),
        ranks_(ranks_at(p)) {}

  std::uint64_t& signals(std::size_t channel) const { return base_[2 * channel].value; }
  std::uint64_t& waits(std::size_t channel) const { return base_[2 * channel + 1].value; }
  std::uint64_t& released(std::size_t semaphore) const { return base_[semaphores_ + semaphore].value; }  // less taken
  std::uint64_t& arrivals(std::size_t barrier) const { return base_[barriers_ + barrier].value; }
  std::uint64_t& calls(std::uint32_t rank) const { return base_[ranks_ + rank].value; }  // begun

 private:
  interp::Counter* base_;
  std::size_t semaphores_;
  std::size_t barriers_;
  std::size_t ranks_;
};

}  // namespace gc3::direct
