#include "gc3/runtime/cuda/launcher.h"

#include <cmath>
#include <sstream>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/interp/waiting_report.h"

namespace gc3::cuda {

Result<std::unique_ptr<Launcher>> Launcher::create(const ir::Program& program, const Options& options) {
  if (!(options.timeout_s > 0) || !std::isfinite(options.timeout_s)) {
    return Diagnostic(ErrorCode::BadOption, "a timeout is a positive number of seconds");
  }
  GC3_ASSIGN(interp::Plan plan, interp::Plan::create(program));
  std::unique_ptr<Launcher> made(new Launcher(std::move(plan)));
  made->timeout_s_ = options.timeout_s;
  GC3_ASSIGN(made->geometry_, choose_geometry(made->plan_, options.slots, options.slot_bytes));
  GC3_ASSIGN(made->layout_, ArenaLayout::create(made->plan_, made->geometry_, options.hosts));
  return made;
}

Launcher::~Launcher() {
  // Memory must not be freed while a kernel uses it.
  if (busy()) stop();
  settle();
}

Status Launcher::add(const std::shared_ptr<Device>& device, std::vector<std::uint32_t> ranks, std::uint8_t* arenas) {
  if (parts_.empty()) {
    GC3_ASSIGN(watch_, Watch::create(device, plan_.threadblocks.size()));
  }
  ranks_ += ranks.size();
  GC3_ASSIGN(std::unique_ptr<LocalRanks> part, LocalRanks::create(plan_, layout_, device, std::move(ranks), arenas));
  parts_.push_back(std::move(part));
  GC3_ASSIGN(Event event, Event::create(device, false));
  done_.push_back(std::move(event));
  last_stream_.push_back(0);
  launched_.push_back(false);
  return {};
}

Status Launcher::start(const std::vector<std::vector<std::uint8_t*>>& arenas, bool system,
                       std::map<std::uint32_t, PinnedFifo> pinned) {
  layout_.pinned = std::move(pinned);
  for (std::size_t p = 0; p < parts_.size(); ++p) GC3_CHECK(parts_[p]->connect(arenas[p], system));
  return {};
}

Status Launcher::enqueue(const interp::Call& call, std::uint64_t tag, const std::vector<CUstream>& streams) {
  GC3_CHECK(check());
  GC3_ASSIGN(interp::Run run, make_run(plan_, geometry_, call.count, model::size_of(call.type)));
  run.tag = tag;
  std::vector<Kernels> kernels;
  for (const auto& part : parts_) {  // all parts are known to fit before anything is launched
    GC3_ASSIGN(const Kernels found, part->device().kernels(plan_.protocol, call.type));
    GC3_CHECK(part->check_resident(found));
    if (parts_.size() > 1) GC3_CHECK(part->reserve(call, run));
    kernels.push_back(found);
  }
  last_run_ = run;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Current current(parts_[p]->device());
    const Driver& driver = parts_[p]->device().driver();
    const CUstream stream = streams[p];
    int capturing = 0;
    GC3_CHECK(driver.check(driver->is_capturing(stream, &capturing), "the stream"));
    // Only one launch at a time may use the FIFOs. Within a stream that holds; for graphs, the user must ensure the
    // order.
    unsigned long long id = 0;
    if (capturing == 0) GC3_CHECK(driver.check(driver->stream_id(stream, &id), "the stream"));
    captured_ = captured_ || capturing != 0;
    if (capturing == 0 && launched_[p] && last_stream_[p] != id) {
      GC3_CHECK(driver.check(driver->wait_event(stream, done_[p].get(), 0), "the order of two streams"));
    }
    const Status status =
        parts_[p]->enqueue(call, run, kernels[p], watch_, static_cast<std::uint64_t>(timeout_s_ * 1e9), stream);
    if (!status.ok()) {
      stop();  // the ranks that were launched already wait for no other
      GC3_CHECK(start_afresh());
      return status;
    }
    if (capturing != 0) continue;
    GC3_CHECK(driver.check(driver->record_event(done_[p].get(), stream), "the end of a launch"));
    last_stream_[p] = id;
    launched_[p] = true;
  }
  return {};
}

Status Launcher::reserve(const interp::Call& call) {
  GC3_ASSIGN(const interp::Run run, make_run(plan_, geometry_, call.count, model::size_of(call.type)));
  for (const auto& part : parts_) GC3_CHECK(part->reserve(call, run));
  return {};
}

bool Launcher::busy() const {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!launched_[p]) continue;
    const Current current(parts_[p]->device());
    const CaptureRelaxed relaxed(parts_[p]->device().driver());
    if (parts_[p]->device().driver()->query_event(done_[p].get()) == kCudaNotReady) return true;
  }
  return false;
}

void Launcher::settle() const {
  while (busy()) std::this_thread::yield();  // all running launches see the word soon
}

Status Launcher::failure() const {
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!launched_[p]) continue;
    const Device& device = parts_[p]->device();
    const Current current(device);
    const CaptureRelaxed relaxed(device.driver());
    const int result = device.driver()->query_event(done_[p].get());
    if (result != kCudaNotReady) GC3_CHECK(device.driver().check(result, "a launch on " + device.describe()));
  }
  return {};
}

Status Launcher::check() {
  if (parts_.empty()) return {};
  const Stop why = watch_.stop();
  if (why == Stop::no) return failure();
  GC3_CHECK(wait_for_end());  // all have recorded their positions
  const Diagnostic problem = explain(why);
  GC3_CHECK(start_afresh());
  return problem;
}

Status Launcher::wait_for_end() const {
  settle();
  for (const auto& part : parts_) {
    if (!captured_) break;
    // A graph may be running on a stream that is not known here. All of it ends soon, but only the device knows when.
    const Current current(part->device());
    const CaptureRelaxed relaxed(part->device().driver());
    GC3_CHECK(part->device().driver().check(part->device().driver()->synchronize_context(), "the end of a graph"));
  }
  return {};
}

Status Launcher::start_afresh() {
  GC3_CHECK(wait_for_end());
  if (ranks_ != plan_.collective.ranks()) return {};
  for (const auto& part : parts_) GC3_CHECK(part->reset());
  watch_.reset();
  return {};
}

Diagnostic Launcher::explain(Stop why) const {
  if (why == Stop::asked) return Diagnostic(ErrorCode::Aborted, "stopped by the caller");
  std::ostringstream text;
  text << "a threadblock has waited for " << timeout_s_ << " s on the device";
  Diagnostic problem(ErrorCode::Timeout, text.str());
  std::vector<interp::Task> tasks(plan_.threadblocks.size());
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const Stand& stand = watch_.stands()[i];
    if (stand.stopped == 0) continue;
    tasks[i] = plan_.task(i, nullptr, nullptr);
    tasks[i].tile = stand.tile;
    tasks[i].step = stand.step;
    tasks[i].wait = stand.wait;
    tasks[i].waiting = static_cast<interp::Waiting>(stand.waiting);
  }
  interp::report_waiting(plan_, tasks, last_run_, problem);
  return problem;
}

}  // namespace gc3::cuda
