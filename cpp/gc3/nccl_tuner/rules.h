// What NCCL shall choose: rules in the CSV form of the example plugin in NCCL's sources
// (plugins/tuner/example/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::nccl_tuner {

// -1 in a number after `protocol`: any; of channels: NCCL's own number.
struct Rule {
  int function = 0;  // ncclFunc_t
  std::uint64_t least = 0;
  std::uint64_t most = 0;  // bytes, included
  int algorithm = 0;       // NCCL_ALGO_*
  int protocol = 0;        // NCCL_PROTO_*
  int channels = -1;
  int nodes = -1;
  int ranks = -1;
  int operations = -1;  // in a group
  int registered = -1;  // 1: only registered buffers; 0: only others
};

// A call as NCCL describes it.
struct Call {
  int function = 0;
  std::uint64_t bytes = 0;
  int nodes = 0;
  int ranks = 0;
  int operations = 0;
  int registered = 0;
};

// `path`: for messages.
Result<std::vector<Rule>> parse_rules(std::string_view text, const std::string& path);
Result<std::vector<Rule>> read_rules(const std::string& path);

// Whether a rule is for the call.
bool serves(const Rule& rule, const Call& call);

}  // namespace gc3::nccl_tuner
