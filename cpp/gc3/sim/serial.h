// Links that serve one slice after the other, in the order of the requests.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "gc3/sim/execution.h"
#include "gc3/sim/in_switch.h"
#include "gc3/sim/links.h"
#include "gc3/sim/simulator.h"

namespace gc3::sim {

class Serial : public Execution<Serial> {
 public:
  // `free` has the time from which each resource of the machine is free. Executions that share it share the resources.
  Serial(const Simulator& simulator, const Call& call, const Options& options, std::span<Time> free)
      : Execution(simulator, call, options),
        free_(free),
        links_(simulator.machine().data(), free, outcome_.use),
        in_switch_(simulator.wiring()),
        submit_(picoseconds(simulator.machine().data().submit_s)),
        submitted_(simulator.program().ranks.size()) {
    const MachineData& machine = simulator.machine().data();
    for (const LinkClass& c : machine.classes) {
      const double rate = c.connection_bytes_per_s;
      classes_.push_back({per_byte(rate), picoseconds(c.connection_message_s), rate > 0 || c.connection_message_s > 0,
                          c.staged, c.in_switch, c.requests});
    }
  }

  void begin(std::uint32_t t, Time now) {
    Block& b = blocks_[t];
    const ir::Instruction& i = instruction(b);
    const ir::OpcodeInfo& does = ir::info(i.opcode);
    std::uint64_t bytes = bytes_moved(b);
    bool last_slice = true;
    if (does.sends || does.receives) {
      const Piece piece = message(b).slice(b.slice);
      last_slice = piece.ends_message;
      bytes = piece.bytes;
    }
    const Time start = now;
    const Carried& group = in_switch_.of(b.first_instruction + b.step);
    const auto sent_once = in_switch_.through(group.out, b);
    const auto received_once = in_switch_.through(group.received, b);
    ir::Opcode rest = i.opcode;
    if (sent_once) rest = kWithoutSending[static_cast<std::size_t>(rest)];
    if (received_once) rest = without_receiving(rest);
    Time end = start + work_of(b, i, rest, bytes);
    if (!received_once) in_switch_.lead(group.received, b, {});
    occupy(b.rank, end);
    Cause bound = i.opcode == ir::Opcode::apply ? Cause::compute : Cause::program;
    std::uint32_t bottleneck = kNone;
    if (!wiring_.memory.empty()) {
      const double traffic = options_.protocol.memory_bytes[static_cast<std::size_t>(rest)];
      const auto moved = static_cast<std::uint64_t>(static_cast<double>(bytes) * traffic + 0.5);
      Time done = end;
      links_.use(wiring_.memory[b.rank], start, moved, done, bottleneck);
      if (done > end) {
        end = done;
        bound = Cause::link;
      }
    }
    Time line = 0;
    if (options_.protocol.cut_through)
      line = op_ + rates_[static_cast<std::size_t>(i.opcode)].of(std::min(bytes, options_.protocol.line_bytes));
    std::uint32_t sent_by = kNone;
    if (does.receives) {
      sent_by = sender_of(b.receiving);
      // The slice that arrived last cannot be processed before its arrival.
      if (const Time after = taken_unit(b.receiving).last + line; options_.protocol.cut_through && after > end) {
        end = after;
        bound = Cause::input;
      }
    }
    if (does.receives) {
      Time through = start;
      std::uint32_t slowest = kNone;
      pull(b.receiving, start, bytes, through, slowest);
      if (through > end) {
        end = through;
        bound = Cause::link;
        bottleneck = slowest;
      }
    }
    Time delivered = end;
    if (does.sends) {
      Connection& c = connections_[b.sending];
      const Class& kind = classes_[c.link_class];
      Time sent = start;
      std::uint32_t slowest = kNone;
      if (kind.requests == 0) send(b, group, kind, sent_once, bytes, end, sent, slowest);
      Cause limit = slowest == kNone ? Cause::program : Cause::link;
      if (kind.limited) {
        c.free = std::max(c.free, start) + kind.message + kind.rate.of(bytes);
        if (c.free > sent) {
          sent = c.free;
          limit = Cause::connection;
        }
      }
      if (sent > delivered) {
        delivered = sent;
        bound = limit;
        bottleneck = slowest;
        if (!kind.staged) end = sent;
      }
    }
    std::uint32_t record = kNone;
    if (options_.record) {
      record = remember(t, {b.ready, b.at, start, end, delivered, bytes, t, b.step, b.tile, b.before,
                            bound == Cause::link ? bottleneck : kNone, sent_by, b.slice, b.wait, bound, does.sends});
    }
    if (does.sends) {
      const Class& kind = classes_[connections_[b.sending].link_class];
      const Time hop = latency(b.sending);
      const Time last = delivered + hop;
      const Time first = options_.protocol.cut_through && !kind.staged ? std::min(start + line + hop, last) : last;
      post(b.sending, first, last, last_slice, record);
    }
    if (does.receives) give_back(b.receiving, end + latency(b.receiving) / 2, last_slice, record);
    end_at(t, end);
  }

