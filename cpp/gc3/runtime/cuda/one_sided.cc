#include "gc3/runtime/cuda/one_sided.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/ir/index.h"
#include "gc3/runtime/cuda/device/vec.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cuda {
namespace {

// Chunks in scratch begin at whole cache lines of the host's engines, too.
constexpr std::uint64_t kScratchUnit = 64;
constexpr std::uint64_t kBetweenRanks = 256;

}  // namespace

Result<std::unique_ptr<OneSided>> OneSided::create(const direct::Program& program) {
  GC3_ASSIGN(direct::Decoded decoded, direct::Decoded::create(program));
  return std::unique_ptr<OneSided>(new OneSided(std::move(decoded)));
}

// Chunks of unequal length are copied to buffers in which they are all as long, whatever the program does with them.
interp::Plan OneSided::plan() const {
  interp::Plan plan = direct::plan_of(decoded_);
  plan.moves_between_classes = true;
  return plan;
}

Result<OneSided::OnDevice> OneSided::upload(const LocalRanks& part) const {
  const direct::Program& program = decoded_.program;
  std::vector<OneSidedThreadblock> blocks;
  for (const std::uint32_t r : part.ranks()) {
    for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) {
      const std::uint32_t index = program.ranks[r].first_tb + t;
      const ir::direct::Threadblock& tb = program.threadblocks[index];
      if (tb.step_count != 0) blocks.push_back({tb.first_step, tb.step_count, index});
    }
  }
  OnDevice made;
  made.blocks = static_cast<std::uint32_t>(blocks.size());
  const auto put = [&](Memory& to, const auto& values) -> Status {
    GC3_ASSIGN(to, uploaded(part.shared_device(), values, "the program"));
    return {};
  };
  GC3_CHECK(put(made.steps, tables_.steps));
  GC3_CHECK(put(made.places, tables_.places));
  GC3_CHECK(put(made.objects, program.objects));
  GC3_CHECK(put(made.initial, tables_.initial));
  GC3_CHECK(put(made.parties, tables_.parties));
  GC3_CHECK(put(made.scratch_chunks, tables_.scratch_chunks));
  GC3_CHECK(put(made.threadblocks, blocks));
  GC3_CHECK(put(made.calls, std::vector<std::uint64_t>(blocks.size())));
  return made;
}

Status OneSided::start(const Parts& parts) {
  const std::uint32_t ranks = decoded_.program.collective.ranks();
  if (ranks > kMaxRanks) {
    return Diagnostic(ErrorCode::NotResident, std::to_string(ranks) + " ranks of a one-sided program; at most " +
                                                  std::to_string(kMaxRanks) + " are possible");
  }
  for (const auto& part : parts) {
    GC3_ASSIGN(OnDevice made, upload(*part));
    parts_.push_back(std::move(made));
    for (const auto& other : parts) GC3_CHECK(part->device().check_atomics(other->device().ordinal()));
  }
  GC3_ASSIGN(counters_, Memory::on(parts[0]->shared_device(), direct::Counters::bytes(decoded_.program),
                                   "the counters of a one-sided program"));
  scratch_of_.resize(ranks);
  return {};
}

// Where chunks are padded, whole vectors: the last ones may be empty.
Result<interp::Run> OneSided::run_of(const interp::Call& call) const {
  const std::uint64_t chunks = decoded_.program.collective.chunks();
  interp::Run run;
  run.elem_bytes = static_cast<std::uint32_t>(model::size_of(call.type));
  run.chunk_elems = call.count / chunks;
  if (call.count % chunks != 0) run.chunk_elems = interp::round_up(run.chunk_elems + 1, kVec / run.elem_bytes);
  run.tiles = call.count != 0 ? 1 : 0;
  run.regular = 1;
  GC3_CHECK(interp::checked_bytes(run.chunk_elems, run.elem_bytes * chunks, "a block"));
  return run;
}

Status OneSided::check_resident(const LocalRanks& part, std::size_t number, const Kernels& kernels) const {
  return part.check_resident(kernels, parts_[number].blocks);
}

Status OneSided::reserve(const interp::Run& run, const Parts& parts) {
  const std::uint64_t least = interp::round_up(run.chunk_elems * run.elem_bytes, kScratchUnit);
  if (least <= stride_) return {};
  const std::uint64_t stride = std::max(least, 2 * stride_);  // all that was there before is less than this
  std::vector<Memory> made;
  std::vector<std::uint8_t*> at(scratch_of_.size());
  for (const auto& part : parts) {
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> offsets;
    for (const std::uint32_t r : part->ranks()) {
      const std::uint64_t chunks = std::uint64_t{decoded_.scratch_chunks[r]} * decoded_.program.halves;
      GC3_ASSIGN(const std::uint64_t own, interp::checked_bytes(chunks, stride, "the scratch of a rank"));
      offsets.push_back(bytes);
      bytes += interp::round_up(own, kBetweenRanks);
    }
    GC3_ASSIGN(Memory memory, Memory::on(part->shared_device(), bytes, "scratch buffers"));
    for (std::size_t i = 0; i < offsets.size() && bytes != 0; ++i) at[part->ranks()[i]] = memory.data() + offsets[i];
    made.push_back(std::move(memory));
  }
  std::ranges::move(made, std::back_inserter(scratch_));
  scratch_of_ = std::move(at);
  stride_ = stride;
  return {};
}

