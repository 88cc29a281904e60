#include "gc3/verify/direct/run.h"

#include <algorithm>
#include <utility>

#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"

namespace gc3::verify::direct {

using ir::direct::Op;
using model::Buffer;

namespace {

std::vector<std::uint32_t> scratch_of(const ir::direct::Program& program) {
  std::vector<std::uint32_t> chunks;
  for (const ir::RankProgram& rank : program.ranks) chunks.push_back(rank.scratch_chunks);
  return chunks;
}

}  // namespace

Execution::Execution(const ir::direct::Program& program, std::uint32_t calls, std::vector<Weights> weights,
                     Counters counters)
    : p_(program),
      calls_(calls),
      counters_(std::move(counters)),
      values_(std::move(weights)),
      places_(program.collective, scratch_of(program), program.halves),
      ranks_(program.ranks.size()),
      boundaries_(program.ranks.size()),
      proxies_(program.channels.size()),
      meetings_(program.barriers.size()),
      accesses_(places_.count()),
      held_(places_.count(), Values::kUnwritten) {
  for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
    first_packet_.push_back(packet_count_);
    packet_count_ += p_.ranks[r].scratch_chunks;
    for (std::uint32_t t = 0; t < p_.ranks[r].tb_count; ++t) {
      Block block;
      block.rank = r;
      block.tb = p_.ranks[r].first_tb + t;
      blocks_.push_back(block);
    }
  }
  const bool uses_packets = std::ranges::any_of(p_.operands, [](const Operand& o) { return is_packet(o.access); });
  if (uses_packets) packets_.resize(packet_count_ * calls);
}

bool Execution::run(Findings& findings) {
  for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) between_calls(r);
  Breath breathe;
  for (bool moved = true; moved;) {
    moved = false;
    for (Block& block : blocks_) {
      while (advance(block)) {
        breathe();
        moved = true;
      }
    }
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      if (ranks_[r].call == calls_ || ranks_[r].ended < p_.ranks[r].tb_count) continue;
      ++ranks_[r].call;
      between_calls(r);
      moved = true;
    }
  }
  if (std::ranges::all_of(ranks_, [&](const Rank& r) { return r.call == calls_; })) {
    check_packets();
    return true;
  }
  explain_waiting(findings);
  return false;
}

// What the caller does after a call and before the next: it reads the outputs, and writes all that is its own.
void Execution::between_calls(std::uint32_t rank) {
  const model::Collective& c = p_.collective;
  const std::uint32_t next = ranks_[rank].call;
  const Event event = order_.add({next, rank, kNone, 0, 0, false});
  for (const Block& block : blocks_) {
    if (block.rank == rank) order_.visible(block.synced);
  }
  if (!boundaries_[rank].empty()) order_.visible(boundaries_[rank].back());
  boundaries_[rank].push_back(event);
  for (std::uint32_t i = 0; next > 0 && i < c.output_chunks(rank); ++i) {
    const std::uint32_t place = places_.number(rank, Buffer::output, i, 0);
    expect_stored(event, place);  // and is no reader: it stores there as well
    const model::Demand demand = c.demand(rank, i);
    if (demand.size() != 0) make_input(rank, place, next - 1);
    if (demand.size() != 0 && held_[place] != Values::kSpoiled && !values_.holds(held_[place], next - 1, demand)) {
      wrong_.push_back({rank, i, next - 1, held_[place]});
    }
  }
  const auto all = [&](Buffer buffer, std::uint32_t chunks, std::uint32_t half = 0) {
    for (std::uint32_t i = 0; i < chunks; ++i) {
      const std::uint32_t place = places_.number(rank, buffer, i, half);
      write(event, place, true);
      held_[place] = Values::kUnwritten;
    }
  };
  all(Buffer::input, c.input_chunks(rank));
  all(Buffer::output, c.output_chunks(rank));
  for (std::uint32_t half = 0; p_.shared_scratch && half < p_.halves; ++half) {
    all(Buffer::scratch, p_.ranks[rank].scratch_chunks, half);
  }
  if (next == calls_) return;
  for (std::uint32_t i = 0; i < c.input_chunks(rank); ++i) {
    held_[places_.number(rank, Buffer::input, i, next)] = Values::kInput | i;
  }
  ranks_[rank].ended = 0;
  for (Block& block : blocks_) {
    if (block.rank != rank) continue;
    block.call = next;
    block.step = block.chunk = block.phase = 0;
    block.ended = false;
    block.synced = event;
  }
}

