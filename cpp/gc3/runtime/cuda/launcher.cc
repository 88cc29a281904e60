#include "gc3/runtime/cuda/launcher.h"

#include <cmath>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/interp/waiting_report.h"

namespace gc3::cuda {

Status Launcher::check_options(const Options& options) {
  if (options.timeout_s > 0 && std::isfinite(options.timeout_s)) return {};
  return Diagnostic(ErrorCode::BadOption, "a timeout is a positive number of seconds");
}

Result<std::unique_ptr<Launcher>> Launcher::create(const ir::direct::Program& program, const Options& options) {
  GC3_CHECK(check_options(options));
  GC3_ASSIGN(std::unique_ptr<OneSided> one_sided, OneSided::create(program));
  std::unique_ptr<Launcher> made(new Launcher(one_sided->plan()));
  made->timeout_s_ = options.timeout_s;
  made->layout_.bytes.resize(made->plan_.ranks.size(), one_sided->arena_bytes());
  made->one_sided_ = std::move(one_sided);
  return made;
}

Result<std::unique_ptr<Launcher>> Launcher::create(const ir::Program& program, const Options& options) {
  GC3_CHECK(check_options(options));
  GC3_ASSIGN(interp::Plan plan, interp::Plan::create(program));
  std::unique_ptr<Launcher> made(new Launcher(std::move(plan)));
  made->timeout_s_ = options.timeout_s;
  GC3_ASSIGN(made->geometry_, choose_geometry(made->plan_, options.slots, options.slot_bytes));
  GC3_ASSIGN(made->layout_, ArenaLayout::create(made->plan_, made->geometry_, options.hosts));
  GC3_CHECK(made->plan_copies(options));
  return made;
}

// The same on all ranks.
Status Launcher::plan_copies(const Options& options) {
  if (!plan_.copied) return {};
  if (!options.hosts.empty()) {
    why_not_ = "some ranks are on other hosts";
    return {};
  }
  GC3_CHECK(layout_.add_copy_fifos(plan_, options.slots, options.slot_bytes));
  std::optional<std::vector<LaneStep>> order = order_of_lanes(plan_, layout_.copies->geometry.slots);
  if (order.has_value()) {
    order_ = *std::move(order);
  } else {
    why_not_ = "a step of the program waits for ever";
  }
  return {};
}

Launcher::~Launcher() {
  // Memory must not be freed while a kernel uses it.
  if (busy()) stop();
  settle();
}

Status Launcher::add(const std::shared_ptr<Device>& device, std::vector<std::uint32_t> ranks, std::uint8_t* arenas) {
  if (parts_.empty()) {
    GC3_ASSIGN(watch_, Watch::create(device, one_sided_ ? one_sided_->threadblocks() : plan_.threadblocks.size()));
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

Status Launcher::start(const std::vector<std::vector<std::uint8_t*>>& arenas, bool system, bool copies,
                       std::map<std::uint32_t, PinnedFifo> pinned) {
  layout_.pinned = std::move(pinned);
  for (std::size_t p = 0; p < parts_.size(); ++p) GC3_CHECK(parts_[p]->connect(arenas[p], system));
  if (one_sided_) return one_sided_->start(parts_, arenas);
  if (order_.empty()) return {};
  if (!copies) {
    why_not_ = "not every device lets streams wait for values";
    return {};
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) GC3_CHECK(parts_[p]->add_lanes(arenas[p]));
  for (const LaneStep& step : order_) {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p]->lanes()->has(step.tb)) lane_steps_.push_back({p, step});
    }
  }
  return {};
}

Status Launcher::add_copies(std::uint64_t tiles, std::uint64_t& submitted) {
  // Of a lane. The queue of a stream holds some thousand operations, of which a step has about five. If it were full
  // before the guard is launched, the host would wait without a time limit.
  constexpr std::uint32_t kStepsAtOnce = 128;
  std::vector<std::uint32_t> steps(plan_.threadblocks.size());
  for (; submitted < tiles * lane_steps_.size(); ++submitted) {
    const Submitted& next = lane_steps_[submitted % lane_steps_.size()];
    if (++steps[next.step.tb] > kStepsAtOnce) break;
    const Current current(parts_[next.part]->device());
    GC3_CHECK(parts_[next.part]->lanes()->add(next.step, submitted / lane_steps_.size()));
  }
  return {};
}

