// A selection table as compiled programs in a folder, written by `gc3 table export`: an index and program files.
#pragma once

#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/select/row.h"

namespace gc3::select {

// The rows in the order of the table; none for an empty path.
Result<std::vector<Row>> read_program_folder(const std::string& folder);

}  // namespace gc3::select
