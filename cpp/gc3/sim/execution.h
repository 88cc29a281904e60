// Executes a program as the interpreter would, threadblock by threadblock in the order of time. It is the common part
// of all models of shared links. An engine derives from Execution<Engine> and provides
//   begin(tb, now)    starts the next slice, which no longer waits for anything, and arranges that `post`,
//                     `give_back` and `end_at` are called with the resulting times
//   on_alarm(now)     called at the times requested by `alarm`
//
// Every slice is one event, its start: once a slice's end is known, so is the start of the slices that wait for it.
// Only a step with dependents has a second event for its end.
//
// Events of one time have their turns by threadblock. In programs of which one rank stands for all they have them in
// rounds (event_queue.h), and in each by the threadblock's number in its rank, so that ranks stay alike (classes.cc).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"
#include "gc3/sim/cores.h"
#include "gc3/sim/deadlock.h"
#include "gc3/sim/event_queue.h"
#include "gc3/sim/outcome.h"
#include "gc3/sim/simulator.h"
#include "gc3/sim/state.h"
#include "gc3/sim/work.h"

namespace gc3::sim {

template <class Engine>
class Execution {
 public:
  Execution(const Simulator& simulator, const Call& call, const Options& options)
      : program_(simulator.program()),
        machine_(simulator.machine().data()),
        wiring_(simulator.wiring()),
        options_(options),
        call_(call),
        tiles_(cut(call, options.protocol, simulator.wiring().max_count)),
        capacity_(options.protocol.slots * options.protocol.slices),
        op_(picoseconds(options.protocol.op_s)),
        rendezvous_(options.protocol.rendezvous_bytes),
        lend_rate_{per_byte(options.protocol.lend_bytes_per_s)},
        cores_(simulator.machine().data(), program_.ranks.size()),
        alike_(simulator.classes() != nullptr && cores_.count() == 0) {
    for (const LinkClass& c : machine_.classes) latency_.push_back(picoseconds(c.latency_s));
    for (std::size_t i = 1; i < ir::kOpcodeCount; ++i) rates_[i] = per_byte(options.protocol.bytes_per_s[i]);
    outcome_.use.resize(machine_.resources.size());
    make_blocks();
    make_connections();
  }

  Result<Outcome> run() {
    for (std::uint32_t t = 0; t < blocks_.size(); ++t) {
      if (blocks_[t].phase != Phase::finished) prepare(t);
    }
    Breath breathe;
    while (!queue_.empty()) {
      breathe();
      step();
      if (too_many_records_) {
        return Diagnostic(ErrorCode::TooManyRecords,
                          "more than " + std::to_string(options_.max_records) + " operations to remember");
      }
    }
    if (unfinished_ != 0) return deadlock();
    for (const Time end : outcome_.rank_end) outcome_.time = std::max(outcome_.time, end);
    return std::move(outcome_);
  }

