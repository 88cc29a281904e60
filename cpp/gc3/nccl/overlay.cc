#include "gc3/nccl/overlay.h"

#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/knobs.h"
#include "gc3/nccl/report.h"

namespace gc3::nccl {
namespace {

Result<std::shared_ptr<cuda::Runtime>> open_runtime() {
  GC3_ASSIGN(const Knobs knobs, read_knobs());
  std::vector<std::string> compilers = {"libnvrtc.so.13", "libnvrtc.so.12"};
  if (!knobs.nvrtc.empty()) compilers = {knobs.nvrtc};
  return cuda::Runtime::open(knobs.cuda_driver, compilers);
}

// Whether a communicator can be asked for its ranks. NCCL refuses calls of one that is still being made, or has failed,
// and says so itself; the next call may be another matter.
bool complete(Comm comm) {
  int error = kSuccess;
  return Real::get().async_error == nullptr ||
         (ask("ncclCommGetAsyncError", Real::get().async_error, comm, &error) == kSuccess && error == kSuccess);
}

}  // namespace

Overlay& Overlay::get() {
  static Overlay* const overlay = new Overlay;  // never deleted: threads may call NCCL while the process ends
  return *overlay;
}

Overlay::Overlay() {
  const Result<Knobs> knobs = read_knobs();
  if (!knobs.ok()) {
    report_setup(knobs.error().str());
    return;
  }
  timeout_s_ = knobs.value().comm_timeout;
  exchanges_ = knobs.value().nccl_exchanges != 0;
  log_.open(knobs.value().nccl_log);
  // Other ranks may have programs, and wait for this one at their first call. It takes part, and all learn what it has.
  table_ = std::make_shared<const Table>();
  active_.store(true, std::memory_order_release);
  if (knobs.value().nccl_programs.empty()) return;
  if (const Status status = load(knobs.value().nccl_programs); !status.ok()) {
    report_setup("NCCL serves all calls: " + status.error().str());
  }
}

Status Overlay::load(const std::string& path) {
  Result<std::shared_ptr<const Table>> read = load_table(path);
  const std::unique_lock lock(mutex_);
  if (read.ok()) {
    report(path + ": " + std::to_string(read.value()->rows.size()) + " rows");
    table_ = std::move(read).value();
  } else if (table_ == nullptr || !table_->given()) {
    auto none = std::make_shared<Table>();
    none->problem = read.error();
    table_ = std::move(none);
  }
  active_.store(true, std::memory_order_release);
  return read.ok() ? Status() : Status(read.error());
}

std::shared_ptr<Communicator> Overlay::find(Comm comm) {
  if (!active()) return nullptr;
  const std::shared_lock lock(mutex_);
  const auto found = communicators_.find(comm);
  return found == communicators_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<Communicator>> Overlay::communicator(Comm comm) {
  std::shared_ptr<const Table> table;
  {
    const std::shared_lock lock(mutex_);
    const auto found = communicators_.find(comm);
    if (found != communicators_.end()) {
      Communicator& known = *found->second;
      const bool later = table_ != nullptr && table_->given() && !known.table()->given();
      if (later && !known.progress()->deferred()) known.replace(table_);
      return found->second;
    }
    table = table_;
  }
  if (table == nullptr || !complete(comm)) return std::shared_ptr<Communicator>();
  return made(comm, table);
}

Result<std::shared_ptr<Communicator>> Overlay::made(Comm comm, std::shared_ptr<const Table> table) {
  std::shared_ptr<cuda::Runtime> runtime;
  {
    const std::unique_lock lock(mutex_);
    const auto found = communicators_.find(comm);
    if (found != communicators_.end()) {
      found->second->replace(std::move(table));
      return found->second;
    }
    if (runtime_ == nullptr) {
      GC3_ASSIGN(runtime_, open_runtime());
    }
    runtime = runtime_;
  }
  GC3_ASSIGN(std::unique_ptr<Member> member, Member::of(comm, runtime));
  auto communicator = std::make_shared<Communicator>(std::move(member), std::move(table), timeout_s_);
  const std::unique_lock lock(mutex_);
  communicators_[comm] = communicator;
  active_.store(true, std::memory_order_release);
  return communicator;
}

std::shared_ptr<Communicator> Overlay::forget(Comm comm, const std::shared_ptr<Communicator>& only) {
  if (!active()) return nullptr;
  const std::unique_lock lock(mutex_);
  const auto found = communicators_.find(comm);
  if (found == communicators_.end() || (only != nullptr && found->second != only)) return nullptr;
  std::shared_ptr<Communicator> communicator = std::move(found->second);
  communicators_.erase(found);
  return communicator;
}

}  // namespace gc3::nccl
