// A selection table as compiled programs in a folder, which `gc3 table export` has written: an index and program files.
#pragma once

#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/select/row.h"

namespace gc3::select {

// The rows in the order of the table. An empty path gives none.
Result<std::vector<Row>> read_program_folder(const std::string& folder);

}  // namespace gc3::select
