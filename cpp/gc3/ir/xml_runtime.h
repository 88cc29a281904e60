// What a runtime executes for an MSCCL XML file, which can differ from the meaning of the steps. The rules come from
// the sources of their parsers and interpreters: microsoft/msccl 2.12.12 (src/graph/topo.cc,
// src/collectives/device/msccl_interpreter.h), the Azure executor and RCCL 2.21 (src/misc/msccl/msccl_parser.cc,
// src/device/msccl_kernel_impl.h). All of them share these rules.
#pragma once

#include "gc3/base/result.h"
#include "gc3/ir/xml_document.h"
#include "gc3/ir/xml_targets.h"
#include "gc3/ir/xml_tokens.h"

namespace gc3::ir {

// Replaces the steps by others whose meaning in the format is what the runtime executes:
// - Reductions in a row into one place from one buffer become one operation, which takes the count of the last.
// - Dependencies, also those of nops, go to the next operation. It is an error if that operation has none of its own.
// - A wait names a number. An operation counts 1, and more for further reductions and dependencies that it holds; the
//   wait ends with the first operation that publishes the number or a later one.
// gc3's own attributes do not count. `tokens` places the messages.
Status rewrite_as_executed(XmlDocument& doc, const XmlTokens& tokens, const XmlTarget& target);

}  // namespace gc3::ir
