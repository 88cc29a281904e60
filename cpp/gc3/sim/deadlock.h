// What is said of a program that cannot finish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::sim {

// Names who waits for whom. Every threadblock that is left waits for another one; following them from any, `at`, leads
// into a cycle. waits_for(t) is that other one of threadblock t, describe(t) what t waits for, up to its name, and
// name(t) says where it stands.
template <class WaitsFor, class Describe, class Name>
void note_cycle(Diagnostic& problem, std::uint32_t at, std::size_t threadblocks, const WaitsFor& waits_for,
                const Describe& describe, const Name& name) {
  std::vector<bool> seen(threadblocks);
  while (!seen[at]) {
    seen[at] = true;
    at = waits_for(at);
  }
  const std::uint32_t begin = at;
  do {
    const std::uint32_t other = waits_for(at);
    problem.note(name(at) + describe(at) + name(other));
    at = other;
  } while (at != begin);
}

}  // namespace gc3::sim