  // For a caller that has several executions (see together.h). Ranks run only after `launch`, at a time no earlier than
  // that of any event so far; ranks that finish, and their last times, are in `ended`.
  void hold_ranks() {
    left_.resize(program_.ranks.size());
    for (const Block& b : blocks_) left_[b.rank] += std::uint32_t{b.phase != Phase::finished};
  }
  void launch(std::uint32_t rank, Time at) {
    outcome_.rank_end[rank] = at;
    if (left_[rank] == 0) ended_.push_back(rank);
    const ir::RankProgram& own = program_.ranks[rank];
    for (std::uint32_t t = own.first_tb; t < own.first_tb + own.tb_count; ++t) {
      if (blocks_[t].phase == Phase::finished) continue;
      blocks_[t].ready = blocks_[t].at = at;
      prepare(t);
    }
  }
  bool waits() const { return queue_.empty(); }  // nothing happens before another launch
  bool finished() const { return unfinished_ == 0; }
  Time next_time() { return queue_.first().time(); }
  void step() {
    const Event e = queue_.begin(alike_);
    const auto high = static_cast<std::uint32_t>(e.turn() >> 32U), low = static_cast<std::uint32_t>(e.turn());
    if (high != kNone) {
      advance(alike_ ? program_.ranks[low].first_tb + high : low, e.time());
    } else if (low == 0) {
      static_cast<Engine*>(this)->on_alarm(e.time());
    } else {
      turn(low - 1, e.time());
    }
    queue_.end();
  }
  std::vector<std::uint32_t>& ended() { return ended_; }
  const Outcome& outcome() const { return outcome_; }
  Diagnostic deadlock() const {
    std::uint32_t first = 0;
    while (blocks_[first].phase == Phase::finished) ++first;
    Diagnostic problem(ErrorCode::SimulatedDeadlock, "with " + std::to_string(options_.protocol.slots) +
                                                         " slots per connection, " + std::to_string(unfinished_) +
                                                         " threadblocks wait forever");
    const auto describe = [this](std::uint32_t t) {
      return " in tile " + std::to_string(blocks_[t].tile) + waits_text(blocks_[t].phase);
    };
    note_cycle(
        problem, first, blocks_.size(), [this](std::uint32_t t) { return waits_for(t); }, describe,
        [this](std::uint32_t t) { return name_of(t); });
    if (std::ranges::any_of(blocks_, [](const Block& b) { return b.phase == Phase::needs_receiver; }))
      problem.note("with a rendezvous, ranks have to post receives while they send: compile with a window (window=N)");
    return problem;
  }

 protected:
  const ir::Instruction& instruction(const Block& b) const {
    return program_.instructions[b.first_instruction + b.step];
  }
  MessageCut message(const Block& b) const {
    if (call_.lengths.empty()) return tiles_.message(b.tile, instruction(b).count);
    return cut_message(bytes_moved(b), options_.protocol);
  }
  // All that its instruction moves in this tile.
  std::uint64_t bytes_moved(const Block& b) const {
    const ir::Instruction& i = instruction(b);
    if (call_.lengths.empty()) return i.count * tiles_.chunk_bytes(b.tile);
    const std::uint64_t from = b.tile * tiles_.bytes;
    std::uint64_t bytes = 0;
    for (std::uint32_t k = 0; k < i.count; ++k) {
      const std::uint64_t length = call_.lengths[call_.first[b.first_instruction + b.step] + k];
      bytes += std::min(length - std::min(length, from), tiles_.bytes);
    }
    return bytes;
  }

