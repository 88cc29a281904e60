#include "gc3/runtime/cpu/recording.h"

#include <algorithm>

namespace gc3::cpu {
namespace {

template <class Protocol, class Base>
interp::Outcome advance(Base& block, const interp::Run& run, interp::Task& task, std::uint32_t budget) {
  return interp::advance<Protocol>(static_cast<RecordingBlock<Base>&>(block), run, task, budget);
}

template <class Simple, class Base>
Advance<Base> advance_for(model::Protocol protocol) {
  switch (protocol) {
    case model::Protocol::Simple:
      return advance<Simple, Base>;
    case model::Protocol::LL:
      return advance<interp::LL, Base>;
    case model::Protocol::LL128:
      return advance<interp::LL128, Base>;
  }
  return nullptr;
}

}  // namespace

Advance<CpuBlock> recording_advance(model::Protocol protocol) {
  return advance_for<interp::Simple, CpuBlock>(protocol);
}

Advance<LendingBlock> recording_advance_lending(model::Protocol protocol) {
  return advance_for<Lending, LendingBlock>(protocol);
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
