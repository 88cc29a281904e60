// The oracle of the mutation tests: what a program does, found out by running it in small steps under random schedules
// and by brute force. Shares nothing with the verifier; for small programs only.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gc3/ir/program.h"

namespace gc3::verify::test {

// Empty: it can be run at all. Otherwise the rule of the IR it breaks, sends without receives included.
std::string broken_rule(const ir::Program& program);

using Multiset = std::map<model::InputChunk, std::uint32_t>;

struct Outcome {
  bool deadlock = false;
  std::string wrong;  // the first wrong output, or read of nothing, or write to a read-only place; empty: none
};

// Runs with `slots` FIFO slots per connection. Every chunk is read and written by itself, in random order, with
// anything else in between. Wants a program without a broken rule.
Outcome simulate(const ir::Program& program, std::uint32_t slots, std::mt19937_64& random);

// What the instructions compute one after the other in some order: per rank and output chunk.
std::vector<std::vector<Multiset>> computed(const ir::Program& program);

// The smallest number of slots without deadlock, or 0: there is none.
std::uint32_t smallest_slots(const ir::Program& program);

// Whether two conflicting accesses are unordered, by the transitive closure of happens-before, chunk by chunk. Wants a
// program that does not deadlock with enough slots.
bool has_race(const ir::Program& program);

}  // namespace gc3::verify::test
