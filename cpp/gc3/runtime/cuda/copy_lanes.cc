#include "gc3/runtime/cuda/copy_lanes.h"

#include <algorithm>
#include <utility>

#include "gc3/runtime/interp/interpreter.h"

namespace gc3::cuda {
namespace {

MemoryOperation wait(const std::uint64_t* at, std::uint64_t value, unsigned how) {
  return {kWaitValue64, address(at), value, how, 0, 0};
}
MemoryOperation write(const std::uint64_t* at, std::uint64_t value) {
  return {kWriteValue64, address(at), value, kWriteBehindAll, 0, 0};
}

}  // namespace

std::optional<std::vector<LaneStep>> order_of_lanes(const interp::Plan& plan, std::uint32_t slots) {
  std::vector<LaneStep> order;
  order.reserve(plan.steps.size());
  const std::size_t count = plan.threadblocks.size();
  std::vector<std::uint32_t> next(count);
  std::vector<std::uint32_t> sent(plan.connections.size());
  std::vector<std::uint32_t> received(plan.connections.size());
  const auto ready = [&](const interp::PlanThreadblock& tb) {
    const interp::Step& step = plan.steps[tb.first_step + next[plan.ranks[tb.rank].first_tb + tb.tb]];
    for (std::uint32_t w = step.wait_begin; w < step.wait_begin + step.wait_count; ++w) {
      if (next[plan.ranks[tb.rank].first_tb + plan.waits[w].tb] < plan.waits[w].steps) return false;
    }
    const interp::Does does = interp::does_of(step.opcode);
    if (does.receives && received[tb.recv_connection] == sent[tb.recv_connection]) return false;
    return !does.sends || sent[tb.send_connection] - received[tb.send_connection] < slots;
  };
  // In rounds, each of which takes a step of every threadblock that has one ready: so what can run at the same time is
  // submitted at the same time.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t t = 0; t < count; ++t) {
      const interp::PlanThreadblock& tb = plan.threadblocks[t];
      if (next[t] == tb.step_count || !ready(tb)) continue;
      const interp::Does does = interp::does_of(plan.steps[tb.first_step + next[t]].opcode);
      if (does.receives) ++received[tb.recv_connection];
      if (does.sends) ++sent[tb.send_connection];
      order.push_back({t, next[t]++});
      moved = true;
    }
  }
  if (order.size() != plan.steps.size()) return std::nullopt;
  return order;
}

CopyLanes::End CopyLanes::end_of(std::uint32_t connection, const std::vector<std::uint8_t*>& arenas) const {
  const interp::Connection& ends = plan_.connections[connection];
  const CopyFifos::Connection& has = fifos_.connections[connection];
  const std::uint32_t from = plan_.threadblocks[ends.sender_tb].rank;
  const std::uint32_t to = plan_.threadblocks[ends.receiver_tb].rank;
  const auto words = [&](std::uint32_t r) { return reinterpret_cast<std::uint64_t*>(arenas[r] + fifos_.ranks[r].at); };
  return {words(from) + has.taken, words(to) + has.arrivals, words(to) + has.tags,
          words(to) + has.spoilt,  arenas[to] + has.slots,   0};
}

Result<std::unique_ptr<CopyLanes>> CopyLanes::create(const interp::Plan& plan, const CopyFifos& fifos,
                                                     const std::shared_ptr<Device>& device,
                                                     const std::vector<std::uint32_t>& ranks,
                                                     const std::vector<std::uint32_t>& threadblocks,
                                                     const std::vector<std::uint8_t*>& arenas) {
  std::unique_ptr<CopyLanes> made(new CopyLanes(plan, fifos, device));
  const CaptureRelaxed relaxed(device->driver());
  made->lane_of_.assign(plan.threadblocks.size(), kNone);
  made->published_.resize(plan.steps.size());
  std::vector<Lane> places;
  for (const std::uint32_t index : threadblocks) {
    const interp::PlanThreadblock& tb = plan.threadblocks[index];
    made->lane_of_[index] = static_cast<std::uint32_t>(made->lanes_.size());
    OneLane lane;
    GC3_ASSIGN(lane.stream, Stream::create(device));
    GC3_ASSIGN(lane.ended, Event::create(device, false));
    lane.rank = static_cast<std::uint32_t>(std::lower_bound(ranks.begin(), ranks.end(), tb.rank) - ranks.begin());
    lane.own_spoilt = reinterpret_cast<std::uint64_t*>(arenas[tb.rank] + fifos.ranks[tb.rank].at);
    if (tb.send_connection != kNone) lane.send = made->end_of(tb.send_connection, arenas);
    if (tb.recv_connection != kNone) lane.recv = made->end_of(tb.recv_connection, arenas);
    made->lanes_.push_back(std::move(lane));
    places.push_back({0, 0, index});
    for (std::uint32_t s = tb.first_step; s < tb.first_step + tb.step_count; ++s) {
      if (plan.steps[s].publishes == 0) continue;
      GC3_ASSIGN(made->published_[s], Event::create(device, false));
    }
  }
  std::vector<GuardedRank> guarded;
  for (const std::uint32_t r : ranks) {
    const CopyFifos::Words& words = fifos.ranks[r];
    guarded.push_back({reinterpret_cast<std::uint64_t*>(arenas[r] + words.at), words.counters, words.slots});
  }
  made->rank_count_ = static_cast<std::uint32_t>(ranks.size());
  GC3_ASSIGN(made->places_, Memory::on(device, places.size() * sizeof(Lane), "the program"));
  GC3_CHECK(made->places_.write(places.data(), 0, places.size() * sizeof(Lane)));
  GC3_ASSIGN(made->guarded_ranks_, Memory::on(device, guarded.size() * sizeof(GuardedRank), "the program"));
  GC3_CHECK(made->guarded_ranks_.write(guarded.data(), 0, guarded.size() * sizeof(GuardedRank)));
  GC3_ASSIGN(made->guard_stream_, Stream::create(device));
  GC3_ASSIGN(made->begun_, Event::create(device, false));
  GC3_ASSIGN(made->guarded_, Event::create(device, false));
  return made;
}

