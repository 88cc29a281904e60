// The tables of a structurally sound program that the checks use, under their names in this layer.
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