bool Execution::advance(Block& block) {
  if (block.ended) return false;
  if (block.step == p_.threadblocks[block.tb].step_count) {
    sync(block);
    block.ended = true;
    ++ranks_[block.rank].ended;
    return true;
  }
  if (!execute(block, step_of(block))) return false;
  ++block.step;
  block.chunk = 0;
  return true;
}

bool Execution::execute(Block& block, const Step& step) {
  switch (step.op) {
    case Op::move:
      return move(block, step);
    case Op::signal:
    case Op::release:
      give(block, step);
      return true;
    case Op::wait:
      return take(block, step, counters_.channels);
    case Op::acquire:
      return take(block, step, counters_.semaphores);
    case Op::barrier:
      return meet(block, step);
    case Op::sync:
      sync(block);
      return true;
    case Op::flush:
      for (std::uint32_t k = 0; k < step.sources; ++k) {
        const auto before = proxies_[p_.objects_of(step)[k]].before(block.tb, phase_of(block), k);
        thread_event(block, k);
        // The moves have read their sources. What they have stored is visible only after a signal of the channel.
        for (const Event e : before) order_.done(e);
      }
      return true;
  }
  return true;
}

void Execution::sync(Block& block) {
  const Event event = order_.add(made(block));
  order_.visible(block.synced);
  for (const Event e : block.since) order_.visible(e);
  block.synced = event;
  block.since.clear();
  block.of_thread.clear();
  ++block.phase;
}

// An event of one thread, after what the thread itself has waited for since the last sync.
Event Execution::thread_event(Block& block, std::uint32_t thread) {
  if (block.of_thread.size() <= thread) block.of_thread.resize(thread + 1, kNone);
  const Event event = order_.add(made(block));
  order_.visible(block.synced);
  order_.visible(block.of_thread[thread]);
  block.since.push_back(event);
  block.of_thread[thread] = event;
  return event;
}

// An event of a proxy, which a thread has told it at `told`.
Event Execution::proxy_event(const Block& block, std::uint32_t channel, std::uint32_t thread, Event told) {
  const auto before = proxies_[channel].before(block.tb, phase_of(block), thread);
  const Event event = order_.add(made(block, true));
  order_.visible(told);
  for (const Event e : before) order_.visible(e);
  proxies_[channel].tell(block.tb, thread, event);
  return event;
}

void Execution::give(Block& block, const Step& step) {
  for (std::uint32_t k = 0; k < step.sources; ++k) {
    const std::uint32_t object = p_.objects_of(step)[k];
    const Event event = thread_event(block, k);
    if (step.op == Op::release) {
      counters_.semaphores[object].give(block.tb, {event, false});
      continue;
    }
    Counter& channel = counters_.channels[object];
    if (!p_.channels[object].port) {
      channel.give(block.tb, {event, step.relaxed});
      continue;
    }
    // The proxy signals with release whatever the step says.
    channel.give(block.tb, {proxy_event(block, object, k, event), false});
  }
}

bool Execution::take(Block& block, const Step& step, std::vector<Counter>& counters) {
  const auto objects = p_.objects_of(step);
  // Thread by thread: a thread that has its signal does not wait for the others.
  for (; block.chunk < step.sources; ++block.chunk) {
    Counter& counter = counters[objects[block.chunk]];
    if (!counter.ready()) return false;
    const auto before = counter.before_next(block.call);
    ++counter.taken;
    thread_event(block, block.chunk);
    const bool relaxed = step.relaxed && !p_.channels[objects[block.chunk]].port;
    for (const Counter::Giver::Given& g : before) {
      if (relaxed || g.relaxed) {
        order_.done(g.event);
      } else {
        order_.visible(g.event);
      }
    }
  }
  return true;
}

