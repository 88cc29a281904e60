// The text form of a program, for people and golden tests. parse_text(to_text(p)) == p.
//
//   program "ring" version 1
//   collective allreduce ranks 2 chunks 2 in place
//   protocol Simple instances 1 slots 1
//
//   rank 0 scratch 1
//     tb 0 channel 0 send 1 recv 1
//       0 send out[0]
//       1 recv -> sc[0] x2 signals
//     tb 1 channel 0
//       0 reduce sc[0] -> out[1] after (0:1)
//
// `signals` marks a step that another step waits for, `multicast 3` and `reduction 3` the switch groups of its send and
// its receive; `#` starts a comment. Of a program of which rank 0 stands for all, only this rank follows, and before it
// the shape of the machine and how its translations move chunks (ir::Region): "symmetry 4 2", "region in[0] 0:1 1:4".
#pragma once

#include <string>
#include <string_view>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// The opcode as the text form spells it: its name where that is one word, else the short form of the XML (rrcs).
constexpr std::string_view text_name(Opcode op) {
  return info(op).name.find('_') == std::string_view::npos ? info(op).name : info(op).xml;
}
// in, out, sc.
std::string_view text_name(model::Buffer buffer);

std::string to_text(const Program& program);
std::string to_text(const ClassProgram& program);
// One instruction as it stands in the text form, e.g. "rrcs in[3] -> out[3] x2 after (1:4)".
std::string to_text(const Program& program, const Instruction& instruction);
// Errors name the line of the text. `origin` is the file name used in them.
Result<Program> parse_text(std::string_view text, const std::string& origin = "<text>");
// The same, without making the program of all ranks from one that stands for them.
Result<ClassProgram> parse_classes(std::string_view text, const std::string& origin = "<text>");

}  // namespace gc3::ir