Status CopyLanes::begin(const Launched& launch) {
  launch_ = launch;
  ++launches_;
  const Driver& driver = device_->driver();
  const auto checked = [&](int result) { return driver.check(result, "streams of copies on " + device_->describe()); };
  GC3_CHECK(checked(driver->record_event(begun_.get(), launch.stream)));
  for (const OneLane& lane : lanes_) GC3_CHECK(checked(driver->wait_event(lane.stream.get(), begun_.get(), 0)));
  return checked(driver->wait_event(guard_stream_.get(), begun_.get(), 0));
}

Status CopyLanes::operate(const OneLane& lane, std::vector<MemoryOperation>& operations) const {
  if (operations.empty()) return {};
  const int result = device_->driver()->batch_memory(lane.stream.get(), static_cast<unsigned>(operations.size()),
                                                     operations.data(), 0);
  operations.clear();
  return device_->driver().check(result, "waiting and flags of copies on " + device_->describe());
}

Status CopyLanes::copy(const OneLane& lane, const void* to, const void* from, std::uint64_t bytes) const {
  if (bytes == 0 || to == from) return {};
  return device_->driver().check(
      device_->driver()->device_to_device(address(to), address(from), bytes, lane.stream.get()),
      "a copy of " + std::to_string(bytes) + " bytes on " + device_->describe());
}

Status CopyLanes::wait_for_steps(std::size_t at, LaneStep step, std::uint64_t tile) {
  const interp::PlanThreadblock& tb = plan_.threadblocks[step.tb];
  const interp::Step& has = plan_.steps[tb.first_step + step.step];
  const OneLane& lane = lanes_[at];
  for (std::uint32_t w = 0; w < has.wait_count; ++w) {
    const interp::Wait& awaited = plan_.waits[has.wait_begin + w];
    const interp::PlanThreadblock& other = plan_.threadblocks[plan_.ranks[tb.rank].first_tb + awaited.tb];
    std::vector<MemoryOperation> operations = {write(
        &place(at)->place, place_of(tile, step.step, static_cast<std::uint64_t>(interp::Waiting::dependency), w))};
    GC3_CHECK(operate(lane, operations));
    GC3_CHECK(device_->driver().check(
        device_->driver()->wait_event(lane.stream.get(), published_[other.first_step + awaited.steps - 1].get(), 0),
        "the order of copies on " + device_->describe()));
  }
  return {};
}

interp::Piece CopyLanes::piece(const OneLane& lane, const interp::Operand& operand, const interp::Message& message,
                               std::uint64_t segment) const {
  const Buffers& buffers = launch_.buffers[lane.rank];
  const interp::Region regions[] = {
      {buffers.input, launch_.count, plan_.collective.chunks(), launch_.run.regular, 0},
      {buffers.output, launch_.count, plan_.collective.chunks(), launch_.run.regular, 0},
      {buffers.scratch, 0, 0xffffffffU, 1, 0},
  };
  return interp::locate(launch_.run, regions[operand.buffer], operand, message, segment, 0);
}

// The bytes behind the end of a short chunk are neither sent nor written: the other side has the same chunk.
Status CopyLanes::move(const OneLane& lane, const interp::Step& step, std::uint64_t tile) const {
  const interp::Does does = interp::does_of(step.opcode);
  const interp::Message message = interp::message_of(launch_.run, tile, step);
  const auto slot = [&](const End& end) {
    return end.slots + end.messages % launch_.run.slots * launch_.run.slot_stride;
  };
  for (std::uint64_t s = 0; s < message.segments; ++s) {
    interp::Piece src;
    interp::Piece dst;
    std::uint64_t bytes = message.segment_bytes;
    if (does.reads) {
      src = piece(lane, step.src, message, s);
      bytes = std::min(bytes, src.bytes);
    }
    if (does.writes) {
      dst = piece(lane, step.dst, message, s);
      bytes = std::min(bytes, dst.bytes);
    }
    const std::uint8_t* const from = does.receives ? slot(lane.recv) + s * message.segment_bytes : src.at;
    if (does.sends) GC3_CHECK(copy(lane, slot(lane.send) + s * message.segment_bytes, from, bytes));
    if (does.writes) GC3_CHECK(copy(lane, dst.at, from, bytes));
  }
  return {};
}