  // The unit that the next slice on the connection is sent in, or received from.
  Unit& sent_unit(std::uint32_t c) { return units_[unit(c, connections_[c].next())]; }
  Unit& taken_unit(std::uint32_t c) { return units_[unit(c, connections_[c].consumed)]; }
  // A slice of a connection begins. It is posted when its times are known; until then it reserves its unit.
  void reserve(std::uint32_t c, bool ends_message) {
    connections_[c].under_way += ends_message ? units_left(connections_[c].next()) : 1;
  }
  // The next slice of a connection is being sent: its receiver may start at `first`.
  void post(std::uint32_t c, Time first, Time last, bool ends_message, std::uint32_t record) {
    Connection& connection = connections_[c];
    Unit& unit = units_[std::size_t{c} * capacity_ + connection.posted % capacity_];
    unit.first = first;
    unit.last = last;
    if (options_.record) senders_[std::size_t{c} * capacity_ + connection.posted % capacity_] = record;
    const std::uint32_t units = ends_message ? units_left(connection.posted) : 1;
    connection.posted += units;
    connection.under_way -= std::min(connection.under_way, units);
    if (connection.receiver_waits) {
      connection.receiver_waits = false;
      resume(connection.recv_tb, first, Cause::input, record);
    }
  }
  // The next slice of a connection has been received; the sender may reuse its unit from `credit` on.
  void give_back(std::uint32_t c, Time credit, bool ends_message, std::uint32_t record) {
    Connection& connection = connections_[c];
    const std::uint32_t units = ends_message ? units_left(connection.consumed) : 1;
    for (std::uint32_t u = connection.consumed; u != connection.consumed + units; ++u) {
      const std::size_t at = std::size_t{c} * capacity_ + u % capacity_;
      units_[at].credit = credit;
      if (options_.record) takers_[at] = record;
    }
    connection.consumed += units;
    if (connection.sender_waits) {
      connection.sender_waits = false;
      resume(connection.send_tb, credit, Cause::credit, record);
    }
  }
  // The threadblock is busy with its slice until `end`.
  void end_at(std::uint32_t t, Time end) {
    ++outcome_.slice_ops;
    Block& b = blocks_[t];
    const ir::Instruction& i = instruction(b);
    const ir::OpcodeInfo& does = ir::info(i.opcode);
    b.ready = b.at = end;
    b.wait = Cause::program;
    if (i.opcode == ir::Opcode::apply) computed_[b.rank] = {end, options_.record ? latest_[t] : kNone};
    if ((does.sends || does.receives) && b.slice + 1U != message(b).slices) {
      ++b.slice;
      prepare(t);
    } else if (i.has_dependents != 0) {
      b.phase = Phase::publishes;
      push(end, t);
    } else if (next_step(b)) {
      prepare(t);
    }
  }
  // From the last byte sent on a connection to the last byte usable.
  Time latency(std::uint32_t c) const { return connections_[c].near ? Time{0} : latency_[connections_[c].link_class]; }
  // The threadblock's own time for its slice of `bytes`; decides whether a message is lent.
  // `rest`: what of its instruction no other member of a group in a switch has done.
  Time work_of(const Block& b, const ir::Instruction& i, ir::Opcode rest, std::uint64_t bytes) {
    const ir::OpcodeInfo& does = ir::info(i.opcode);
    Time work = op_;
    if (rendezvous_ != 0 && b.slice == 0 && meets(b)) work += 2 * op_;
    if (!lent_.empty()) {
      // The sender only tells the address, unless the data is not stored in a buffer; the receiver reads the data
      // there.
      const bool borrowed = does.receives && lent_[unit(b.receiving, connections_[b.receiving].consumed)] != 0;
      const bool combined = wiring_.combined[b.first_instruction + b.step] != 0;
      const bool lends = does.keeps_sent() && options_.protocol.lends(bytes, combined);
      if (does.sends) lent_[unit(b.sending, connections_[b.sending].next())] = lends ? 1 : 0;
      if (lends) rest = kWithoutSending[static_cast<std::size_t>(rest)];
      if (borrowed) work += lend_rate_.of(bytes);
      const ir::OpcodeInfo& left = ir::info(rest);
      if (borrowed && !left.reduces && left.writes_local != left.sends)
        rest = ir::Opcode::nop;  // one copy, by the receiver
    }
    if (rest != ir::Opcode::nop)
      work += rest == ir::Opcode::apply ? call_.applied[i.src_chunk] : rates_[static_cast<std::size_t>(rest)].of(bytes);
    if (options_.start.slowdown.empty()) return work;
    return std::llround(static_cast<double>(work) * options_.start.slowdown[b.rank]);
  }
  // If ranks share processors, that of `rank` is busy until then.
  void occupy(std::uint32_t rank, Time until) {
    if (cores_.count() != 0) move_on(cores_.core_of(rank), until);
  }
  // Calls `on_alarm` at that time, before processors choose their next work.
  void alarm(Time at) { queue_.push({at, kOthers}); }
  // Records that threadblock `t` has begun an operation; returns the number of the record.
  std::uint32_t remember(std::uint32_t t, const Record& record) {
    if (outcome_.records.size() >= options_.max_records) {
      too_many_records_ = true;
      return kNone;
    }
    outcome_.records.push_back(record);
    latest_[t] = static_cast<std::uint32_t>(outcome_.records.size() - 1);
    return latest_[t];
  }
  // The record of the receive that emptied the unit where the next slice goes.
  std::uint32_t taker_of(std::uint32_t c) const {
    return options_.record ? takers_[std::size_t{c} * capacity_ + connections_[c].next() % capacity_] : kNone;
  }
  // The record of the send of the next slice on a connection.
  std::uint32_t sender_of(std::uint32_t c) const {
    return options_.record ? senders_[std::size_t{c} * capacity_ + connections_[c].consumed % capacity_] : kNone;
  }

