// Calls and groups of calls: what of them programs serve, and what NCCL.
#pragma once

#include "gc3/nccl/call.h"
#include "gc3/nccl/communicator.h"

namespace gc3::nccl {

// Each returns NCCL's answer, or that to the failure of a program.
int submit(const Call& call);
int group_start();
int group_end();
int group_simulate_end(void* info);
// NCCL allows this as soon as the call that uses the operation has returned, thus also before the end of a group, which
// such calls wait for here.
int destroy_op(int op, Comm comm);
// A program given by the caller; in a group it must be the only call of its communicator.
int run_program(const Call& call, const std::shared_ptr<Communicator>& communicator, Prepared& program);

// The answer to an error of the overlay, which becomes the text of the last error.
int answer_to(const Diagnostic& problem);

}  // namespace gc3::nccl