Status CopyLanes::add(LaneStep at, std::uint64_t tile) {
  const interp::PlanThreadblock& tb = plan_.threadblocks[at.tb];
  const interp::Step& step = plan_.steps[tb.first_step + at.step];
  OneLane& lane = lanes_[lane_of_[at.tb]];
  const interp::Does does = interp::does_of(step.opcode);
  const std::uint64_t slots = launch_.run.slots;
  GC3_CHECK(wait_for_steps(lane_of_[at.tb], at, tile));
  std::vector<MemoryOperation> operations;
  const auto stands = [&](interp::Waiting waiting) {
    operations.push_back(
        write(&place(lane_of_[at.tb])->place, place_of(tile, at.step, static_cast<std::uint64_t>(waiting))));
  };
  if (does.receives) {
    const std::uint64_t slot = lane.recv.messages % slots;
    stands(interp::Waiting::input);
    operations.push_back(wait(lane.recv.arrivals + slot, lane.recv.messages + 1, kWaitAtLeast));
    operations.push_back(wait(lane.recv.tags + slot, launch_.run.tag, kWaitEqual));
    operations.push_back(wait(lane.recv.spoilt + slot, 0, kWaitEqual));
  }
  if (does.sends && lane.send.messages >= slots) {
    stands(interp::Waiting::credit);
    operations.push_back(wait(lane.send.counter, lane.send.messages + 1 - slots, kWaitAtLeast));
  }
  stands(interp::Waiting::nothing);
  GC3_CHECK(operate(lane, operations));
  if (does.sends) {  // behind all waits, and before the slot changes
    GC3_CHECK(copy(lane, lane.send.spoilt + lane.send.messages % slots, lane.own_spoilt, sizeof(std::uint64_t)));
  }
  if (step.opcode != interp::Op::nop) GC3_CHECK(move(lane, step, tile));
  if (does.receives) {
    // Again, because a sender that is stopped does not wait for a free slot.
    operations.push_back(wait(lane.recv.spoilt + lane.recv.messages % slots, 0, kWaitEqual));
  }
  if (does.sends) {
    const std::uint64_t slot = lane.send.messages++ % slots;
    operations.push_back(write(lane.send.tags + slot, launch_.run.tag));
    operations.push_back(write(lane.send.arrivals + slot, lane.send.messages));
  }
  if (does.receives) operations.push_back(write(lane.recv.counter, ++lane.recv.messages));
  GC3_CHECK(operate(lane, operations));
  if (step.publishes == 0) return {};
  return device_->driver().check(
      device_->driver()->record_event(published_[tb.first_step + at.step].get(), lane.stream.get()),
      "the order of copies on " + device_->describe());
}

Status CopyLanes::end() {
  const Driver& driver = device_->driver();
  Status first;  // all is tried, so that as much as possible comes to its end
  const auto tried = [&](int result) {
    if (first.ok()) first = driver.check(result, "the end of copies on " + device_->describe());
  };
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    std::vector<MemoryOperation> operations = {write(&place(l)->finished, launches_)};
    tried(driver->batch_memory(lanes_[l].stream.get(), 1, operations.data(), 0));
    tried(driver->record_event(lanes_[l].ended.get(), lanes_[l].stream.get()));
  }
  Guard guard{};
  guard.lanes = place(0);
  guard.ranks = reinterpret_cast<const GuardedRank*>(guarded_ranks_.data());
  guard.halt = launch_.halt;
  guard.stands = launch_.stands;
  guard.control = launch_.control;
  guard.launch = launches_;
  guard.tag = launch_.run.tag;
  guard.timeout_ns = launch_.timeout_ns;
  guard.lane_count = static_cast<std::uint32_t>(lanes_.size());
  guard.rank_count = rank_count_;
  void* arguments[] = {&guard};
  tried(driver->launch(launch_.guard, 1, 1, 1, 1, 1, 1, 0, guard_stream_.get(), arguments, nullptr));
  tried(driver->record_event(guarded_.get(), guard_stream_.get()));
  tried(driver->wait_event(launch_.stream, guarded_.get(), 0));
  for (const OneLane& lane : lanes_) tried(driver->wait_event(launch_.stream, lane.ended.get(), 0));
  return first;
}

void CopyLanes::reset() {
  for (OneLane& lane : lanes_) {
    lane.send.messages = 0;
    lane.recv.messages = 0;
  }
}

}  // namespace gc3::cuda
