// A selection table as compiled programs in a folder, as `gc3 table export` makes it: an index and program files.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/select/row.h"

namespace gc3::select {

// The rows in the order of the table; none for an empty path.
Result<std::vector<Row>> read_program_folder(const std::string& folder);

// The text of such an index: rows, each for a number of ranks, a mode, a root, and the name of a file of the folder.
std::string program_folder_index(
    const std::vector<std::tuple<Row, std::uint32_t, bool, std::uint32_t, std::string>>& lines);

}  // namespace gc3::select
