#include "gc3/runtime/cuda/local_ranks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "gc3/base/errors/devices.h"
#include "gc3/runtime/cuda/device/elements.h"
#include "gc3/runtime/cuda/device/lines.h"
#include "gc3/runtime/cuda/ordering.h"
#include "gc3/runtime/interp/checked_bytes.h"
#include "gc3/runtime/interp/divisors.h"

namespace gc3::cuda {
namespace {

constexpr std::uint64_t kAlignment = 256;

Fold fold_of(model::ReduceOp op) {
  constexpr Fold kFolds[] = {
#define GC3_REDUCE_OP(name, fold, floats, integers, booleans, complexes, doc) Fold::fold,
#include "gc3/model/types.def"
  };
  return kFolds[static_cast<std::size_t>(op)];
}

// As many warps as make one trip each for the largest message, or all.
unsigned threads_for(std::uint64_t bytes) {
  constexpr std::uint64_t kBytesOfWarp = Lines<interp::LL128, 2>::kTrip * kVec;  // the shortest trip
  const std::uint64_t warps = std::min<std::uint64_t>((bytes + kBytesOfWarp - 1) / kBytesOfWarp, kThreads / 32);
  return std::max(static_cast<unsigned>(warps * 32), kLeastThreads);
}

}  // namespace

Result<Watch> Watch::create(const std::shared_ptr<Device>& device, std::size_t threadblocks) {
  Watch watch;
  GC3_ASSIGN(watch.memory_, Memory::pinned(device, sizeof(Control) + threadblocks * sizeof(Stand), "the watch"));
  watch.threadblocks_ = threadblocks;
  return watch;
}

Stop Watch::stop() const { return static_cast<Stop>(std::atomic_ref(control().stop).load(std::memory_order_acquire)); }
void Watch::stop(Stop why) const {
  std::atomic_ref(control().stop).store(static_cast<std::uint32_t>(why), std::memory_order_release);
}
void Watch::reset() const {
  std::memset(static_cast<void*>(stands()), 0, threadblocks_ * sizeof(Stand));
  stop(Stop::no);
}

LocalRanks::LocalRanks(const interp::Plan& plan, const ArenaLayout& layout, std::shared_ptr<Device> device,
                       std::vector<std::uint32_t> ranks)
    : plan_(plan),
      layout_(layout),
      device_(std::move(device)),
      ranks_(std::move(ranks)),
      fences_(plan.protocol != model::Protocol::Simple && messages_order_memory(plan)) {}

Result<std::unique_ptr<LocalRanks>> LocalRanks::create(const interp::Plan& plan, const ArenaLayout& layout,
                                                       std::shared_ptr<Device> device, std::vector<std::uint32_t> ranks,
                                                       std::uint8_t* given) {
  if (ranks.size() > kMaxRanks) {
    return Diagnostic(ErrorCode::NotResident, std::to_string(ranks.size()) + " ranks on " + device->describe() +
                                                  "; at most " + std::to_string(kMaxRanks) + " are possible");
  }
  std::unique_ptr<LocalRanks> made(new LocalRanks(plan, layout, std::move(device), std::move(ranks)));
  std::uint64_t bytes = 0;
  for (const std::uint32_t r : made->ranks_) {
    made->offsets_.push_back(bytes);
    bytes += layout.bytes[r];
    for (std::uint32_t t = 0; t < plan.ranks[r].tb_count; ++t) {
      if (plan.threadblocks[plan.ranks[r].first_tb + t].step_count != 0) {
        made->threadblocks_.push_back(plan.ranks[r].first_tb + t);
      }
    }
  }
  const std::uint64_t all = arena_bytes(layout, made->ranks_);
  if (given != nullptr) {
    GC3_ASSIGN(made->arenas_, Memory::lent(made->device_, given, all));
  } else {
    GC3_ASSIGN(made->arenas_, Memory::on(made->device_, all,
                                         "the FIFOs of " + std::to_string(plan.connections.size()) + " connections"));
  }
  GC3_CHECK(made->upload_program());
  GC3_CHECK(made->upload_divisors());
  return made;
}

std::uint64_t LocalRanks::arena_bytes(const ArenaLayout& layout, const std::vector<std::uint32_t>& ranks) {
  std::uint64_t bytes = 1;
  for (const std::uint32_t r : ranks) bytes += layout.bytes[r];
  return interp::round_up(bytes, kArenaUnit);
}

Status LocalRanks::upload_program() {
  GC3_ASSIGN(steps_, uploaded(device_, plan_.steps, "the program"));
  GC3_ASSIGN(waits_, uploaded(device_, plan_.waits, "the program"));
  GC3_ASSIGN(progress_, Memory::on(device_, sizeof(Halt) + threadblocks_.size() * sizeof(Progress), "the program"));
  return {};
}

Status LocalRanks::upload_divisors() {
  const std::vector<std::vector<std::uint64_t>> all = interp::divisors(plan_);
  std::vector<std::uint64_t> own;
  for (const std::uint32_t r : ranks_) {
    first_divisor_.push_back(own.size());
    own.insert(own.end(), all[r].begin(), all[r].end());
  }
  GC3_ASSIGN(divisors_, uploaded(device_, own, "the program"));
  return {};
}

std::uint8_t* LocalRanks::arena(std::uint32_t rank) const {
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin();
  return arenas_.data() + offsets_[static_cast<std::size_t>(at)];
}

Status LocalRanks::connect(const std::vector<std::uint8_t*>& arenas, bool system) {
  system_ = system;
  std::vector<Threadblock> records;
  for (const std::uint32_t index : threadblocks_) {
    const interp::PlanThreadblock& tb = plan_.threadblocks[index];
    Threadblock record;
    record.task = plan_.task(index, nullptr, reinterpret_cast<interp::Counter*>(arenas[tb.rank]),
                             reinterpret_cast<const interp::Step*>(steps_.data()),
                             reinterpret_cast<const interp::Wait*>(waits_.data()));
    record.task.rank =
        static_cast<std::uint32_t>(std::lower_bound(ranks_.begin(), ranks_.end(), tb.rank) - ranks_.begin());
    layout_.connect(tb, arenas, record.task);
    record.stand = index;
    record.first_wait = tb.first_wait;
    record.wait_count = tb.wait_count;
    records.push_back(record);
  }
  GC3_ASSIGN(records_, uploaded(device_, records, "the program"));
  return {};
}

Status LocalRanks::check_resident(const Kernels& kernels, std::size_t blocks) const {
  const auto per = static_cast<std::size_t>(kernels.blocks_per_multiprocessor);
  const auto multiprocessors = static_cast<std::size_t>(device_->multiprocessors());
  if (blocks <= per * multiprocessors) return {};
  return Diagnostic(ErrorCode::NotResident,
                    device_->describe() + " holds " + std::to_string(per * multiprocessors) + " threadblocks of " +
                        std::to_string(kThreads) + " threads at once (" + std::to_string(multiprocessors) +
                        " multiprocessors, " + std::to_string(per) + " on each); its " + std::to_string(ranks_.size()) +
                        " ranks have " + std::to_string(blocks));
}

Result<std::uint8_t*> LocalRanks::workspace(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  if (workspaces_.empty() || workspaces_.back().size() < bytes) {
    // Existing workspaces are kept, because a graph or running work may still use them. Each is at least twice as large
    // as the one before, so all earlier ones together are smaller than the last.
    if (!workspaces_.empty()) bytes = std::max<std::uint64_t>(bytes, 2 * workspaces_.back().size());
    GC3_ASSIGN(Memory larger, Memory::on(device_, interp::round_up(bytes, kArenaUnit), "scratch buffers"));
    workspaces_.push_back(std::move(larger));
  }
  return workspaces_.back().data();
}

Status LocalRanks::bind(const interp::Call& call, const interp::Run& run, Launch& launch,
                        std::vector<interp::Copy>& copies) {
  const std::uint32_t chunks = plan_.collective.chunks();
  const std::uint64_t elem = model::size_of(call.type);
  launch.count = call.count;
  launch.chunks = chunks;
  launch.regular = run.regular;
  GC3_ASSIGN(const std::uint64_t chunk_bytes, interp::checked_bytes(run.chunk_elems, elem, "a chunk"));
  GC3_ASSIGN(const std::uint64_t block_bytes, interp::checked_bytes(chunk_bytes, chunks, "a block"));
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> at;  // of scratch, and of the copies of input and output, of each rank
  const auto reserve = [&](std::uint64_t count, std::uint64_t each) -> Status {
    GC3_ASSIGN(const std::uint64_t part, interp::checked_bytes(count, each, "scratch buffers"));
    at.push_back(bytes);
    bytes += interp::round_up(part, kAlignment);
    return {};
  };
  for (const std::uint32_t r : ranks_) {
    const interp::PlanRank& rank = plan_.ranks[r];
    GC3_CHECK(reserve(rank.scratch_chunks, chunk_bytes));
    const std::array<interp::Copied, 2> copied = plan_.copies(r, call.count, call.scales());
    for (std::size_t b = 0; b < 2; ++b) {
      GC3_CHECK(reserve(shared_[b] == nullptr ? copied[b].blocks : 0, block_bytes));
    }
  }
  GC3_ASSIGN(std::uint8_t* const base, workspace(bytes));
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const interp::PlanRank& rank = plan_.ranks[ranks_[i]];
    // The input is written only where the output lies in it: see PlanRank::copies_input.
    auto* input = static_cast<std::uint8_t*>(const_cast<void*>(call.inputs[ranks_[i]]));
    auto* output = static_cast<std::uint8_t*>(call.outputs[ranks_[i]]);
    Buffers& buffers = launch.buffers[i];
    buffers.input = rank.input_aliased ? nullptr : input;
    buffers.output = rank.output_aliased ? nullptr : output;
    buffers.scratch = base == nullptr ? nullptr : base + at[3 * i];
    const std::array<interp::Copied, 2> copied =
        plan_.copies(ranks_[i], call.count, call.scales(), {shared_[0] != nullptr, shared_[1] != nullptr});
    std::uint8_t** const used[] = {&buffers.input, &buffers.output};
    for (std::size_t b = 0; b < 2; ++b) {
      if (copied[b].blocks == 0 || *used[b] == nullptr) continue;
      std::uint8_t* const to = shared_[b] != nullptr ? shared_[b] : base + at[3 * i + 1 + b];
      copies.push_back({*used[b], to, output, copied[b]});
      *used[b] = copies.back().data;
    }
  }
  return {};
}

