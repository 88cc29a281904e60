// What each waiting threadblock waits for, in words.
#pragma once

#include <cstdint>
#include <span>

#include "gc3/base/diagnostic.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// Adds a note per waiting threadblock to `diagnostic`. The tasks must be at rest.
void report_waiting(const Plan& plan, std::span<const Task> tasks, const Run& run, Diagnostic& diagnostic);

}  // namespace gc3::interp
