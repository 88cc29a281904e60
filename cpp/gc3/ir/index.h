// Data that the program leaves implicit, precomputed for the checks: the rank of a threadblock, the numbers of slots,
// and the names of threadblocks and steps in messages. Only for programs that passed check_structure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// One instruction: step `step` of threadblock `tb`, an index into Program::threadblocks.
struct Step {
  std::uint32_t tb = kNone;
  std::uint32_t step = 0;
  bool operator==(const Step&) const = default;
};

// The chunks of one rank that a program may name, in one array: input, output, scratch. In place, the inner buffer is
// part of the other one and has no chunks of its own.
struct RankSlots {
  std::size_t first = 0;                 // of this rank, counted over all ranks
  std::array<std::uint32_t, 4> begin{};  // per buffer within the rank; begin[3]: all chunks of the rank
};
std::array<std::uint64_t, 3> buffer_sizes(const Program& program, std::uint32_t rank);

class ProgramIndex {
 public:
  explicit ProgramIndex(const Program& program);

  const Program& program() const { return program_; }
  std::uint32_t rank_of(std::uint32_t tb) const { return rank_of_[tb]; }
  std::uint32_t local_tb(std::uint32_t tb) const { return tb - program_.ranks[rank_of_[tb]].first_tb; }
  const Instruction& instruction(Step s) const {
    return program_.instructions[program_.threadblocks[s.tb].first_instruction + s.step];
  }
  // The threadblock and step that dependency `d` of a threadblock of `rank` names.
  Step awaited(std::uint32_t rank, Dependency d) const { return {program_.ranks[rank].first_tb + d.tb, d.step}; }

  const RankSlots& slots(std::uint32_t rank) const { return slots_[rank]; }
  std::size_t slot_count() const { return slot_count_; }
  std::uint32_t slot(std::uint32_t rank, model::Buffer buffer, std::uint32_t chunk) const {
    return slots_[rank].begin[static_cast<std::size_t>(buffer)] + chunk;
  }
  model::Place place(std::uint32_t rank, std::uint32_t slot) const;

  // "rank 1 threadblock 0 step 3 (recv out[2], ring.py:12)".
  std::string describe(Step s) const;

 private:
  const Program& program_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<RankSlots> slots_;
  std::size_t slot_count_ = 0;
};

std::string plural(std::uint64_t n, const std::string& noun);  // "2 chunks"
std::string step_name(std::uint32_t rank, std::uint32_t tb, std::uint32_t step);
std::string place_name(model::Place place);  // "output[3]"

}  // namespace gc3::ir
