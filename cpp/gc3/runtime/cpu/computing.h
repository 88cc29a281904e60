// The functions that are bound to a program's compute operations, and what they do in a run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/guarded.h"
#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/v_run.h"

namespace gc3::cpu {

// One application: an entry of Compute::applications, and where its operands are, those that it reads before the
// others.
struct Computation {
  std::uint32_t rank = 0;
  std::uint32_t application = 0;
  std::span<const interp::Extent> operands;
};

// Whether a program that computes can run with this reduction.
inline Status check_computing(const model::Collective& collective, model::DataType type, model::ReduceOp op) {
  const auto& properties = collective.custom_data()->properties;
  for (std::size_t k = 0; k < properties.size() && op != model::ReduceOp::sum; ++k) {
    if (properties[k].linear == 0) continue;
    return Diagnostic(ErrorCode::NotWithCompute, "the reduction " + std::string(model::name_of(op)) + ": '" +
                                                     collective.custom_data()->operations[k] +
                                                     "' is declared linear, which is about sums");
  }
  if (op != model::ReduceOp::avg && op != model::ReduceOp::premulsum) return interp::check_op(type, op);
  return Diagnostic(ErrorCode::NotWithCompute, "the reduction " + std::string(model::name_of(op)) +
                                                   ", which multiplies results: its operations would not know");
}

class Computing {
 public:
  using Function = std::function<Status(const Computation&)>;

  // Called by the thread that executes the step. False: it has failed, and the run ends.
  bool apply(const Computation& computation) {
    running_.fetch_add(1, std::memory_order_relaxed);  // relaxed, as below: only a watch of time-outs reads it
    Status status = guarded([&] { return function_(computation); });
    running_.fetch_sub(1, std::memory_order_relaxed);
    if (status.ok()) return true;
    {
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::move(status.error());  // the first one
    }
    failed_();
    return false;
  }

  // Before a run. `failed`: called when a function has failed.
  void begin(Function function, std::function<void()> failed) {
    function_ = std::move(function);
    failed_ = std::move(failed);
    problem_.reset();
  }
  // After a run: its functions may be gone.
  void end() { function_ = nullptr; }

  // Whether some thread computes now: such a run makes progress, however long that takes.
  bool runs() const { return running_.load(std::memory_order_relaxed) != 0; }
  const std::optional<Diagnostic>& problem() const { return problem_; }

 private:
  Function function_;
  std::function<void()> failed_;
  std::mutex mutex_;  // of problem_
  std::optional<Diagnostic> problem_;
  std::atomic<std::uint32_t> running_{0};
};

}  // namespace gc3::cpu
