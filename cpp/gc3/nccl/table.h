// The programs that are given to the overlay: the rows of a folder of `gc3 table export`, or one program.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/select/row.h"

namespace gc3::nccl {

struct Table {
  std::vector<select::Row> rows;           // in the order in which they are tried
  Digest hash{};                           // of all that the choice and the programs depend on
  std::optional<Diagnostic> problem = {};  // why it could not be read
  // Whether the user has given one.
  bool given() const { return problem || hash != Digest{}; }
};

// `path`: a folder, or the file of a program, which then serves all calls of its collective. `after`: rows that are
// tried after these; may be null.
Result<std::shared_ptr<const Table>> load_table(const std::string& path, const Table* after = nullptr);

}  // namespace gc3::nccl
