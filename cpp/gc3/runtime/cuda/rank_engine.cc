#include "gc3/runtime/cuda/rank_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/mix64.h"
#include "gc3/base/random.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cuda {
namespace {

// The buffers of a call of one rank, in the form of those of all ranks.
class OwnBuffers {
 public:
  OwnBuffers(const interp::Plan& plan, std::uint32_t rank, const void* input, void* output, const model::Factor& factor)
      : inputs_(plan.ranks.size()), outputs_(plan.ranks.size()), factors_(plan.ranks.size()) {
    inputs_[rank] = input;
    outputs_[rank] = output;
    factors_[rank] = factor;
  }
  interp::Call call(std::uint64_t count, model::DataType type, model::ReduceOp op) const {
    return {inputs_, outputs_, count, type, op, factors_};
  }

 private:
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<model::Factor> factors_;
};

}  // namespace

Result<std::array<std::uint64_t, 2>> process_id() {
  static const auto drawn = [] {
    std::array<std::uint64_t, 1> word{};
    const Status status = draw_random(word);
    return status.ok() ? Result<std::uint64_t>(word[0]) : Result<std::uint64_t>(status.error());
  }();
  GC3_ASSIGN(const std::uint64_t word, drawn);
  return std::array<std::uint64_t, 2>{word, static_cast<std::uint64_t>(getpid())};
}

Result<OpenedArena> OpenedArena::open(const std::shared_ptr<Device>& device, const IpcHandle& handle) {
  const Current current(*device);
  const CaptureRelaxed relaxed(device->driver());
  CUdeviceptr base = 0;
  GC3_CHECK(device->driver().check(device->driver()->open_ipc_handle(&base, handle, kIpcLazyPeerAccess),
                                   "the memory of another process on " + device->describe()));
  OpenedArena arena;
  arena.device_ = device;
  arena.base_ = reinterpret_cast<std::uint8_t*>(base);
  return arena;
}

OpenedArena::~OpenedArena() {
  if (base_ == nullptr) return;
  const Current current(*device_);
  device_->driver()->close_ipc_handle(address(base_));
}

Result<std::unique_ptr<RankEngine>> RankEngine::create(const std::shared_ptr<Runtime>& runtime,
                                                       const ir::Program& program, std::uint32_t rank, int device,
                                                       const Options& options, const std::shared_ptr<Windows>& windows,
                                                       const std::shared_ptr<Proxy>& proxy) {
  Options placed = options;
  if (proxy != nullptr) {
    GC3_CHECK(proxy->check_ranks(program.collective.ranks()));
    placed.hosts = proxy->hosts();
  }
  GC3_ASSIGN(std::unique_ptr<Launcher> launcher, Launcher::create(program, placed));
  if (proxy != nullptr) GC3_CHECK(proxy->check(launcher->plan(), launcher->geometry()));
  return create(runtime, std::move(launcher), rank, device, windows, proxy);
}

Result<std::unique_ptr<RankEngine>> RankEngine::create(const std::shared_ptr<Runtime>& runtime,
                                                       const ir::direct::Program& program, std::uint32_t rank,
                                                       int device, const Options& options,
                                                       const std::shared_ptr<Windows>& windows,
                                                       const std::shared_ptr<Proxy>& proxy) {
  if (proxy != nullptr) {
    return Diagnostic(ErrorCode::BadOption, "the one-sided program '" + program.name +
                                                "' between devices of several hosts: its ranks must be on one host");
  }
  GC3_ASSIGN(std::unique_ptr<Launcher> launcher, Launcher::create(program, options));
  GC3_ASSIGN(std::unique_ptr<RankEngine> engine, create(runtime, std::move(launcher), rank, device, windows, nullptr));
  const Digest digest = sha256(ir::direct::to_text(program));
  std::memcpy(&engine->what_, digest.data(), sizeof engine->what_);
  return engine;
}

Result<std::unique_ptr<RankEngine>> RankEngine::create(const std::shared_ptr<Runtime>& runtime,
                                                       std::unique_ptr<Launcher> launcher, std::uint32_t rank,
                                                       int device, const std::shared_ptr<Windows>& windows,
                                                       const std::shared_ptr<Proxy>& proxy) {
  std::unique_ptr<RankEngine> engine(new RankEngine);
  engine->rank_ = rank;
  engine->runtime_ = runtime;
  engine->proxy_ = proxy;
  engine->windows_ = windows;
  engine->launcher_ = std::move(launcher);
  if (rank >= engine->plan().ranks.size()) {
    return Diagnostic(ErrorCode::RankOutOfRange, "rank " + std::to_string(rank) + " of a program for " +
                                                     std::to_string(engine->plan().ranks.size()));
  }
  GC3_ASSIGN(engine->device_, runtime->device(device));
  if (windows != nullptr) {
    std::uint64_t bytes = 0;  // the same on all ranks
    for (std::uint32_t r = 0; r < engine->plan().ranks.size(); ++r) {
      bytes = std::max(bytes, LocalRanks::arena_bytes(engine->launcher_->layout(), {r}));
    }
    GC3_ASSIGN(engine->window_, Window::allocate(windows, bytes));
  }
  GC3_CHECK(engine->launcher_->add(engine->device_, {rank}, engine->window_.data()));
  return engine;
}

