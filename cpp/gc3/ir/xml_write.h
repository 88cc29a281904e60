// Writing MSCCL XML: one element per line, attributes in the order and notation that the hand-written parsers of the
// runtimes ask for. See xml_read.h for the dialects.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/ir/xml_targets.h"

namespace gc3::ir {

struct XmlWriteOptions {
  XmlDialect dialect = XmlDialect::msccl;
  const XmlTarget* target = nullptr;  // the runtime whose limits must hold; nullptr: none
  std::uint64_t min_bytes = 0;        // sizes of the whole buffer to use the program for; max_bytes 0: no limit
  std::uint64_t max_bytes = 0;
};

// read_xml(write_xml(p)) == p, for a program without nops whose collective the dialect can name and in which no step
// signals that none waits for.
Result<std::string> write_xml(const Program& program, const XmlWriteOptions& options);

}  // namespace gc3::ir