Status LocalRanks::reserve(const interp::Call& call, const interp::Run& run) {
  Launch launch{};
  std::vector<interp::Copy> copies;
  return bind(call, run, launch, copies);
}

Status LocalRanks::add_lanes(const std::vector<std::uint8_t*>& arenas) {
  GC3_ASSIGN(lanes_, CopyLanes::create(plan_, *layout_.copies, device_, ranks_, threadblocks_, arenas));
  return {};
}

Status LocalRanks::release_lanes(std::uint64_t tag) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const CopyFifos::Words& has = layout_.copies->ranks[ranks_[i]];
    std::vector<std::uint64_t> words(1, kSpoilt);
    words.insert(words.end(), has.counters, kReleased);
    words.insert(words.end(), has.slots, tag);
    words.insert(words.end(), has.slots, 0);
    GC3_CHECK(arenas_.write(words.data(), offsets_[i] + has.at, sizeof(std::uint64_t)));  // before the others
    GC3_CHECK(arenas_.write(words.data(), offsets_[i] + has.at, has.bytes()));
  }
  return {};
}

Status LocalRanks::enqueue(const interp::Call& call, const interp::Run& run, const Kernels& kernels, const Watch& watch,
                           std::uint64_t timeout_ns, CUstream stream) {
  if (idle(run)) return {};
  const Current current(*device_);
  Prepared made;
  GC3_CHECK(prepare(call, run, kernels, watch, timeout_ns, stream, made));
  const std::uint64_t bytes = run.tile_elems * run.elem_bytes * plan_.max_count;
  GC3_CHECK(this->launch(kernels.run, threadblocks_.size(), bytes, stream, &made.launch));
  return finish(call, made, kernels, stream);
}

