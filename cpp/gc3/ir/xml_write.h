// Writes MSCCL XML: one element per line, with attributes in the order and notation that the hand-written parsers of
// the runtimes require. See xml_read.h for the dialects.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"
#include "gc3/ir/xml_targets.h"

namespace gc3::ir {

struct XmlWriteOptions {
  XmlDialect dialect = XmlDialect::msccl;
  const XmlTarget* target = nullptr;  // the runtime whose limits must hold; nullptr: none
  std::uint64_t min_bytes = 0;        // sizes of the whole buffer to use the program for; max_bytes 0: no limit
  std::uint64_t max_bytes = 0;
};

// read_xml(write_xml(p)) == p, if p has no nops, the dialect has a name for its collective, and some step waits for
// every step that signals.
Result<std::string> write_xml(const Program& program, const XmlWriteOptions& options);
// The same text as of all ranks, whose steps are never there at once.
Result<std::string> write_xml(const ClassProgram& program, const XmlWriteOptions& options);

}  // namespace gc3::ir
