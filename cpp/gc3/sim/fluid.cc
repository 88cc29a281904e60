#include "gc3/sim/fluid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "gc3/base/interrupt.h"
#include "gc3/sim/execution.h"
#include "gc3/sim/fair_rates.h"
#include "gc3/sim/in_switch.h"

namespace gc3::sim {
namespace {

constexpr Time kPending = std::numeric_limits<Time>::max() / 4;
constexpr double kDrained = 0.5;  // bytes: less is a rounding error

// A slice on its way through a threadblock and, if it is sent, over the machine's links.
struct Transfer {
  Flow flow;
  double left = 0;  // bytes
  std::uint32_t tb = 0;
  std::uint32_t out = kNone;  // connections
  std::uint32_t in = kNone;
  Unit* in_unit = nullptr;
  Unit* out_unit = nullptr;
  Time start = 0;
  Time work = 0;
  Time line = 0;
  Time delivered = kPending;
  std::uint64_t bytes = 0;
  ir::Opcode rest = ir::Opcode::nop;  // what of its instruction no other member of a group in a switch does
  std::uint32_t record = kNone;
  bool last_slice = true;
  bool posted = false;
  bool staged = false;
  bool ended = false;
};

class Fluid : public Execution<Fluid> {
 public:
  Fluid(const Simulator& simulator, const Call& call, const Options& options)
      : Execution(simulator, call, options), in_switch_(simulator.wiring()) {
    for (const Resource& r : machine_.resources) capacity_of_.push_back(r.bytes_per_s);
    // A connection's own limit counts as one more resource.
    for (const Connection& c : connections_) {
      const double most = machine_.classes[c.link_class].connection_bytes_per_s;
      capacity_of_.push_back(most > 0 ? most : std::numeric_limits<double>::infinity());
    }
  }

  void begin(std::uint32_t t, Time now) {
    Block& b = blocks_[t];
    const ir::Instruction& i = instruction(b);
    const ir::OpcodeInfo& does = ir::info(i.opcode);
    transfers_.push_back(std::make_unique<Transfer>());
    Transfer& transfer = *transfers_.back();
    transfer.tb = t;
    transfer.bytes = bytes_moved(b);
    if (does.sends || does.receives) {
      const Piece piece = message(b).slice(b.slice);
      transfer.last_slice = piece.ends_message;
      transfer.bytes = piece.bytes;
    }
    const ProtocolTiming& protocol = options_.protocol;
    const Carried& group = in_switch_.of(b.first_instruction + b.step);
    const bool sent_once = once(group.out, b);
    transfer.rest = i.opcode;
    if (sent_once) transfer.rest = kWithoutSending[static_cast<std::size_t>(transfer.rest)];
    if (once(group.received, b)) transfer.rest = without_receiving(transfer.rest);
    transfer.work = std::max(work_of(b, i, transfer.rest, transfer.bytes), Time{1});
    transfer.start = now;
    occupy(b.rank, now + transfer.work);
    if (protocol.cut_through) {
      const std::uint64_t line = std::min(transfer.bytes, protocol.line_bytes);
      transfer.line = op_ + rates_[static_cast<std::size_t>(i.opcode)].of(line);
    }
    if (options_.record) {
      const Cause bound = i.opcode == ir::Opcode::apply ? Cause::compute : Cause::program;
      transfer.record =
          remember(t, {b.ready, b.at, transfer.start, 0, 0, transfer.bytes, t, b.step, b.tile, b.before, kNone,
                       does.receives ? sender_of(b.receiving) : kNone, b.slice, b.wait, bound, does.sends});
    }
    if (does.receives) {
      transfer.in = b.receiving;
      transfer.in_unit = &taken_unit(b.receiving);
    }
    if (does.sends) {
      const Connection& c = connections_[b.sending];
      const bool alone = group.out == kNone && group.into == kNone;
      const double wire = alone ? 1 : 1 / machine_.classes[c.link_class].in_switch;
      if (!sent_once) use(transfer, c.out, wire);
      if (!once(group.into, b)) use(transfer, c.into, wire);
      start_flow(transfer, b.sending, now);
    } else {
      transfer.delivered = transfer.start + transfer.work;
    }
    settle(transfer, now);
    forget_ended();
  }

  // A transfer may have finished, or rates have to be computed again.
  void on_alarm(Time now) {
    const double passed = seconds(now - drained_at_);
    for (Transfer* f : flowing_) f->left -= f->flow.rate * passed;
    drained_at_ = now;
    std::vector<Transfer*> done;
    std::erase_if(flowing_, [&](Transfer* f) {
      if (f->left > kDrained) return false;
      done.push_back(f);
      return true;
    });
    for (Transfer* f : done) {
      f->delivered = std::max(now, f->start + f->work);
      if (options_.record && f->delivered > f->start + f->work) {
        Record& record = outcome_.records[f->record];
        const bool own = f->flow.bottleneck >= machine_.resources.size();
        record.delivered_by = own ? Cause::connection : Cause::link;
        record.resource = own ? kNone : f->flow.bottleneck;
      }
      settle(*f, now);
    }
    forget_ended();
    if (flowing_.empty()) return;
    std::vector<Flow*> flows;
    for (Transfer* f : flowing_) {
      breathe_();
      flows.push_back(&f->flow);
    }
    share_fairly(flows, capacity_of_);
    double next = std::numeric_limits<double>::infinity();
    for (const Transfer* f : flowing_) next = std::min(next, f->left / f->flow.rate);
    alarm(now + std::max(picoseconds(next), Time{1}));
  }