RankEngine::~RankEngine() {
  if (proxy_ != nullptr && launcher_ != nullptr) proxy_->forget(*launcher_);
}

Result<ArenaHandle> RankEngine::handle() const {
  GC3_ASSIGN(ArenaHandle handle, handle_of(launcher_->parts()[0]->memory().data()));
  handle.what = what_;
  return handle;
}

Result<ArenaHandle> RankEngine::handle_of(const std::uint8_t* base) const {
  ArenaHandle handle;
  GC3_ASSIGN(handle.process, process_id());
  handle.base = address(base);
  handle.device = device_->ordinal();
  handle.stream_values = device_->has_stream_values() ? 1 : 0;
  if (windows_ != nullptr) return handle;
  const Current current(*device_);
  const CaptureRelaxed relaxed(device_->driver());
  GC3_CHECK(device_->driver().check(device_->driver()->get_ipc_handle(&handle.ipc, handle.base),
                                    "memory that other processes can use on " + device_->describe()));
  return handle;
}

Status RankEngine::check_handles(const std::vector<ArenaHandle>& handles, std::uint64_t what, const char* does) const {
  if (handles.size() != plan().ranks.size()) {
    return Diagnostic(ErrorCode::RankOutOfRange, std::to_string(handles.size()) + " handles for " +
                                                     std::to_string(plan().ranks.size()) + " ranks");
  }
  for (std::uint32_t r = 0; r < handles.size(); ++r) {
    if (handles[r].what == what) continue;
    return Diagnostic(ErrorCode::CallsDiffer,
                      "rank " + std::to_string(r) + does + " than rank " + std::to_string(rank_));
  }
  return {};
}

std::set<std::uint32_t> RankEngine::neighbours() const {
  std::set<std::uint32_t> found;
  const interp::PlanRank& own = plan().ranks[rank_];
  for (std::uint32_t t = own.first_tb; t < own.first_tb + own.tb_count; ++t) {
    const interp::PlanThreadblock& tb = plan().threadblocks[t];
    if (tb.send_connection != kNone) found.insert(static_cast<std::uint32_t>(tb.send_peer));
    if (tb.recv_connection != kNone) found.insert(static_cast<std::uint32_t>(tb.recv_peer));
  }
  // All ranks of a one-sided program tell each other which calls they make.
  for (std::uint32_t r = 0; launcher_->one_sided() != nullptr && r < plan().ranks.size(); ++r) {
    if (r != rank_) found.insert(r);
  }
  return found;
}

Status RankEngine::connect(const std::vector<ArenaHandle>& handles, const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(check_handles(handles, what_, " runs another program"));
  std::vector<std::uint8_t*> arenas(handles.size());
  arenas[rank_] = launcher_->parts()[0]->arena(rank_);
  if (window_.data() != nullptr) GC3_CHECK(window_.open());
  for (const std::uint32_t peer : neighbours()) {
    if (proxy_ != nullptr && proxy_->hosts()[peer] != proxy_->hosts()[rank_]) continue;
    GC3_ASSIGN(arenas[peer], reach(peer, handles[peer], window_));
    if (plan().protocol != model::Protocol::LL128) continue;
    GC3_ASSIGN(const int where, device_->driver().device_of(address(arenas[peer])));
    GC3_CHECK(device_->check_lines(plan().protocol, where));
  }
  std::map<std::uint32_t, PinnedFifo> pinned;
  if (proxy_ != nullptr) {
    GC3_ASSIGN(pinned, proxy_->open(device_, plan(), launcher_->geometry(), rank_, interrupted));
    proxy_->serve(*launcher_);
  }
  const bool copies = std::ranges::all_of(handles, [](const ArenaHandle& h) { return h.stream_values != 0; });
  return launcher_->start({arenas}, true, copies, std::move(pinned));
}

Result<std::uint8_t*> RankEngine::reach(std::uint32_t peer, const ArenaHandle& handle, const Window& window) {
  if (windows_ != nullptr) return window.of(peer);
  GC3_ASSIGN(const auto here, process_id());
  if (handle.process == here) {
    GC3_ASSIGN(const std::shared_ptr<Device> device, runtime_->device(handle.device));
    GC3_CHECK(device_->reach(*device));
    return reinterpret_cast<std::uint8_t*>(handle.base);
  }
  GC3_ASSIGN(OpenedArena arena, OpenedArena::open(device_, handle.ipc));
  peers_.push_back(std::move(arena));
  return peers_.back().data();
}

Status RankEngine::remember(Status status) {
  if (status.ok()) return status;
  failed_ = status.error();
  // A proxy stops the launches when it has lost another host.
  if (proxy_ != nullptr && status.error().code == ErrorCode::Aborted) failed_ = proxy_->problem().value_or(*failed_);
  if (failed_->code == ErrorCode::Timeout) {
    const auto& [count, type, op] = last_;
    const std::string what = std::to_string(count) + " " + std::string(name_of(type)) + " (" + std::string(name_of(op));
    failed_->note("the last call of rank " + std::to_string(rank_) + " is of blocks of " + what +
                  "): ranks whose calls differ wait for each other");
  }
  return *failed_;
}

