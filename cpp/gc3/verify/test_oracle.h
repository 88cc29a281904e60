// The oracle of the mutation tests: finds out what a program does by brute force, running it in small steps under
// random schedules. It shares no code with the verifier and is for small programs only.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gc3/ir/program.h"

namespace gc3::verify::test {

// Empty: the program can run. Otherwise the rule of the IR that it breaks, including sends without receives.
std::string broken_rule(const ir::Program& program);

using Multiset = std::map<model::InputChunk, std::uint32_t>;

struct Outcome {
  bool deadlock = false;
  std::string wrong;  // the first wrong output, read of an unwritten slot, or write to a read-only slot; empty: none
};

// Runs with `slots` FIFO slots per connection. Every chunk is read and written separately, in random order, interleaved
// with anything else. The program must break no rule.
Outcome simulate(const ir::Program& program, std::uint32_t slots, std::mt19937_64& random);

// The result of running the instructions one after the other in some order: per rank and output chunk.
std::vector<std::vector<Multiset>> computed(const ir::Program& program);

// The smallest number of slots without deadlock, or 0 if there is none.
std::uint32_t smallest_slots(const ir::Program& program);

// Whether two conflicting accesses are unordered, by the transitive closure of happens-before, chunk by chunk. The
// program must not deadlock with enough slots.
bool has_race(const ir::Program& program);

}  // namespace gc3::verify::test