 private:
  // Whether another member of the group has begun this slice, and carries it for all.
  bool once(std::uint32_t group, const Block& b) {
    if (in_switch_.through(group, b)) return true;
    in_switch_.lead(group, b, {});
    return false;
  }

  // `wire`: bytes on the way for each of the transfer.
  void use(Transfer& transfer, Slice way, double wire) {
    const auto bytes = static_cast<double>(transfer.bytes);
    for (std::uint32_t k = way.first; k != way.first + way.count; ++k) {
      const std::uint32_t r = wiring_.resources[k];
      const Resource& resource = machine_.resources[r];
      const double weight = wire + resource.message_s * resource.bytes_per_s / bytes;
      transfer.flow.uses.push_back({r, weight});
      outcome_.use[r].bytes += static_cast<std::uint64_t>(std::llround(wire * bytes));
      outcome_.use[r].busy += picoseconds(weight * bytes / resource.bytes_per_s);
    }
  }

  void start_flow(Transfer& transfer, std::uint32_t out, Time now) {
    const Connection& c = connections_[out];
    const LinkClass& kind = machine_.classes[c.link_class];
    transfer.out = out;
    transfer.staged = kind.staged;
    transfer.left = static_cast<double>(transfer.bytes);
    if (!wiring_.memory.empty()) {
      const Block& b = blocks_[transfer.tb];
      const double traffic = options_.protocol.memory_bytes[static_cast<std::size_t>(transfer.rest)];
      const std::uint32_t r = wiring_.memory[b.rank];
      if (traffic > 0) transfer.flow.uses.push_back({r, traffic});
      outcome_.use[r].bytes += static_cast<std::uint64_t>(std::llround(traffic * transfer.left));
      outcome_.use[r].busy += picoseconds(traffic * transfer.left / machine_.resources[r].bytes_per_s);
    }
    if (kind.connection_bytes_per_s > 0) {
      const double weight = 1 + kind.connection_message_s * kind.connection_bytes_per_s / transfer.left;
      transfer.flow.uses.push_back({static_cast<std::uint32_t>(machine_.resources.size()) + out, weight});
    }
    transfer.flow.most = kind.staged ? 1e18 : transfer.left / seconds(transfer.work);
    transfer.out_unit = &sent_unit(out);
    if (options_.protocol.cut_through && !kind.staged) {
      transfer.posted = true;
      post(out, transfer.start + transfer.line + latency(out), kPending, transfer.last_slice, transfer.record);
    } else {
      reserve(out, transfer.last_slice);
    }
    flowing_.push_back(&transfer);
    transfer.flow.rate = 0;
    alarm(now);
  }

  // Advances a transfer as far as its known times allow.
  void settle(Transfer& transfer, Time now) {
    if (transfer.ended && transfer.delivered == kPending) return;
    Time arrived = transfer.start + transfer.work;
    if (transfer.in_unit != nullptr && options_.protocol.cut_through) {
      if (!transfer.ended && transfer.in_unit->last == kPending) return;  // its sender settles it
      if (!transfer.ended) arrived = std::max(arrived, transfer.in_unit->last + transfer.line);
    }
    if (!transfer.ended && (transfer.staged || transfer.delivered != kPending)) {
      const Time own = transfer.staged ? arrived : std::max(arrived, transfer.delivered);
      const Time end = std::max(own, now);
      if (transfer.delivered != kPending) transfer.delivered = std::max(transfer.delivered, arrived);
      transfer.ended = true;
      if (options_.record) outcome_.records[transfer.record].end = end;
      if (transfer.in != kNone) {
        give_back(transfer.in, end + latency(transfer.in) / 2, transfer.last_slice, transfer.record);
      }
      end_at(transfer.tb, end);
    }
    if (!transfer.ended || transfer.delivered == kPending) return;
    if (options_.record) outcome_.records[transfer.record].delivered = transfer.delivered;
    if (transfer.out == kNone) return;
    const Time last = transfer.delivered + latency(transfer.out);
    if (!transfer.posted) {
      post(transfer.out, last, last, transfer.last_slice, transfer.record);
      return;
    }
    transfer.out_unit->last = last;
    for (std::size_t k = 0; k < transfers_.size(); ++k) {
      Transfer& other = *transfers_[k];
      if (other.in_unit == transfer.out_unit && !other.ended) settle(other, now);
    }
  }

  void forget_ended() {
    std::erase_if(transfers_, [](const auto& t) { return t->ended && t->delivered != kPending; });
  }

  InSwitch in_switch_;
  std::vector<double> capacity_of_;  // of the machine's resources, then of the connections
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::vector<Transfer*> flowing_;
  Breath breathe_;  // of flows, all alarms together
  Time drained_at_ = 0;
};

}  // namespace

Result<Outcome> run_fluid(const Simulator& simulator, const Call& call, const Options& options) {
  return Fluid(simulator, call, options).run();
}

}  // namespace gc3::sim