Status Launcher::launch_copies(const interp::Call& call, const interp::Run& run, const std::vector<Kernels>& kernels,
                               const std::vector<CUstream>& streams) {
  std::vector<LocalRanks::Prepared> prepared(parts_.size());
  // `work(part, its number)`, for all parts that have something to do, with their contexts.
  const auto each = [&](const auto& work) -> Status {
    Status first;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p]->idle(run)) continue;
      const Current current(parts_[p]->device());
      Status status = work(*parts_[p], p);
      if (first.ok()) first = std::move(status);
    }
    return first;
  };
  GC3_CHECK(each([&](LocalRanks& part, std::size_t p) {
    return part.prepare(call, run, kernels[p], watch_, timeout_ns(), streams[p], prepared[p]);
  }));
  for (std::uint64_t submitted = 0; submitted < run.tiles * lane_steps_.size();) {
    Status status = each([&](LocalRanks& part, std::size_t p) {
      const Launch& launch = prepared[p].launch;
      return part.lanes()->begin({run, launch.buffers, call.count, launch.halt, launch.stands, launch.control,
                                  launch.timeout_ns, kernels[p].guard, streams[p]});
    });
    if (status.ok()) status = add_copies(run.tiles, submitted);
    if (!status.ok()) stop();  // of what the lanes have got so far, nobody may believe the end
    const Status ended = each([&](LocalRanks& part, std::size_t) { return part.lanes()->end(); });
    unguarded_ = unguarded_ || !ended.ok();
    GC3_CHECK(status);
    GC3_CHECK(ended);
  }
  return each([&](LocalRanks& part, std::size_t p) { return part.finish(call, prepared[p], kernels[p], streams[p]); });
}

Status Launcher::enqueue(const interp::Call& call, std::uint64_t tag, const std::vector<CUstream>& streams) {
  GC3_CHECK(check());
  bool copies = uses_copy_engines();
  std::vector<int> capturing(parts_.size());
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Current current(parts_[p]->device());
    const Driver& driver = parts_[p]->device().driver();
    GC3_CHECK(driver.check(driver->is_capturing(streams[p], &capturing[p]), "the stream"));
    copies = copies && capturing[p] == 0;
  }
  GC3_ASSIGN(const interp::Run run, run_of(call, tag, copies));
  std::vector<Kernels> kernels;
  for (const auto& part : parts_) {  // all parts are known to fit before anything is launched
    GC3_ASSIGN(const Kernels found, kernels_of(kernels.size(), call.type, copies));
    // An allocation that fails later would stop the calls that run.
    GC3_CHECK(part->reserve(call, run));
    kernels.push_back(found);
  }
  if (one_sided_) {
    GC3_CHECK(one_sided_->reserve(run, parts_));
    GC3_CHECK(one_sided_->check_access(call, run, parts_));
  }
  last_run_ = run;
  // What follows a part's launch: the event that tells its end.
  std::vector<unsigned long long> ids(parts_.size());
  const auto mark = [&](std::size_t p) -> Status {
    if (capturing[p] != 0) return {};
    const Driver& driver = parts_[p]->device().driver();
    GC3_CHECK(driver.check(driver->record_event(done_[p].get(), streams[p]), "the end of a launch"));
    last_stream_[p] = ids[p];
    launched_[p] = true;
    return {};
  };
  const auto failed = [&](const Status& status) -> Status {
    stop();  // the ranks that were launched already wait for no other
    GC3_CHECK(start_afresh());
    return status;
  };
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Current current(parts_[p]->device());
    const Driver& driver = parts_[p]->device().driver();
    // Only one launch at a time may use the FIFOs. Within a stream that holds; for graphs, the user must ensure the
    // order.
    if (capturing[p] == 0) GC3_CHECK(driver.check(driver->stream_id(streams[p], &ids[p]), "the stream"));
    captured_ = captured_ || capturing[p] != 0;
    if (capturing[p] == 0 && launched_[p] && last_stream_[p] != ids[p]) {
      GC3_CHECK(driver.check(driver->wait_event(streams[p], done_[p].get(), 0), "the order of two streams"));
    }
    if (copies || one_sided_) continue;
    const Status status = parts_[p]->enqueue(call, run, kernels[p], watch_, timeout_ns(), streams[p]);
    if (!status.ok()) return failed(status);
    GC3_CHECK(mark(p));
  }
  if (!copies && !one_sided_) return {};
  const Status status = copies ? launch_copies(call, run, kernels, streams)
                               : one_sided_->enqueue(call, run, parts_, kernels, watch_, timeout_ns(), streams);
  for (std::size_t p = 0; p < parts_.size(); ++p) {  // some of it may have been launched even if something has failed
    const Current current(parts_[p]->device());
    GC3_CHECK(mark(p));
  }
  return status.ok() ? status : failed(status);
}

