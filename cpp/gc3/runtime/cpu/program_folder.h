// Which program serves a call, read from a folder that `gc3 table export` has written: an index and program files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"

namespace gc3::cpu {

// A call as the choice among programs sees it. `size`: bytes of the largest buffer of any rank.
struct CallShape {
  model::CollectiveKind kind = model::CollectiveKind::allreduce;
  std::uint32_t ranks = 0;
  std::uint64_t size = 0;
  bool in_place = false;
  std::uint32_t root = 0;
};

// Calls that a program serves, and the FIFOs to run it with.
struct ProgramEntry {
  CallShape shape;                   // `size` is the first one
  std::optional<std::uint64_t> end;  // the first size that is too large
  std::uint32_t slots = 0;           // 0: the engine's choice
  std::uint64_t slot_bytes = 0;
  std::string path;
  std::string source;  // what named it

  bool serves(const CallShape& call) const { return misfit(call).empty(); }
  // Why it does not serve a call; empty: it does.
  std::string misfit(const CallShape& call) const;
};

// The entries in the order of the table. An empty path gives none.
Result<std::vector<ProgramEntry>> read_program_folder(const std::string& folder);

}  // namespace gc3::cpu