  const ir::Program& program_;
  const MachineData& machine_;
  const Wiring& wiring_;
  const Options& options_;
  const Call& call_;
  const Tiles tiles_;
  const std::uint32_t capacity_;
  const Time op_;
  const std::uint64_t rendezvous_;
  std::array<PerByte, ir::kOpcodeCount> rates_{};
  const PerByte lend_rate_;
  std::vector<Time> latency_;  // by link class
  Cores cores_;
  const bool alike_;  // whether ranks that are alike stay so
  Rounds queue_;
  std::vector<Block> blocks_;
  std::vector<Connection> connections_;
  std::vector<Unit> units_;         // capacity_ of each connection
  std::vector<std::uint8_t> lent_;  // if messages are lent: whether each unit's message is
  // With records: the sender and the receiver of each unit, and the last record of each threadblock.
  std::vector<std::uint32_t> senders_;
  std::vector<std::uint32_t> takers_;
  std::vector<std::uint32_t> latest_;
  Outcome outcome_;

 private:
  // From `unit` to the end of its slot.
  std::uint32_t units_left(std::uint32_t unit) const {
    return options_.protocol.slices - unit % options_.protocol.slices;
  }

  void make_blocks() {
    const Start& start = options_.start;
    outcome_.rank_end.resize(program_.ranks.size());
    for (std::size_t r = 0; r < outcome_.rank_end.size(); ++r)
      outcome_.rank_end[r] = picoseconds(start.launch_s + (start.delay_s.empty() ? 0 : start.delay_s[r]));
    computed_.resize(outcome_.rank_end.size());
    copy_buffers();
    blocks_.resize(program_.threadblocks.size());
    queue_.reserve(blocks_.size() + 1);
    for (std::uint32_t t = 0; t < blocks_.size(); ++t) {
      Block& b = blocks_[t];
      b.rank = wiring_.rank_of[t];
      b.ready = b.at = outcome_.rank_end[b.rank];
      b.step_count = program_.threadblocks[t].instruction_count;
      b.first_instruction = program_.threadblocks[t].first_instruction;
      b.sending = wiring_.sending[t];
      b.receiving = wiring_.receiving[t];
      if (b.step_count == 0 || tiles_.count == 0) {
        b.phase = Phase::finished;
      } else {
        ++unfinished_;
      }
    }
    if (options_.record) latest_.assign(blocks_.size(), kNone);
  }

  // Ranks that share a processor make their copies one after the other, before any of them runs.
  void copy_buffers() {
    if (call_.copied.empty()) return;
    const PerByte rate = rates_[static_cast<std::size_t>(ir::Opcode::copy)];
    for (std::uint32_t r = 0; r < call_.copied.size(); ++r) {
      for (std::uint32_t other = 0; other < call_.copied.size(); ++other)
        if (other == r || cores_.share(other, r)) outcome_.rank_end[other] += rate.of(call_.copied[r]);
    }
  }

