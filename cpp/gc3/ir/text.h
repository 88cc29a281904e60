// The text form of a program, for people and golden tests. parse_text(to_text(p)) == p.
#pragma once

#include <string>
#include <string_view>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

std::string to_text(const Program& program);
// One instruction as it stands in the text form, e.g. "rrcs in[3] -> out[3] x2 after (1:4)".
std::string to_text(const Program& program, const Instruction& instruction);
// Errors name the line of the text. `origin` is the file name used in them.
Result<Program> parse_text(std::string_view text, const std::string& origin = "<text>");

}  // namespace gc3::ir