  void on_alarm(Time) {}  // none is ever set

 private:
  struct Class {
    PerByte rate;
    Time message = 0;
    bool limited = false;
    bool staged = false;
    double in_switch = 0;
    double requests = 0;
  };

  // Occupies the way of a slice from `start`, the parts that no other member of a group has occupied for it. `end`: of
  // the threadblock's own work. `sent` is the start, and then the time at which the slice is through.
  void send(const Block& b, const Carried& group, const Class& kind, std::optional<InSwitch::Through> out,
            std::uint64_t bytes, Time end, Time& sent, std::uint32_t& slowest) {
    const Connection& c = connections_[b.sending];
    if (const std::uint32_t engine = wiring_.wires[b.sending].engine; engine != kNone) {
      copy(engine, b.rank, c, bytes, sent, slowest);
      return;
    }
    const Time start = sent;
    if (group.out == kNone && group.into == kNone) {
      take(c.out, start, bytes, sent, slowest);
      take(c.into, start, bytes, sent, slowest);
      return;
    }
    const auto carried = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) / kind.in_switch));
    const auto pass = [&](std::uint32_t number, Slice way, const std::optional<InSwitch::Through>& once) {
      if (once) {
        if (once->end > sent) slowest = once->resource;
        sent = std::max(sent, once->end);
        return;
      }
      take(way, start, carried, sent, slowest);
      in_switch_.lead(number, b, sent < end ? InSwitch::Through{end, kNone} : InSwitch::Through{sent, slowest});
    };
    pass(group.out, c.out, out);
    pass(group.into, c.into, in_switch_.through(group.into, b));
  }

  // The receiver of a slice on connection `c` loads it, if that is how messages move there.
  void pull(std::uint32_t c, Time start, std::uint64_t bytes, Time& through, std::uint32_t& bottleneck) {
    const double requests = classes_[connections_[c].link_class].requests;
    if (requests == 0) return;
    const auto asked = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * requests));
    take(connections_[c].out, start, bytes, through, bottleneck);
    take(connections_[c].into, start, bytes, through, bottleneck);
    // Requests are short: they go between the packets of other slices, and leave less for these.
    Time passed = start;
    std::uint32_t ignored = kNone;
    take(wiring_.wires[c].back_out, start, asked, passed, ignored);
    take(wiring_.wires[c].back_into, start, asked, passed, ignored);
  }

  // A copy engine moves a slice once it is free and the copy has been submitted. It is busy until the slice is through.
  void copy(std::uint32_t engine, std::uint32_t rank, const Connection& c, std::uint64_t bytes, Time& sent,
            std::uint32_t& slowest) {
    if (submitted_[rank] == 0) submitted_[rank] = sent;
    submitted_[rank] += submit_;
    const Time asked = sent;
    const Time begin = std::max({free_[engine], sent, submitted_[rank]});
    const Time start = sent = begin + links_.message(engine);
    take(c.out, start, bytes, sent, slowest);
    take(c.into, start, bytes, sent, slowest);
    if (start - asked >= sent - start) slowest = engine;
    free_[engine] = sent;
    outcome_.use[engine].busy += links_.message(engine);  // what it needs in any order of the links' work
    outcome_.use[engine].bytes += bytes;
  }

  void take(Slice way, Time start, std::uint64_t bytes, Time& sent, std::uint32_t& bottleneck) {
    for (std::uint32_t k = way.first; k != way.first + way.count; ++k) {
      links_.use(wiring_.resources[k], start, bytes, sent, bottleneck);
    }
  }

  std::span<Time> free_;
  Links links_;
  InSwitch in_switch_;
  std::vector<Class> classes_;
  const Time submit_;
  std::vector<Time> submitted_;  // by rank: when its last copy so far was; 0: it has none
};

Result<Outcome> run_serial(const Simulator& simulator, const Call& call, const Options& options);

}  // namespace gc3::sim
