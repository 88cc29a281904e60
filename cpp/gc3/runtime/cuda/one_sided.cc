#include "gc3/runtime/cuda/one_sided.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/base/errors/processes.h"
#include "gc3/ir/index.h"
#include "gc3/runtime/cuda/device/vec.h"
#include "gc3/runtime/interp/checked_bytes.h"

namespace gc3::cuda {
namespace {

// Chunks in rooms begin at whole cache lines of the host's engines, too.
constexpr std::uint64_t kRoomUnit = 64;
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

Result<OneSided::OnDevice> OneSided::upload(const LocalRanks& part, const std::vector<std::uint8_t*>& arenas) const {
  const direct::Program& program = decoded_.program;
  std::vector<OneSidedThreadblock> blocks;
  for (const std::uint32_t r : part.ranks()) {
    for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) {
      const std::uint32_t index = program.ranks[r].first_tb + t;
      const ir::direct::Threadblock& tb = program.threadblocks[index];
      if (tb.step_count != 0) blocks.push_back({tb.first_step, tb.step_count, index});
    }
  }
  const auto counter = [&](std::uint32_t rank, std::size_t index) {
    return reinterpret_cast<interp::Counter*>(arenas[rank]) + index;
  };
  std::vector<interp::Counter*> counters;
  for (const std::uint32_t waiter : direct::Counters::waiters(program)) {
    counters.push_back(counter(waiter, counters.size()));
  }
  // Ranks without steps have nothing to say.
  std::vector<OneSidedPeer> peers;
  const std::size_t words = direct::Counters::ranks_at(program);
  const std::uint32_t own = part.ranks()[0];
  for (std::uint32_t r = 0; apart_ && r < program.ranks.size(); ++r) {
    const auto steps = [](const ir::direct::Threadblock& tb) { return tb.step_count != 0; };
    if (r == own || std::ranges::none_of(program.tbs(r), steps)) continue;
    peers.push_back({&counter(r, words + own)->value, &counter(own, words + r)->value});
  }
  OnDevice made;
  made.blocks = static_cast<std::uint32_t>(blocks.size());
  made.peer_count = static_cast<std::uint32_t>(peers.size());
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
  GC3_CHECK(put(made.counters, counters));
  GC3_CHECK(put(made.peers, peers));
  GC3_CHECK(put(made.calls, std::vector<std::uint64_t>(blocks.size())));
  return made;
}

// Signals are added to counters of their waiters.
Status OneSided::check_atomics(const LocalRanks& part, const std::vector<std::uint8_t*>& arenas) const {
  for (const ir::direct::Channel& channel : decoded_.program.channels) {
    if (std::ranges::count(part.ranks(), channel.from) == 0) continue;
    GC3_ASSIGN(const int where, part.device().driver().device_of(address(arenas[channel.to])));
    GC3_CHECK(part.device().check_atomics(where));
  }
  return {};
}

Status OneSided::start(const Parts& parts, const std::vector<std::vector<std::uint8_t*>>& arenas) {
  const std::uint32_t ranks = decoded_.program.collective.ranks();
  if (ranks > kMaxRanks) {
    return Diagnostic(ErrorCode::NotResident, std::to_string(ranks) + " ranks of a one-sided program; at most " +
                                                  std::to_string(kMaxRanks) + " are possible");
  }
  std::size_t own = 0;
  for (const auto& part : parts) own += part->ranks().size();
  apart_ = own != ranks;
  in_room_.resize(ranks);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Current current(parts[p]->device());
    GC3_CHECK(check_atomics(*parts[p], arenas[p]));
    GC3_ASSIGN(OnDevice made, upload(*parts[p], arenas[p]));
    parts_.push_back(std::move(made));
  }
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

std::uint64_t OneSided::least_stride(const interp::Run& run) {
  return interp::round_up(run.chunk_elems * run.elem_bytes, kRoomUnit);
}

Result<OneSided::Room> OneSided::room_of(std::uint32_t rank, std::uint64_t stride) const {
  const model::Collective& collective = decoded_.program.collective;
  std::array<std::uint64_t, 3> chunks{};
  const auto take = [&](std::size_t part, std::uint64_t needed) { chunks[part] = std::max(chunks[part], needed); };
  const auto used = [&](std::size_t part) {
    return apart_ && std::ranges::any_of(decoded_.uses,
                                         [&](const auto& uses) { return uses[part] != direct::Decoded::Use::nothing; });
  };
  for (std::uint32_t r = apart_ ? 0 : rank; r < (apart_ ? collective.ranks() : rank + 1); ++r) {
    if (used(0)) take(0, std::uint64_t{collective.input_blocks(r)} * collective.chunks());
    if (used(1)) take(1, std::uint64_t{collective.output_blocks(r)} * collective.chunks());
    take(2, std::uint64_t{decoded_.scratch_chunks[r]} * decoded_.program.halves);
  }
  Room room{};
  for (std::size_t i = 0; i < 3; ++i) {
    GC3_ASSIGN(const std::uint64_t bytes, interp::checked_bytes(chunks[i], stride, "scratch buffers"));
    room[i + 1] = room[i] + interp::round_up(bytes, kBetweenRanks);
  }
  return room;
}

Result<std::uint64_t> OneSided::room_bytes(std::uint32_t rank, std::uint64_t stride) const {
  GC3_ASSIGN(const Room room, room_of(rank, stride));
  return room[3];
}

Status OneSided::reserve(const interp::Run& run, const Parts& parts) {
  if (!lacks_room(run)) return {};
  if (apart_) {
    return Diagnostic(ErrorCode::BadBuffer, "the ranks have not made room for a call of this size");
  }
  const std::uint64_t stride = next_stride(run);
  std::vector<Memory> made;
  std::vector<std::uint8_t*> at(in_room_.size());
  for (const auto& part : parts) {
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> offsets;
    for (const std::uint32_t r : part->ranks()) {
      offsets.push_back(bytes);
      GC3_ASSIGN(const std::uint64_t own, room_bytes(r, stride));
      bytes += own;
    }
    GC3_ASSIGN(Memory memory, Memory::on(part->shared_device(), bytes, "scratch buffers"));
    for (std::size_t i = 0; i < offsets.size() && bytes != 0; ++i) at[part->ranks()[i]] = memory.data() + offsets[i];
    made.push_back(std::move(memory));
  }
  std::ranges::move(made, std::back_inserter(rooms_));
  for (std::uint32_t r = 0; r < at.size(); ++r) in_room_[r].scratch = at[r];
  stride_ = stride;
  return {};
}

void OneSided::move(std::uint64_t stride, const std::vector<std::uint8_t*>& rooms, std::uint8_t* switched,
                    LocalRanks& own) {
  stride_ = stride;
  const Room room = room_of(own.ranks()[0], stride).value();  // as long as what was allocated
  const auto parts = [&](std::uint8_t* base) -> Buffers {
    const auto at = [&](std::size_t i) { return room[i] == room[i + 1] ? nullptr : base + room[i]; };
    return {at(0), at(1), at(2)};
  };
  std::ranges::transform(rooms, in_room_.begin(), parts);
  switched_ = switched == nullptr ? std::nullopt : std::optional(parts(switched));
  const Buffers& mine = in_room_[own.ranks()[0]];
  own.share({mine.input, mine.output});
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
  for (OneSidedLaunch& launch : launches) std::ranges::copy(in_room_, launch.buffers);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const Current current(parts[p]->device());
    GC3_CHECK(parts[p]->prepare(call, run, kernels[p], watch, timeout_ns, streams[p], prepared[p]));
    for (std::size_t i = 0; i < parts[p]->ranks().size(); ++i) {
      const std::uint32_t r = parts[p]->ranks()[i];
      Buffers at = prepared[p].launch.buffers[i];
      at.scratch = in_room_[r].scratch;
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
    launch.counters = reinterpret_cast<interp::Counter* const*>(has.counters.data());
    launch.peers = reinterpret_cast<const OneSidedPeer*>(has.peers.data());
    launch.peer_count = has.peer_count;
    launch.tag = run.tag & ((std::uint64_t{1} << kTagBits) - 1);
    launch.halt = from.halt;
    launch.stands = from.stands;
    launch.control = from.control;
    launch.timeout_ns = from.timeout_ns;
    launch.fold = from.fold;
    launch.system = from.system;
    launch.chunk_bytes = chunk_bytes;
    launch.stride = stride_;
    launch.halves = decoded_.program.halves;
    launch.has_switch = switched_ ? 1 : 0;
    launch.switched = switched_.value_or(Buffers{});
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
  for (const OnDevice& has : parts_) GC3_CHECK(has.calls.clear());
  for (const Memory& room : rooms_) GC3_CHECK(room.clear());
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

Diagnostic OneSided::differing(const Watch& watch, const LocalRanks& own) const {
  const direct::Program& program = decoded_.program;
  const std::uint32_t rank = own.ranks()[0];
  Stand stand;
  for (std::uint32_t t = 0; t < program.ranks[rank].tb_count && stand.stopped == 0; ++t) {
    stand = watch.stands()[program.ranks[rank].first_tb + t];
  }
  const std::uint64_t call = stand.tile;
  const std::uint64_t said = call << kTagBits | std::uint64_t{stand.waiting} << 32U | stand.wait;
  std::string which;
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    std::uint64_t told = 0;
    const std::uint64_t at = (direct::Counters::ranks_at(program) + r) * sizeof(interp::Counter);
    const bool known = own.memory().read(&told, at + call % 2 * sizeof told, sizeof told).ok();
    if (!known || (told ^ said) >> kTagBits != 0 || told == said) continue;
    which += (which.empty() ? "rank " : ", rank ") + std::to_string(r);
  }
  return Diagnostic(ErrorCode::CallsDiffer, "call " + std::to_string(call) + " of the one-sided program '" +
                                                program.name + "' on rank " + std::to_string(rank) +
                                                " is not that of " + (which.empty() ? "another rank" : which));
}

}  // namespace gc3::cuda