  void make_connections() {
    connections_.resize(wiring_.wires.size());
    units_.resize(connections_.size() * capacity_);
    if (options_.protocol.lends_any()) lent_.resize(units_.size());
    for (std::size_t c = 0; c < connections_.size(); ++c) {
      const Wire& wire = wiring_.wires[c];
      Connection& connection = connections_[c];
      connection.send_tb = wire.send_tb;
      connection.recv_tb = wire.recv_tb;
      connection.link_class = static_cast<std::uint16_t>(wire.link_class);
      connection.near = cores_.share(wiring_.rank_of[wire.send_tb], wiring_.rank_of[wire.recv_tb]);
      connection.out = wire.out;
      connection.into = wire.into;
    }
    if (options_.record) {
      senders_.assign(units_.size(), kNone);
      takers_.assign(units_.size(), kNone);
    }
  }

  // Wakes a threadblock that was waiting; it continues at `at` or later.
  void resume(std::uint32_t t, Time at, Cause cause, std::uint32_t record) {
    blocks_[t].delay(at, cause, record);
    prepare(t);
  }

  // The turn of a threadblock. After all of them come the alarm and processors.
  static constexpr std::uint64_t kOthers = std::uint64_t{kNone} << 32U;
  void push(Time at, std::uint32_t t) {
    const std::uint32_t rank = blocks_[t].rank;
    queue_.push({at, alike_ ? std::uint64_t{t - program_.ranks[rank].first_tb} << 32U | rank : std::uint64_t{t}});
  }
  // A processor has finished its current work.
  void turn(std::uint32_t core, Time now) {
    cores_.set_moving(core, false);
    if (const std::uint32_t t = cores_.take(core); t != kNone) {
      static_cast<Engine*>(this)->begin(t, now);
      return;
    }
    // If only processors that switch were left, the simulation would never end.
    const bool looks = cores_.waiting() != 0 || queue_.size() != cores_.moving();
    if (looks && cores_.yield(core)) move_on(core, now + cores_.switch_time());
  }
  void move_on(std::uint32_t core, Time until) {
    cores_.set_moving(core, true);
    queue_.push({until, kOthers + 1 + core});
  }
  std::size_t unit(std::uint32_t c, std::uint32_t number) const {
    return std::size_t{c} * capacity_ + number % capacity_;
  }

  // An event of the threadblock: its next slice starts, or a step that others wait for has ended.
  void advance(std::uint32_t t, Time now) {
    Block& b = blocks_[t];
    if (b.phase == Phase::due) {
      if (instruction(b).opcode != ir::Opcode::nop) {
        const Computed& other = computed_[b.rank];
        if (instruction(b).opcode == ir::Opcode::apply && other.end > now) {
          b.delay(other.end, Cause::compute, other.record);
          return push(b.at, t);
        }
        b.phase = Phase::busy;
        if (cores_.count() == 0) {
          static_cast<Engine*>(this)->begin(t, now);
        } else {
          cores_.add(b.rank, t);
          if (const std::uint32_t core = cores_.core_of(b.rank); cores_.rests(core)) turn(core, now);
        }
        return;
      }
      if (options_.record) latest_[t] = readied(t);  // it is not recorded
      b.ready = b.at;
    }
    const bool publishes = instruction(b).has_dependents != 0;
    const bool goes_on = next_step(b);
    if (publishes && b.first_waiter != kNone) wake_waiters(t, now);
    if (goes_on) prepare(t);
  }

