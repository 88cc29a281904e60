// The moves of a program of messages: what is kept, where its terms are, and an order in which that works.
#pragma once

#include <cstdint>
#include <vector>

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
  std::vector<Spot> targets;      // of the threadblock's rank
};

struct Moves {
  std::vector<Move> all;                      // in an order in which one process can execute them
  std::vector<std::uint32_t> scratch_chunks;  // per rank, with what is put aside
};

Result<Moves> find_moves(const ir::Program& program);

}  // namespace gc3::compiler::direct
