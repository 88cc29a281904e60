#include "gc3/runtime/cuda/host_buffers.h"

#include <string>
#include <utility>

namespace gc3::cuda {

Result<HostBuffers> HostBuffers::create(const interp::Plan& plan, const interp::Call& host,
                                        const std::vector<std::shared_ptr<Device>>& devices) {
  HostBuffers made(plan, host);
  const std::size_t block = host.count * model::size_of(host.type);
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    const interp::PlanRank& rank = plan.ranks[r];
    const std::string whose = " of rank " + std::to_string(r);
    Rank buffers;
    if (!rank.input_aliased) {
      GC3_ASSIGN(buffers.input, Memory::on(devices[r], rank.input_blocks * block, "the input" + whose));
    }
    if (!rank.output_aliased) {
      GC3_ASSIGN(buffers.output, Memory::on(devices[r], rank.output_blocks * block, "the output" + whose));
    }
    const std::size_t offset = rank.alias_block * block;
    made.inputs_.push_back(rank.input_aliased ? buffers.output.data() + offset : buffers.input.data());
    made.outputs_.push_back(rank.output_aliased ? buffers.input.data() + offset : buffers.output.data());
    made.ranks_.push_back(std::move(buffers));
  }
  return made;
}

Status HostBuffers::copy_in() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    // Outputs are copied as well, because a program may leave parts of them unchanged.
    if (ranks_[r].input.size() != 0) GC3_CHECK(ranks_[r].input.write(host_.inputs[r], 0, ranks_[r].input.size()));
    if (ranks_[r].output.size() != 0) GC3_CHECK(ranks_[r].output.write(host_.outputs[r], 0, ranks_[r].output.size()));
  }
  return {};
}

Status HostBuffers::copy_out() const {
  const std::size_t block = host_.count * model::size_of(host_.type);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const interp::PlanRank& rank = plan_->ranks[r];
    if (rank.output_aliased) {
      const std::size_t offset = rank.alias_block * block;
      GC3_CHECK(ranks_[r].input.read(host_.outputs[r], offset, rank.output_blocks * block));
    } else if (ranks_[r].output.size() != 0) {
      GC3_CHECK(ranks_[r].output.read(host_.outputs[r], 0, ranks_[r].output.size()));
    }
  }
  return {};
}

}  // namespace gc3::cuda