Status OneSided::check_access(const interp::Call& call, const interp::Run& run, const Parts& parts) const {
  if (parts.size() == 1 || run.tiles == 0) return {};
  const auto check = [&](const Device& device, std::uint32_t r, const void* buffer, const char* what) -> Status {
    if (buffer == nullptr || device.has_access(buffer)) return {};
    return Diagnostic(ErrorCode::BadBuffer, "the " + std::string(what) + " of rank " + std::to_string(r) + ": " +
                                                device.describe() +
                                                " has no access to it, as to memory of a pool that gives it to none");
  };
  for (const auto& part : parts) {
    for (std::uint32_t r = 0; r < call.inputs.size(); ++r) {
      GC3_CHECK(check(part->device(), r, call.inputs[r], "input"));
      GC3_CHECK(check(part->device(), r, call.outputs[r], "output"));
    }
  }
  return {};
}

Status OneSided::enqueue(const interp::Call& call, const interp::Run& run, const Parts& parts,
                         const std::vector<Kernels>& kernels, const Watch& watch, std::uint64_t timeout_ns,
                         const std::vector<CUstream>& streams) const {
  if (run.tiles == 0) return {};
  const std::uint64_t chunk_bytes = run.chunk_elems * run.elem_bytes;
  std::vector<LocalRanks::Prepared> prepared(parts.size());
  std::vector<OneSidedLaunch> launches(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Current current(parts[p]->device());
    GC3_CHECK(parts[p]->prepare(call, run, kernels[p], watch, timeout_ns, streams[p], prepared[p]));
    for (std::size_t i = 0; i < parts[p]->ranks().size(); ++i) {
      const std::uint32_t r = parts[p]->ranks()[i];
      Buffers at = prepared[p].launch.buffers[i];
      at.scratch = scratch_of_[r];
      for (OneSidedLaunch& launch : launches) launch.buffers[r] = at;
    }
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const OnDevice& has = parts_[p];
    OneSidedLaunch& launch = launches[p];
    const Launch& from = prepared[p].launch;
    launch.steps = reinterpret_cast<const OneSidedStep*>(has.steps.data());
    launch.places = reinterpret_cast<const OneSidedPlace*>(has.places.data());
    launch.objects = reinterpret_cast<const std::uint32_t*>(has.objects.data());
    launch.initial = reinterpret_cast<const std::uint32_t*>(has.initial.data());
    launch.parties = reinterpret_cast<const std::uint32_t*>(has.parties.data());
    launch.threadblocks = reinterpret_cast<const OneSidedThreadblock*>(has.threadblocks.data());
    launch.calls = reinterpret_cast<std::uint64_t*>(has.calls.data());
    launch.scratch_chunks = reinterpret_cast<const std::uint64_t*>(has.scratch_chunks.data());
    launch.counters = reinterpret_cast<interp::Counter*>(counters_.data());
    launch.halt = from.halt;
    launch.stands = from.stands;
    launch.control = from.control;
    launch.timeout_ns = from.timeout_ns;
    launch.fold = from.fold;
    launch.system = from.system;
    launch.chunk_bytes = chunk_bytes;
    launch.stride = stride_;
    launch.halves = decoded_.program.halves;
    launch.semaphores_at = tables_.semaphores_at;
    launch.barriers_at = tables_.barriers_at;
    const Current current(parts[p]->device());
    const std::uint64_t bytes = chunk_bytes * tables_.most_chunks;
    if (has.blocks != 0) GC3_CHECK(parts[p]->launch(kernels[p].run, has.blocks, bytes, streams[p], &launch));
  }
  // What may wait for a device comes when no kernel waits for another to be launched.
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Current current(parts[p]->device());
    GC3_CHECK(parts[p]->finish(call, prepared[p], kernels[p], streams[p]));
  }
  return {};
}

Status OneSided::reset() const {
  GC3_CHECK(counters_.clear());
  for (const OnDevice& has : parts_) GC3_CHECK(has.calls.clear());
  for (const Memory& scratch : scratch_) GC3_CHECK(scratch.clear());
  return {};
}

void OneSided::report(const Watch& watch, Diagnostic& problem) const {
  constexpr std::uint32_t kMost = 16;
  std::uint32_t told = 0;
  decoded_.program.each_step([&](std::uint32_t r, std::uint32_t t, std::uint32_t s, std::uint32_t at) {
    const Stand& stand = watch.stands()[decoded_.program.ranks[r].first_tb + t];
    if (stand.stopped == 0 || stand.step != s || told++ >= kMost) return;
    problem.note(ir::step_name(r, t, s) + " (" + to_text(decoded_.program, r, decoded_.program.steps[at]) +
                 ") was waiting in call " + std::to_string(stand.tile));
  });
}

}  // namespace gc3::cuda