bool Execution::meet(Block& block, const Step& step) {
  const std::uint32_t number = p_.objects_of(step)[0];
  Meeting& meeting = meetings_[number];
  const std::uint32_t all = p_.barriers[number].threadblocks;
  if (!block.arrived) {
    sync(block);
    meeting.came.push_back(block.synced);
    block.arrived = true;
    block.chunk = static_cast<std::uint32_t>(meeting.arrivals++ / all);  // the generation
    if (meeting.came.size() == all) {
      const Event met = order_.add(made(block));
      for (const Event e : meeting.came) order_.visible(e);
      meeting.came.clear();
      meeting.met.push_back(met);
    }
  }
  if (block.chunk >= meeting.met.size()) return false;
  const Event event = order_.add(made(block));
  order_.visible(block.synced);
  order_.visible(meeting.met[block.chunk]);
  block.synced = event;
  block.arrived = false;
  return true;
}

bool Execution::packets_there(const Block& block, const Step& step) const {
  return std::ranges::all_of(p_.sources(step), [&](const Operand& o) {
    return !is_packet(o.access) || packet(o.owner, o.chunk + block.chunk, block.call).writer != kNone;
  });
}

bool Execution::move(Block& block, const Step& step) {
  for (; block.chunk < step.count; ++block.chunk) {
    Event event = kNone;
    if (step.channel == kNone && !packets_there(block, step)) return false;
    if (step.channel != kNone) {
      event = proxy_event(block, step.channel, 0, thread_event(block, 0));
    } else {
      event = order_.add(made(block));
      order_.visible(block.synced);
      for (const Operand& o : p_.sources(step)) {
        if (is_packet(o.access)) order_.done(packet(o.owner, o.chunk + block.chunk, block.call).writer);
      }
      block.since.push_back(event);
    }
    move_chunk(block, step, event);
  }
  return true;
}

void Execution::move_chunk(Block& block, const Step& step, Event event) {
  std::optional<Value> moved;
  for (const Operand& o : p_.sources(step)) {
    each(o, [&](std::uint32_t rank) {
      const Value value = load(event, rank, o, o.chunk + block.chunk, block.call);
      moved = moved ? values_.sum(*moved, value) : value;
      if (rank != block.rank) ++transfers_;
    });
  }
  for (const Operand& o : p_.targets(step)) {
    each(o, [&](std::uint32_t rank) {
      store(event, rank, o, o.chunk + block.chunk, block.call, *moved);
      if (rank != block.rank) ++transfers_;
    });
  }
}

Execution::Value Execution::load(Event event, std::uint32_t rank, const Operand& o, std::uint32_t chunk,
                                 std::uint32_t call) {
  if (is_packet(o.access)) {
    Packet& from = packet(rank, chunk, call);
    if (order_.made(event).proxy && !expect_arrived(event, from, number_of_packet(rank, chunk)))
      return Values::kSpoiled;
    from.readers.push_back(event);
    return from.value;
  }
  const std::uint32_t place = places_.number(rank, o.buffer, chunk, call);
  read(event, place);
  make_input(rank, place, ranks_[rank].call);
  if (held_[place] != Values::kUnwritten) return held_[place];
  const Made& m = order_.made(event);
  const std::string text =
      step_text(m.rank, m.tb, m.step) + " reads " + places_.name(place) + ", which nothing has written";
  const bool known = std::ranges::any_of(unwritten_, [&](const Diagnostic& d) { return d.message == text; });
  if (!known && unwritten_.size() < 100) unwritten_.push_back({ErrorCode::UninitializedRead, text});
  return Values::kSpoiled;
}

void Execution::store(Event event, std::uint32_t rank, const Operand& o, std::uint32_t chunk, std::uint32_t call,
                      Value value) {
  if (!is_packet(o.access)) {
    const std::uint32_t place = places_.number(rank, o.buffer, chunk, call);
    write(event, place, false);
    held_[place] = value;
    return;
  }
  Packet& to = packet(rank, chunk, call);
  if (to.writer != kNone && to.writer != event) {
    // The same flag and data, and after the first: it has taken the packet.
    if (to.value == value && std::ranges::count(to.readers, event) != 0) {
      to.rewriters.push_back(event);
      return;
    }
    const std::uint32_t number = number_of_packet(rank, chunk);
    if (order_.first_of_steps({to.writer, event, number, true, true, false})) {
      packet_races_.push_back({ErrorCode::DataRace, name_of(number) + ": " + describe(to.writer, true) + " and " +
                                                        describe(event, true) +
                                                        ", in one call: whoever waits for it cannot tell them apart"});
    }
  }
  to.writer = event;
  to.value = value;
}

