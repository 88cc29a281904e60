#include "gc3/runtime/cpu/recording.h"

#include <algorithm>

namespace gc3::cpu {

Advance<CpuBlock> recording_advance(model::Protocol protocol) {
  return advance_for<RecordingBlock<CpuBlock>, interp::Simple, CpuBlock>(protocol);
}

Advance<LendingBlock> recording_advance_lending(model::Protocol protocol) {
  return advance_for<RecordingBlock<LendingBlock>, Lending, LendingBlock>(protocol);
}

Advance<NetworkBlock> recording_advance_network() {
  return advance_as<Lending, RecordingBlock<NetworkBlock>, NetworkBlock, interp::Run>;
}

Recorder::Recorder(std::span<const interp::Task> tasks, std::uint32_t worker, std::size_t most)
    : first_(tasks.data()), states_(tasks.size()), worker_(worker) {
  steps_.reserve(most);
}

void Recorder::begin(std::int64_t now) {
  std::ranges::fill(states_, State{now, 0, interp::Waiting::nothing, 0});
  steps_.clear();
  dropped_ = 0;
}

}  // namespace gc3::cpu