Status RankEngine::enqueue(const void* input, void* output, std::uint64_t count, model::DataType type,
                           model::ReduceOp op, const model::Factor& factor, CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (failed_.has_value()) return *failed_;
  const OwnBuffers own(plan(), rank_, input, output, factor);
  const interp::Call call = own.call(count, type, op);
  GC3_CHECK(interp::check_rank(plan(), call, rank_));
  // Ranks with different calls do not accept each other's data, see interp/fifo.h, and those of one-sided programs tell
  // each other what they call: with which room, too, because a graph keeps that of its capture.
  const std::uint64_t what = count << 16U | static_cast<std::uint64_t>(type) << 8U | static_cast<std::uint64_t>(op);
  const OneSided* const one_sided = launcher_->one_sided();
  const std::uint64_t tag = one_sided != nullptr ? mix64(mix64(what) ^ one_sided->stride()) : mix64(what) & 0xffffU;
  last_ = {count, type, op};
  return remember(launcher_->enqueue(call, tag, {stream}));
}

Result<interp::Run> RankEngine::run_of(std::uint64_t count, model::DataType type) const {
  interp::Call call;
  call.count = count;
  call.type = type;
  return launcher_->run_of(call, 0, false);
}

Result<bool> RankEngine::lacks_room(std::uint64_t count, model::DataType type) {
  if (launcher_->one_sided() == nullptr) return false;
  GC3_ASSIGN(const interp::Run run, run_of(count, type));
  return launcher_->one_sided()->lacks_room(run);
}

Result<ArenaHandle> RankEngine::make_room(std::uint64_t count, model::DataType type) {
  const std::lock_guard lock(mutex_);
  GC3_ASSIGN(const interp::Run run, run_of(count, type));
  OneSided& program = *launcher_->one_sided();
  room_stride_ = program.next_stride(run);
  Room& room = rooms_[room_stride_];
  if (room.data() == nullptr) {
    GC3_ASSIGN(const std::uint64_t needed, program.room_bytes(rank_, room_stride_));  // on all ranks as much
    const std::uint64_t bytes = std::max(interp::round_up(needed, kArenaUnit), kArenaUnit);
    if (windows_ != nullptr) {
      GC3_ASSIGN(Window window, Window::allocate(windows_, bytes));
      GC3_CHECK(Memory::lent(device_, window.data(), bytes));  // zeroed
      room.window = std::move(window);
    } else {
      GC3_ASSIGN(room.memory, Memory::on(device_, bytes, "the room of a one-sided program"));
    }
  }
  GC3_ASSIGN(ArenaHandle handle, handle_of(room.data()));
  handle.what = mix64(what_ ^ room_stride_);
  handle.has_switch = windows_ != nullptr && windows_->has_switch() ? 1 : 0;
  return handle;
}

Status RankEngine::share(const std::vector<ArenaHandle>& rooms) {
  const std::lock_guard lock(mutex_);
  GC3_CHECK(check_handles(rooms, mix64(what_ ^ room_stride_), " makes a call of another size"));
  Room& room = rooms_[room_stride_];
  if (windows_ != nullptr && !room.opened) GC3_CHECK(room.window.open());
  room.opened = true;
  room.all.resize(rooms.size());
  room.all[rank_] = room.data();
  for (std::uint32_t r = 0; r < rooms.size(); ++r) {
    if (room.all[r] != nullptr) continue;  // an earlier attempt has got that far
    GC3_ASSIGN(room.all[r], reach(r, rooms[r], room.window));
  }
  // All ranks or none: what a switch adds up may be rounded otherwise.
  const bool switched = std::ranges::all_of(rooms, [](const ArenaHandle& r) { return r.has_switch != 0; });
  room.switched = switched ? room.window.through_switch() : nullptr;
  return {};
}

void RankEngine::use_rooms() {
  const std::lock_guard lock(mutex_);
  const Room& room = rooms_[room_stride_];
  launcher_->one_sided()->move(room_stride_, room.all, room.switched, *launcher_->parts()[0]);
}

Status RankEngine::reserve(const void* input, void* output, std::uint64_t count, model::DataType type,
                           model::ReduceOp op) {
  const std::lock_guard lock(mutex_);
  const OwnBuffers own(plan(), rank_, input, output, {});
  return launcher_->reserve(own.call(count, type, op));
}

Status RankEngine::check() {
  const std::lock_guard lock(mutex_);
  if (failed_.has_value()) return *failed_;
  return remember(launcher_->check());
}

Status RankEngine::synchronize(const Interrupted& interrupted) {
  const std::lock_guard lock(mutex_);
  if (failed_.has_value()) return *failed_;
  return remember(launcher_->wait(interrupted));
}

}  // namespace gc3::cuda
