// Reading MSCCL XML, the exchange format of existing runtimes, in both of its dialects:
//   msccl  written by msccl-tools for microsoft/msccl ("reduce_scatter", "custom"; no outofplace)
//   rccl   read by RCCL and the Azure executor ("reducescatter", outofplace, minBytes, maxBytes)
// A file is read as the runtimes execute it: for rrc, rrs and rrcs the source is the local
// operand; nops are the further dependencies of the step after them; a wait for a step that publishes nothing ends with
// the next step of its threadblock that does. Attributes root, slots, instances and split are gc3's own and optional.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"
#include "gc3/ir/xml_targets.h"

namespace gc3::ir {

struct XmlReadOptions {
  // The collective, for files whose coll does not name one ("custom"): the whole description, or a name to read in
  // place of coll.
  std::optional<model::Collective> collective{};
  std::string coll{};
  // Which use to read, for files that allow both; none: out of place if it is allowed.
  std::optional<bool> in_place{};
  // The runtime that is to execute the file: what that runtime refuses is an error, and the program is what it
  // executes, without gc3's own attributes. nullptr: the meaning that the format defines.
  const XmlTarget* runtime = nullptr;
  bool keep_classes = false;  // not to make the program of all ranks of one, in another form, that stands for them
};

// A program read from a file, and the calls that the file allows it for.
struct ProgramFile {
  Program program;
  // min_bytes and max_bytes are of the whole buffer; max_bytes 0: no limit given.
  bool in_place = false;
  bool out_of_place = true;
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::optional<ClassProgram> classes = {};  // instead of `program`, if it was asked for

  // Whichever of both it has; once.
  ClassProgram taken() { return classes ? std::move(*classes) : as_read(std::move(program)); }
};

// FIFO slots per connection in the runtimes that read the format, in instructions.
std::uint32_t xml_runtime_slots(model::Protocol protocol);

// Accepts any text: one that is not MSCCL XML gives one Diagnostic at a line of `origin`, in memory bounded by the size
// of the text. The program names only chunks, ranks and threadblocks that exist; `verify` checks the rest.
Result<ProgramFile> read_xml(std::string_view text, const std::string& origin = "<xml>",
                             const XmlReadOptions& options = {});

}  // namespace gc3::ir
