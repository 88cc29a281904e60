// One-sided programs of the caller, and the memory that they need.
#include <utility>

#include "gc3/comm/communicator.h"
#include "gc3/runtime/direct/process_job.h"

namespace gc3::comm {

Result<std::shared_ptr<direct::ProcessJob>> Communicator::prepare(const ir::direct::Program& program, Ready messages) {
  GC3_ASSIGN(std::shared_ptr<direct::ProcessJob> made,
             direct::ProcessJob::create(program, *core_, std::move(messages)));
  const std::lock_guard lock(mutex_);
  for (const auto& known : one_sided_) {
    if (known->is_same(*made)) return known;
  }
  return one_sided_.emplace_back(std::move(made));
}

std::string Communicator::describe_one_sided(CollectiveKind kind) const {
  std::string text;
  for (const auto& job : one_sided_) {
    if (job->plan().collective.kind() == kind) text += (text.empty() ? "" : "; ") + job->explain();
  }
  return text;
}

Result<bool> Communicator::is_registered(const void* address) const {
  GC3_CHECK(usable());
  const auto lock = core_->members()->look();
  return core_->group().job()->offset_of(address) != core::Window::kNowhere;
}

}  // namespace gc3::comm