  // Determines when the next slice can start; if that is not known yet, the event that decides it calls `resume`.
  void prepare(std::uint32_t t) {
    Block& b = blocks_[t];
    const ir::Instruction& i = instruction(b);
    if (b.slice == 0 && i.dep_count != 0 && !dependencies_met(t, i)) return;
    const ir::OpcodeInfo& does = ir::info(i.opcode);
    if (does.receives) {
      Connection& c = connections_[b.receiving];
      if (c.posted == c.consumed) {
        c.receiver_waits = true;
        b.phase = Phase::needs_input;
        if (rendezvous_ != 0 && blocks_[c.send_tb].phase == Phase::needs_receiver) prepare(c.send_tb);
        return;
      }
      b.delay(taken_unit(b.receiving).first, Cause::input, sender_of(b.receiving));
    }
    if (does.sends) {
      Connection& c = connections_[b.sending];
      if (c.next() - c.consumed >= capacity_) {
        c.sender_waits = true;
        b.phase = Phase::needs_credit;
        return;
      }
      b.delay(sent_unit(b.sending).credit, Cause::credit, taker_of(b.sending));
      if (rendezvous_ != 0 && b.slice == 0 && meets(b)) {
        if (!c.receiver_waits || c.next() != c.consumed) {  // it waits for this message, not for one under way
          b.phase = Phase::needs_receiver;
          return;
        }
        const Time hop = latency_[c.link_class], asked = b.at + hop, there = blocks_[c.recv_tb].at;
        b.delay(std::max(asked, there) + hop, Cause::receiver, readied(there > asked ? c.recv_tb : t));
      }
    }
    b.phase = Phase::due;
    push(b.at, t);
  }

  // The record that a threadblock waited for last, or else that of its previous operation.
  std::uint32_t readied(std::uint32_t t) const {
    return !options_.record ? kNone : blocks_[t].at > blocks_[t].ready ? blocks_[t].before : latest_[t];
  }
  // Whether the instruction's message is sent or received by rendezvous.
  bool meets(const Block& b) const {
    const ir::OpcodeInfo& does = ir::info(instruction(b).opcode);
    return (does.sends || does.receives) && bytes_moved(b) >= rendezvous_;
  }

  // False: the threadblock has finished, at `ready`.
  bool next_step(Block& b) {
    b.slice = 0;
    if (++b.step != b.step_count) return true;
    b.step = 0;
    if (++b.tile != tiles_.count) return true;
    b.phase = Phase::finished;
    outcome_.rank_end[b.rank] = std::max(outcome_.rank_end[b.rank], b.ready);
    --unfinished_;
    if (!left_.empty() && --left_[b.rank] == 0) ended_.push_back(b.rank);
    return false;
  }

  // A threadblock that waits for a later time goes back into the queue.
  void wake_waiters(std::uint32_t t, Time now) {
    std::uint32_t waiter = std::exchange(blocks_[t].first_waiter, kNone);
    while (waiter != kNone) {
      const std::uint32_t next = blocks_[waiter].next_waiter;
      resume(waiter, now, Cause::semaphore, options_.record ? latest_[t] : kNone);
      waiter = next;
    }
  }

  bool dependencies_met(std::uint32_t t, const ir::Instruction& i) {
    Block& b = blocks_[t];
    const std::uint32_t first = program_.ranks[b.rank].first_tb;
    for (const ir::Dependency& d : program_.deps(i)) {
      Block& other = blocks_[first + d.tb];
      if (other.steps_done() >= std::uint64_t{b.tile} * other.step_count + d.step + 1) continue;
      b.next_waiter = other.first_waiter;
      b.awaits = first + d.tb;
      b.phase = Phase::needs_step;
      other.first_waiter = t;
      return false;
    }
    return true;
  }

  std::uint32_t waits_for(std::uint32_t t) const {
    const Block& b = blocks_[t];
    if (b.phase == Phase::needs_input) return connections_[b.receiving].send_tb;
    if (b.phase == Phase::needs_credit || b.phase == Phase::needs_receiver) return connections_[b.sending].recv_tb;
    return b.awaits;
  }
  std::string name_of(std::uint32_t t) const { return step_name(program_, wiring_, t, blocks_[t].step); }

  std::vector<Computed> computed_;  // by rank, the last one that has begun
  std::size_t unfinished_ = 0;
  // With ranks that are held: how many threadblocks of each have not finished, and ranks that have ended.
  std::vector<std::uint32_t> left_;
  std::vector<std::uint32_t> ended_;
  bool too_many_records_ = false;
};

}  // namespace gc3::sim
