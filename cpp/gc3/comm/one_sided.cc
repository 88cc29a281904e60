// One-sided programs of the caller and of the table, and the memory that they need.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "gc3/comm/communicator.h"
#include "gc3/runtime/direct/process_job.h"
#include "gc3/verify/direct/verify.h"

namespace gc3::comm {

using select::CallShape;

Result<std::shared_ptr<direct::ProcessJob>> Communicator::prepare(const ir::direct::Program& program, Ready messages) {
  GC3_CHECK(usable());
  GC3_ASSIGN(auto made, direct::ProcessJob::create(program, *core_, std::move(messages)));
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  return keep(std::move(made));
}

const std::shared_ptr<direct::ProcessJob>& Communicator::keep(std::shared_ptr<direct::ProcessJob> made) {
  for (const auto& known : one_sided_) {
    if (known->is_same(*made)) return known;
  }
  return one_sided_.emplace_back(std::move(made));
}

Result<direct::ProcessJob*> Communicator::lowered(const Recipe& by, Prepared& messages) {
  direct::ProcessJob*& known = messages.one_sided[by.recipe];
  if (known != nullptr) return known;
  GC3_ASSIGN(ir::ClassProgram read, by.make());
  GC3_ASSIGN(const ir::Program program, ir::of_all_ranks(std::move(read)));
  GC3_ASSIGN(const ir::direct::Program made, by.recipe->lower(program));
  const verify::Report report = verify::direct::verify(made);
  if (!report.ok()) return report.diagnostics.front();
  GC3_ASSIGN(auto job, direct::ProcessJob::create(made, *core_, messages.program));
  return known = keep(std::move(job)).get();
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
  std::set<std::string> all;  // one-sided forms of several rows may say the same
  for (const auto& job : one_sided_) {
    if (job->plan().collective.kind() == kind) all.insert(job->explain());
  }
  std::string text;
  for (const std::string& each : all) text += (text.empty() ? "" : "; ") + each;
  return text;
}

Result<std::shared_ptr<std::uint8_t>> Communicator::allocate(std::uint64_t bytes) const {
  GC3_CHECK(usable());
  return core_->allocate(bytes);
}

Result<std::shared_ptr<std::uint8_t>> Communicator::new_output(CollectiveKind kind, std::uint32_t root,
                                                               std::uint64_t input_bytes, std::uint32_t blocks) const {
  GC3_CHECK(usable());
  GC3_ASSIGN(const Signature* const asks, signature(kind, root));
  const std::uint64_t block = input_bytes / std::max<std::uint64_t>(asks->input_blocks, 1);
  const CallShape shape = here({.kind = kind, .size = block * asks->largest_blocks, .root = root});
  bool one_sided = false;
  {
    std::unique_lock<std::mutex> lock;
    GC3_CHECK(lock_.take(lock));
    const select::Row* const row = selection_.find(shape);
    one_sided = row != nullptr && row->recipe->lower && !placement().several();
  }
  return one_sided ? allocate(block * blocks) : std::shared_ptr<std::uint8_t>();
}

bool Communicator::reaches(const void* address) const {
  const std::shared_ptr<core::Job> job = job_.lock();
  return job != nullptr && job->offset_of(address) != core::Window::kNowhere;
}

Result<bool> Communicator::is_registered(const void* address) const {
  GC3_CHECK(usable());
  return reaches(address);
}

}  // namespace gc3::comm
