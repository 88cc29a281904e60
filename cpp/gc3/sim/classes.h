// Which ranks of a program are alike on a machine: see classes.cc for why it is enough to simulate one of each class.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/sim/machine.h"
#include "gc3/sim/wiring.h"

namespace gc3::sim {

// One rank of each class, with the program and the wiring of these ranks alone.
struct Classes {
  std::vector<std::uint32_t> ranks;  // the first of each class, ascending
  std::vector<std::uint32_t> of;     // of each rank: the number of its class
  ir::Program program;               // the steps of `ranks`
  Wiring wiring;                     // of these; resources are the first of their class
  std::vector<std::uint32_t> first;  // of each resource of the machine: the first of its class
  std::string broken;                // what keeps the classes from being larger; empty: all ranks are one class
};

// Finds the classes. If ranks are not alike at all, or with `apart`, each is its own class, and this has the cost of
// the whole program. Refuses what `wire` refuses.
Result<Classes> find_classes(const ir::ClassProgram& program, const Machine& machine,
                             const std::vector<std::uint32_t>& places, bool apart = false);

}  // namespace gc3::sim
