// Builds a Program from front to back, so that it always has the layout that program.h describes.
#pragma once

#include <cstdint>
#include <span>

#include "gc3/ir/program.h"

namespace gc3::ir {

class Builder {
 public:
  // Starts the next rank; starts the next threadblock of the rank; appends a step to the threadblock.
  void rank(std::uint32_t scratch_chunks) {
    program_.ranks.push_back({static_cast<std::uint32_t>(program_.threadblocks.size()), 0, scratch_chunks});
    scratch_total_ += scratch_chunks;
  }
  void threadblock(std::uint32_t send_peer, std::uint32_t recv_peer, std::uint32_t channel) {
    ++program_.ranks.back().tb_count;
    const auto first = static_cast<std::uint32_t>(program_.instructions.size());
    program_.threadblocks.push_back({send_peer, recv_peer, channel, first, 0});
  }
  // dep_begin and dep_count of `step` are set here.
  void step(Instruction step, std::span<const Dependency> deps = {}) {
    ++program_.threadblocks.back().instruction_count;
    step.dep_begin = static_cast<std::uint32_t>(program_.dependencies.size());
    step.dep_count = static_cast<std::uint32_t>(deps.size());
    program_.dependencies.insert(program_.dependencies.end(), deps.begin(), deps.end());
    program_.instructions.push_back(step);
    if (!program_.switched.empty()) program_.switched.emplace_back();
  }

  // Puts the step appended last into groups.
  void switched(Switched groups) {
    program_.switched.resize(program_.instructions.size());
    program_.switched.back() = groups;
  }

  std::uint64_t scratch_total() const { return scratch_total_; }
  // The program so far. The caller sets the name, the collective and the other header fields.
  Program& program() { return program_; }

 private:
  Program program_;
  std::uint64_t scratch_total_ = 0;
};

}  // namespace gc3::ir