// A proxy waits for no packets. What it copies is the packet of this call if it comes after who wrote it, or after a
// thread that has taken it: two loads of one place do not see an older store after a newer one.
bool Execution::expect_arrived(Event proxy, const Packet& packet, std::uint32_t number) {
  const Made& m = order_.made(proxy);
  if (packet.writer == kNone) {
    if (packet_races_.size() < 100 && order_.first_of_steps({proxy, proxy, 0, false, false, false})) {
      packet_races_.push_back(
          {ErrorCode::DataRace, name_of(number) + ": " + describe(proxy, false) + " and may do so before it has come"});
    }
    return false;
  }
  const auto taken = [&](auto&& by) {
    const auto found =
        std::ranges::find_if(packet.readers, [&](Event e) { return !order_.made(e).proxy && by(order_.made(e)); });
    return found == packet.readers.end() ? kNone : *found;
  };
  Event before = taken([&](const Made& by) { return by.tb == m.tb; });
  if (before == kNone && order_.made(packet.writer).rank != m.rank) {
    before = taken([&](const Made& by) { return by.rank == m.rank; });
  }
  const bool stored = before == kNone;
  order_.expect({stored ? packet.writer : before, proxy, number, stored, false, false});
  return true;
}

void Execution::read(Event event, std::uint32_t place) {
  expect_stored(event, place);
  accesses_[place].readers.push_back(event);
}

void Execution::expect_stored(Event event, std::uint32_t place) {
  const Access& access = accesses_[place];
  if (access.writer != kNone) order_.expect({access.writer, event, place, true, false, access.by_caller});
}

void Execution::make_input(std::uint32_t rank, std::uint32_t place, std::uint32_t call) {
  Value& value = held_[place];
  if ((value & Values::kInput) != 0) value = values_.input(call, rank, value & ~Values::kInput);
}

void Execution::write(Event event, std::uint32_t place, bool by_caller) {
  Access& access = accesses_[place];
  if (access.readers.empty() && access.writer != kNone) {
    order_.expect({access.writer, event, place, true, true, access.by_caller});
  }
  for (const Event reader : access.readers) order_.expect({reader, event, place, false, true, true});
  access.readers.clear();
  access.writer = event;
  access.by_caller = by_caller;
}

// A packet may be overwritten once it has been read: in a later call with the same half, or by other programs that use
// the scratch between two calls.
void Execution::check_packets() {
  if (packets_.empty()) return;
  for (std::uint32_t call = 0; call < calls_; ++call) {
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      for (std::uint32_t chunk = 0; chunk < p_.ranks[r].scratch_chunks; ++chunk) {
        const Packet& here = packet(r, chunk, call);
        if (here.writer == kNone) continue;
        if (p_.shared_scratch) {
          expect_packet(r, chunk, boundaries_[r][call], here.writer, false);
          expect_packets(r, chunk, here, boundaries_[r][call + 1]);
        } else if (call + p_.halves < calls_) {
          expect_packets(r, chunk, here, packet(r, chunk, call + p_.halves).writer);
        }
      }
    }
  }
}

void Execution::expect_packets(std::uint32_t rank, std::uint32_t chunk, const Packet& before, Event after) {
  if (after == kNone) return;
  for (const Event reader : before.readers) expect_packet(rank, chunk, reader, after, false);
  if (before.readers.empty()) expect_packet(rank, chunk, before.writer, after, true);
  for (const Event writer : before.rewriters) expect_packet(rank, chunk, writer, after, true);
}

void Execution::expect_packet(std::uint32_t rank, std::uint32_t chunk, Event before, Event after, bool stored) {
  if (before < after) {
    order_.expect({before, after, number_of_packet(rank, chunk), stored, true, !stored});
  } else if (packet_races_.size() < 100 && order_.first_of_steps({after, before, 0, true, stored, false})) {
    packet_races_.push_back({ErrorCode::DataRace, name_of(number_of_packet(rank, chunk)) + ": " +
                                                      describe(after, true) + " before " + describe(before, stored) +
                                                      (stored ? "" : " what was there")});
  }
}

}  // namespace gc3::verify::direct
