// An order in which one process can execute all steps of a program, so that none waits.
#pragma once

#include <optional>
#include <vector>

#include "gc3/ir/connections.h"
#include "gc3/ir/index.h"

namespace gc3::ir {

struct StepOrder {
  std::vector<Step> steps;
  std::optional<Step> stuck;  // a step that waits for ever, if there is one

  // `connections`: complete. With as many FIFO slots as the program needs.
  static StepOrder find(const ProgramIndex& index, const Connections& connections);
};

}  // namespace gc3::ir
