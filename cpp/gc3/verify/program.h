// What the checks know of a program whose structure is sound, under its own names.
#pragma once

#include "gc3/base/findings.h"
#include "gc3/ir/connections.h"
#include "gc3/ir/index.h"

namespace gc3::verify {

using ir::Connection;
using ir::Connections;
using ir::place_name;
using ir::ProgramIndex;
using ir::Step;
using ir::step_name;

}  // namespace gc3::verify