Status LocalRanks::launch(CUfunction kernel, std::size_t blocks, std::uint64_t bytes, CUstream stream,
                          void* argument) const {
  void* arguments[] = {argument};
  return device_->driver().check(device_->driver()->launch_cooperative(kernel, static_cast<unsigned>(blocks), 1, 1,
                                                                       threads_for(bytes), 1, 1, 0, stream, arguments),
                                 "launch of " + std::to_string(blocks) + " threadblocks on " + device_->describe());
}

Status LocalRanks::prepare(const interp::Call& call, const interp::Run& run, const Kernels& kernels, const Watch& watch,
                           std::uint64_t timeout_ns, CUstream stream, Prepared& made) {
  const Driver& driver = device_->driver();
  Launch& launch = made.launch;
  GC3_CHECK(bind(call, run, launch, made.copies));
  launch.run = run;
  launch.threadblocks = reinterpret_cast<const Threadblock*>(records_.data());
  launch.halt = reinterpret_cast<Halt*>(progress_.data());
  launch.progress = reinterpret_cast<Progress*>(progress_.data() + sizeof(Halt));
  launch.stands = watch.stands();
  launch.control = &watch.control();
  launch.timeout_ns = timeout_ns;
  launch.fold = static_cast<std::uint32_t>(fold_of(call.op));
  launch.system = system_ ? 1 : 0;
  launch.fences = fences_ ? 1 : 0;

  const std::uint64_t block = made.block = call.count * model::size_of(call.type);
  // The bytes of a block of a copy; padded copies have whole chunks.
  const std::uint64_t padded = run.chunk_elems * plan_.collective.chunks() * model::size_of(call.type);
  const std::uint64_t stride = made.stride = plan_.pads(call.count) ? padded : block;
  const auto checked = [&](int result) { return driver.check(result, "a copy of a buffer on " + device_->describe()); };
  for (const interp::Copy& c : made.copies) {
    for (std::uint64_t b = 0; b < c.how.blocks; ++b) {
      const CUdeviceptr to = address(c.data + b * stride);
      GC3_CHECK(checked(driver->device_to_device(to, address(c.user + b * block), block, stream)));
      if (stride != block) GC3_CHECK(checked(driver->fill(to + block, 0, stride - block, stream)));
    }
  }
  if (call.scales()) GC3_CHECK(scale(call, launch, stride, kernels, stream));
  return {};
}

