// Copies, on the devices, of buffers that lie in the memory of the host.
#pragma once

#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

class HostBuffers {
 public:
  // In place, input and output of a rank lie in one allocation as they do on the host. `devices`: by rank.
  static Result<HostBuffers> create(const interp::Plan& plan, const interp::Call& host,
                                    const std::vector<std::shared_ptr<Device>>& devices);

  // The call on the copies; valid while this lives and does not move.
  interp::Call call() const { return {inputs_, outputs_, host_.count, host_.type, host_.op, host_.factors}; }
  Status copy_in() const;
  Status copy_out() const;

 private:
  struct Rank {
    Memory input;  // or, where the output lies within it, both
    Memory output;
  };
  HostBuffers(const interp::Plan& plan, const interp::Call& host) : plan_(&plan), host_(host) {}

  const interp::Plan* plan_;
  interp::Call host_;
  std::vector<Rank> ranks_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace gc3::cuda
