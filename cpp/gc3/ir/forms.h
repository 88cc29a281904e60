// Reads a program in any form: image, text or MSCCL XML.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/ir/xml_read.h"

namespace gc3::ir {

// Whether the bytes begin as XML does.
bool is_xml(std::span<const std::byte> bytes);
// Tells the forms apart by their first bytes. `origin` is the name that errors use; the options are for XML. An image
// or a text does not restrict its use: it serves its own mode and any size.
Result<ProgramFile> read_any(std::span<const std::byte> bytes, const std::string& origin,
                             const XmlReadOptions& options = {});
Result<ProgramFile> load_any(const std::string& path, const XmlReadOptions& options = {});

}  // namespace gc3::ir
