// The moves of a program of messages: what is kept, where its terms are, and an order in which that works.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/model/collective.h"

namespace gc3::compiler::direct {

struct Spot {  // a chunk in the buffer of a rank, under its canonical name
  std::uint32_t rank = 0;
  model::Place place{model::Buffer::input, 0};
  bool operator==(const Spot&) const = default;
};

struct Move {
  std::uint32_t tb = 0;           // of the program of messages
  std::uint32_t instruction = 0;  // likewise
  std::uint32_t count = 0;        // consecutive chunks of each operand
  std::vector<Spot> sources;      // the first chunk of each
  std::vector<Spot> targets;      // of the threadblock's rank, unless it is pushed
  std::uint32_t sender = kNone;   // the threadblock that sends its only source
  bool reduces = false;           // whether a switch may add up some of its sources
  // A place of several ranks that a switch adds up, or stores to; no ranks: none.
  struct Switched {
    std::vector<std::uint32_t> ranks = {};  // ascending
    model::Place place{model::Buffer::input, 0};
    bool has(const Spot& s) const { return s.place == place && std::ranges::binary_search(ranks, s.rank); }
  };
  Switched summed = {};
  Switched copied = {};
};

struct Moves {
  std::vector<Move> all;                      // in an order in which one process can execute them
  std::vector<std::uint32_t> scratch_chunks;  // per rank, with what is put aside
};

// `defers`: a copy into scratch is left out where the original can be read in its place.
Result<Moves> find_moves(const ir::Program& program, bool defers);

// The same with fewer moves: a sum that is built up term by term becomes one move. With `pushing`, which is the form
// that MSCCL++'s executor has, what is only moved is stored by the rank that has it, in one move with the step that has
// made it or with the same value's other targets.
Moves join(const ir::Program& program, Moves moves, bool pushing);

// Of a program with switch groups: which operands of moves, joined with `pushing`, go through a switch. In which order
// it adds up is not said.
void use_switches(const ir::Program& program, Moves& moves);

}  // namespace gc3::compiler::direct
