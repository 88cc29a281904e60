// The layout of a program in MSCCL XML: the lines of its steps, with nops for the further dependencies.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// How many reductions of a threadblock the runtimes merge before they start a new run; an array of theirs has this
// size.
inline constexpr std::uint32_t kMaxMergedReductions = 16;

// A step of the file: a dependency on a nop, or an instruction of the program.
struct XmlLine {
  const Instruction* instruction = nullptr;  // nullptr: nop
  Dependency dep{};                          // step counts as in the file
  bool has_dep = false;
  bool publishes = false;
};

// The threadblocks of one rank. Reused for each rank, so that a large program needs few allocations.
struct XmlRankLayout {
  std::vector<XmlLine> lines;
  std::vector<std::uint32_t> first_line;  // of each threadblock; one more at the end
  bool uses_input = false;
  bool uses_output = false;

  // Fails for a program that breaks the rules of the IR or in which a step waits for a nop.
  Status lay_out(const Program& program, std::uint32_t rank);

 private:
  void break_reductions(std::uint32_t first);

  std::vector<std::uint32_t> position_;  // line of each instruction of the rank, within its threadblock
  std::vector<Dependency> waits_;
};

// The number of chunks that the whole buffer of the collective is cut into.
std::uint64_t xml_chunks_per_loop(const model::Collective& collective);

}  // namespace gc3::ir
