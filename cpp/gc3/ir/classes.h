// Programs of which one rank stands for all: each other rank does the same, translated.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gc3/base/findings.h"
#include "gc3/base/result.h"
#include "gc3/ir/connections.h"
#include "gc3/ir/program.h"
#include "gc3/model/symmetry.h"

namespace gc3::ir {

// Chunks of a buffer from `begin` on, to the next region of that buffer, and how translations move them.
struct Region {
  model::Buffer buffer = model::Buffer::input;
  std::uint32_t begin = 0;
  model::Axes axes;
};

struct ClassProgram {
  Program representative;       // the steps of rank 0 alone; a peer is also the translation that leads to it
  model::Symmetry symmetry;     // of all ranks of its collective; in what readers return, none: it has the steps of all
  std::vector<Region> regions;  // by buffer, then by begin; each buffer has one at 0

  std::uint32_t ranks() const { return representative.collective.ranks(); }
  const Region& region(model::Buffer buffer, std::uint32_t chunk) const;
  // Where rank `by` has `count` chunks that rank 0 has at `chunk`.
  std::uint32_t moved(model::Buffer buffer, std::uint32_t chunk, std::uint32_t count, std::uint32_t by) const;
};

// Whether the translations act on the collective, and on the chunks of each buffer.
bool check_action(const ClassProgram& program, Findings& findings);
// As `check_structure` and `match_transfers` of all ranks. Both ends of a connection are on rank 0, and it stands for
// its translations.
bool check_structure(const ClassProgram& program, std::uint32_t slots, Findings& findings);
Connections match_transfers(const ClassProgram& program, const ProgramIndex& index, Findings& findings);
Result<Connections> checked_connections(const ClassProgram& program);

inline constexpr std::uint64_t kMostExpanded = std::uint64_t{1} << 24U;  // instructions

// The program of all ranks; GC3-C002 if it has more than `most` instructions, or more chunks than one can have.
Result<Program> expand(const ClassProgram& program, std::uint64_t most = kMostExpanded);
// The steps of these ranks alone, each as it is in the program of all ranks.
Result<Program> expand(const ClassProgram& program, std::span<const std::uint32_t> ranks,
                       std::uint64_t most = kMostExpanded);

// What a reader returned, as the program of all ranks; and a program of all ranks, as readers return it.
Result<Program> of_all_ranks(ClassProgram read);
inline ClassProgram as_read(Program program) { return {std::move(program), {}, {}}; }

// Whether a rank that runs what a reader returned makes its own steps alone. Where all have few, all are made: who
// knows the steps of the others lends more messages instead of copying them.
bool runs_alone(const ClassProgram& read);

}  // namespace gc3::ir
