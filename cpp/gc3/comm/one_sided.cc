// One-sided programs of the caller and of the table, and the memory that they need.
#include <utility>

#include "gc3/comm/communicator.h"
#include "gc3/runtime/direct/process_job.h"
#include "gc3/verify/direct/verify.h"

namespace gc3::comm {

Result<std::shared_ptr<direct::ProcessJob>> Communicator::prepare(const ir::direct::Program& program, Ready messages) {
  GC3_ASSIGN(auto made, direct::ProcessJob::create(program, *core_, std::move(messages)));
  const std::lock_guard lock(mutex_);
  return keep(std::move(made));
}

const std::shared_ptr<direct::ProcessJob>& Communicator::keep(std::shared_ptr<direct::ProcessJob> made) {
  for (const auto& known : one_sided_) {
    if (known->is_same(*made)) return known;
  }
  return one_sided_.emplace_back(std::move(made));
}

Result<direct::ProcessJob*> Communicator::lowered(const select::Recipe& recipe, const ir::Program& program,
                                                  const Ready& messages) {
  if (!recipe.lower || placement().several()) return static_cast<direct::ProcessJob*>(nullptr);
  GC3_ASSIGN(const ir::direct::Program made, recipe.lower(program));
  const verify::Report report = verify::direct::verify(made);
  if (!report.ok()) return report.diagnostics.front();
  GC3_ASSIGN(auto job, direct::ProcessJob::create(made, *core_, messages));
  return keep(std::move(job)).get();
}

Result<Communicator::RankEngine*> Communicator::engine(const select::CallShape& shape) {
  GC3_ASSIGN(const Found found, find(shape, false));
  return found.one_sided != nullptr ? static_cast<RankEngine*>(found.one_sided) : found.program;
}

Status Communicator::serve(const Found& found, ProcessProgram& program, const cpu::RankCall& call,
                           const cpu::Membership::Turn& turn, const Interrupted& interrupted) {
  return found.one_sided != nullptr ? found.one_sided->run(turn, call, interrupted)
                                    : program.run(turn, call, interrupted);
}

std::string Communicator::describe_one_sided(CollectiveKind kind) const {
  std::string text;
  for (const auto& job : one_sided_) {
    if (job->plan().collective.kind() == kind) text += (text.empty() ? "" : "; ") + job->explain();
  }
  return text;
}

Result<std::shared_ptr<std::uint8_t>> Communicator::allocate(std::uint64_t bytes) {
  GC3_CHECK(usable());
  return core_->allocate(bytes);
}

Result<bool> Communicator::is_registered(const void* address) const {
  GC3_CHECK(usable());
  const auto lock = core_->members()->look();
  return core_->group().job()->offset_of(address) != core::Window::kNowhere;
}

}  // namespace gc3::comm
