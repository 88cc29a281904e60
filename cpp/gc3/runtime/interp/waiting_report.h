// The cause of the wait of each waiting threadblock, as text.
#pragma once

#include <cstdint>
#include <span>

#include "gc3/base/diagnostic.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// Adds a note per waiting threadblock to `diagnostic`. No task may be running.
void report_waiting(const Plan& plan, std::span<const Task> tasks, const Run& run, Diagnostic& diagnostic);

}  // namespace gc3::interp
