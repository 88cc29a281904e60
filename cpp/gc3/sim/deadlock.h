// The message about a program that cannot finish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::sim {

// Names the threadblocks of the cycle. Every remaining threadblock waits for another one, so following them from any
// one, `at`, leads into a cycle. waits_for(t) is the threadblock that t waits for. describe(t) says what t waits for,
// up to the name, and name(t) says where t is.
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