Status LocalRanks::finish(const interp::Call& call, const Prepared& made, const Kernels& kernels,
                          CUstream stream) const {
  const Driver& driver = device_->driver();
  for (const interp::Copy& c : made.copies) {
    for (std::uint64_t b = 0; b < c.how.results; ++b) {
      const CUdeviceptr from = address(c.data + (c.how.first + b) * made.stride);
      GC3_CHECK(driver.check(driver->device_to_device(address(c.output + b * made.block), from, made.block, stream),
                             "a copy of a buffer on " + device_->describe()));
    }
  }
  if (call.op == model::ReduceOp::avg) GC3_CHECK(divide(call, made.launch.run, kernels, stream));
  return {};
}

Status LocalRanks::divide(const interp::Call& call, const interp::Run& run, const Kernels& kernels,
                          CUstream stream) const {
  Division division{};
  division.count = call.count;
  division.chunk_elems = run.chunk_elems;
  division.chunks = plan_.collective.chunks();
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Division::Rank& rank = division.ranks[i];
    rank.output = static_cast<std::uint8_t*>(call.outputs[ranks_[i]]);
    rank.elems = call.count * plan_.ranks[ranks_[i]].output_blocks;
    rank.divisors = reinterpret_cast<const std::uint64_t*>(divisors_.data()) + first_divisor_[i];
    most = std::max(most, rank.elems);
  }
  return launch_rows(kernels.divide, most, &division, stream, "the division of avg on ");
}

Status LocalRanks::scale(const interp::Call& call, const Launch& launch, std::uint64_t stride, const Kernels& kernels,
                         CUstream stream) const {
  const std::uint64_t elem = model::size_of(call.type);
  Scaling scaling{};
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const interp::PlanRank& has = plan_.ranks[ranks_[i]];
    const Buffers& buffers = launch.buffers[i];
    Scaling::Rank& rank = scaling.ranks[i];
    rank.input = has.input_aliased ? buffers.output + has.alias_block * stride : buffers.input;
    rank.elems = has.input_blocks * stride / elem;
    std::memcpy(rank.factor, call.factors[ranks_[i]].element.data(), elem);
    most = std::max(most, rank.elems);
  }
  return launch_rows(kernels.scale, most, &scaling, stream, "the factors of premulsum on ");
}

Status LocalRanks::launch_rows(CUfunction kernel, std::uint64_t elems, void* argument, CUstream stream,
                               const char* what) const {
  constexpr std::uint64_t kMostBlocks = 1024;
  const std::uint64_t blocks = std::min((elems + kThreads - 1) / kThreads, kMostBlocks);
  if (blocks == 0) return {};
  void* arguments[] = {argument};
  return device_->driver().check(
      device_->driver()->launch(kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(ranks_.size()), 1,
                                kThreads, 1, 1, 0, stream, arguments, nullptr),
      what + device_->describe());
}

Status LocalRanks::reset() {
  if (lanes_ != nullptr) lanes_->reset();
  GC3_CHECK(arenas_.clear());
  return progress_.clear();
}

}  // namespace gc3::cuda
