// Device copies of buffers in host memory.
#pragma once

#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

class HostBuffers {
 public:
  // In place, input and output of a rank are in one allocation, as on the host. `devices`: the device of each rank.
  static Result<HostBuffers> create(const interp::Plan& plan, const interp::Call& host,
                                    const std::vector<std::shared_ptr<Device>>& devices);

  // The call on the copies; valid while this object exists and is not moved.
  interp::Call call() const { return {inputs_, outputs_, host_.count, host_.type, host_.op, host_.factors}; }
  Status copy_in() const;
  Status copy_out() const;

 private:
  struct Rank {
    Memory input;  // contains the output as well if the output lies within the input
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