Result<Kernels> Launcher::kernels_of(std::size_t part, model::DataType type, bool copies) const {
  const LocalRanks& ranks = *parts_[part];
  const std::optional<model::Protocol> protocol = one_sided_ ? std::nullopt : std::optional(plan_.protocol);
  GC3_ASSIGN(const Kernels found, ranks.device().kernels(protocol, type));
  if (one_sided_) {
    GC3_CHECK(one_sided_->check_resident(ranks, part, found));
  } else if (!copies) {
    GC3_CHECK(ranks.check_resident(found));
  }
  return found;
}

Status Launcher::load(model::DataType type) const {
  // Copy engines need no room; should a call be captured, it is checked then.
  for (std::size_t p = 0; p < parts_.size(); ++p) GC3_CHECK(kernels_of(p, type, uses_copy_engines()));
  return {};
}

Result<interp::Run> Launcher::run_of(const interp::Call& call, std::uint64_t tag, bool copies) const {
  interp::Run run;
  if (one_sided_) {
    GC3_ASSIGN(run, one_sided_->run_of(call));
  } else {
    const interp::FifoGeometry& fifos = copies ? layout_.copies->geometry : geometry_;
    GC3_ASSIGN(run, make_run(plan_, fifos, call.count, model::size_of(call.type)));
  }
  run.tag = tag;
  return run;
}

Status Launcher::reserve(const interp::Call& call) {
  GC3_ASSIGN(const interp::Run run, run_of(call, 0, false));
  for (const auto& part : parts_) GC3_CHECK(part->reserve(call, run));
  if (one_sided_) GC3_CHECK(one_sided_->reserve(run, parts_));
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
  while (busy()) {  // all running launches see the word soon
    for (const auto& part : parts_) {
      if (unguarded_ && !part->release_lanes(last_run_.tag).ok()) return;
    }
    std::this_thread::yield();
  }
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
  if (one_sided_) GC3_CHECK(one_sided_->reset());
  unguarded_ = false;
  watch_.reset();
  return {};
}

Diagnostic Launcher::explain(Stop why) const {
  if (why == Stop::asked) return Diagnostic(ErrorCode::Aborted, "stopped by the caller");
  if (why == Stop::differs) return one_sided_->differing(watch_, *parts_[0]);
  std::ostringstream text;
  text << "a threadblock has waited for " << timeout_s_ << " s on the device";
  Diagnostic problem(ErrorCode::Timeout, text.str());
  if (one_sided_) {
    one_sided_->report(watch_, problem);
    return problem;
  }
  std::vector<interp::Task> tasks(plan_.threadblocks.size());
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const Stand& stand = watch_.stands()[i];
    if (stand.stopped == 0) continue;
    tasks[i] = plan_.task(i, nullptr, nullptr);
    tasks[i].tile = stand.tile;
    tasks[i].step = stand.step;
    tasks[i].wait = stand.wait;
    tasks[i].waiting = static_cast<interp::Waiting>(stand.waiting & ~kOfStep);
    if ((stand.waiting & kOfStep) != 0) tasks[i].wait += tasks[i].steps[stand.step].wait_begin;
  }
  interp::report_waiting(plan_, tasks, last_run_, problem);
  return problem;
}

}  // namespace gc3::cuda
