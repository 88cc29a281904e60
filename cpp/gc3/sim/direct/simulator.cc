#include "gc3/sim/direct/simulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"
#include "gc3/sim/direct/state.h"
#include "gc3/sim/event_queue.h"
#include "gc3/sim/links.h"

namespace gc3::sim::direct {
namespace {

using ir::direct::is_packet;
using ir::direct::Op;
using ir::direct::Operand;
using ir::direct::Step;

constexpr std::uint64_t kMostPieces = 256;  // of a move: longer ones have longer pieces
constexpr std::size_t kMostNamed = 3;       // threadblocks that an error names
constexpr double kStore = 2;                // a multiprocessor loads 64 bytes in a cycle, and stores 32
constexpr std::uint64_t kWord = 16;         // bytes that a thread loads at a time

std::uint64_t piece_bytes(std::uint64_t bytes, const Timing& timing) {
  const std::uint64_t least = std::max((bytes + kMostPieces - 1) / kMostPieces, timing.in_flight / kInAir);
  return std::max((least + kWord - 1) / kWord * kWord, kWord);
}

Status check(const Options& o, std::uint64_t chunk_bytes, std::uint32_t ranks) {
  const Timing& t = o.timing;
  for (const double s : {t.op_s, t.local_s, t.release_s, t.proxy_s}) {
    if (!is_time(s)) return bad_simulation("a time of a one-sided program is a number of seconds, from 0 to 1000000");
  }
  if (!std::isfinite(t.bytes_per_s) || t.bytes_per_s <= 0)
    return bad_simulation("the rate of a multiprocessor is a number of bytes per second above 0");
  if (t.in_flight == 0) return bad_simulation("a threadblock has at least 1 byte in flight");
  return sim::check(o.start, chunk_bytes, ranks);
}

class Run {
 public:
  Run(const Wired& wired, std::uint64_t chunk_bytes, const Options& options)
      : wired_(wired),
        p_(*wired.program),
        options_(options),
        timing_(options.timing),
        chunk_bytes_(chunk_bytes),
        op_(picoseconds(timing_.op_s)),
        local_(picoseconds(timing_.local_s)),
        release_(picoseconds(timing_.release_s)),
        proxy_(picoseconds(timing_.proxy_s)),
        channels_(p_.channels.size()),
        semaphores_(p_.semaphores.size()),
        meetings_(p_.barriers.size()),
        proxies_(p_.channels.size()),
        free_(wired.machine->data().resources.size()),
        links_(wired.machine->data(), free_, outcome_.use) {
    outcome_.use.resize(free_.size());
    const Start& start = options.start;
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      const double late = start.delay_s.empty() ? 0 : start.delay_s[r];
      outcome_.rank_end.push_back(picoseconds(start.launch_s + late));
      slowdown_.push_back(start.slowdown.empty() ? 1 : start.slowdown[r]);
      first_place_.push_back(places_);
      places_ += p_.ranks[r].scratch_chunks;
    }
    packets_.resize(places_);
    processors_.resize(timing_.processors == 0 ? p_.threadblocks.size() : p_.ranks.size() * timing_.processors);
    for (std::size_t k = 0; k < semaphores_.size(); ++k) semaphores_[k].told.assign(p_.semaphores[k].initial, {});
    blocks_.resize(p_.threadblocks.size());
    pieces_.resize(blocks_.size() * kInAir);
    for (std::uint32_t t = 0; t < blocks_.size(); ++t) {
      Block& b = blocks_[t];
      b.rank = wired_.rank_of[t];
      b.at = outcome_.rank_end[b.rank];
      b.first_step = p_.threadblocks[t].first_step;
      b.step_count = p_.threadblocks[t].step_count;
      b.phase = b.step_count == 0 || chunk_bytes == 0 ? Phase::finished : Phase::arrives;
      if (b.phase == Phase::arrives) push(t, b.at);
    }
  }

  Result<Outcome> run() {
    Breath breathe;
    while (!queue_.empty()) {
      breathe();
      const Event e = queue_.pop();
      const std::uint32_t t = static_cast<std::uint32_t>(e.turn()) / (kInAir + 1);
      const std::uint32_t piece = static_cast<std::uint32_t>(e.turn()) % (kInAir + 1);
      piece != 0 ? arrive(t, piece - 1, e.time()) : advance(t, e.time());
    }
    Diagnostic problem(ErrorCode::SimulatedDeadlock, "threadblocks wait forever");
    for (std::uint32_t t = 0; t < blocks_.size() && problem.notes.size() < kMostNamed; ++t) {
      if (blocks_[t].phase == Phase::waits) problem.note(step_name(wired_, t, blocks_[t].step));
    }
    if (!problem.notes.empty()) return problem;
    for (const Time end : outcome_.rank_end) outcome_.time = std::max(outcome_.time, end);
    return std::move(outcome_);
  }

 private:
  const Step& step(const Block& b) const { return p_.steps[b.first_step + b.step]; }
  void push(std::uint32_t t, Time at, std::uint32_t piece = 0) { queue_.push({at, t * (kInAir + 1) + piece}); }
  Time slowed(const Block& b, Time work) const {
    return slowdown_[b.rank] == 1 ? work : std::llround(static_cast<double>(work) * slowdown_[b.rank]);
  }

  void advance(std::uint32_t t, Time now) {
    Block& b = blocks_[t];
    if (b.phase == Phase::moves) {
      b.issues = false;
      issue(t, now);
    } else if (b.phase == Phase::ends) {
      next_step(t, now);
    } else {
      b.at = now;
      begin(t);
    }
  }

  // The threadblock has come to a step, at `at`.
  void begin(std::uint32_t t) {
    Block& b = blocks_[t];
    const Step& s = step(b);
    switch (s.op) {
      case Op::move:
        return s.channel == kNone ? await_packets(t) : hand_over(t);
      case Op::signal:
        return signal(t);
      case Op::wait:
        return take(t, channels_, Cause::input);
      case Op::acquire:
        return take(t, semaphores_, Cause::semaphore);
      case Op::barrier:
        return meet(t);
      case Op::release:
      case Op::sync:
      case Op::flush:
        return pass(t);
    }
  }

  // A step that waits for no other threadblock.
  void pass(std::uint32_t t) {
    Block& b = blocks_[t];
    const Step& s = step(b);
    note(t, b.at, Cause::program, kNone);
    Time moved = b.at;
    for (const std::uint32_t k : p_.objects_of(s)) {
      if (s.op == Op::release) tell(semaphores_[k], {b.at + op_ + local_, b.record});
      if (s.op == Op::flush) moved = std::max(moved, proxies_[k]);
    }
    if (moved > b.at) bound(b, Cause::latency, kNone);
    end_at(t, moved + slowed(b, op_));
  }

  void signal(std::uint32_t t) {
    Block& b = blocks_[t];
    const Step& s = step(b);
    note(t, b.at, Cause::program, kNone);
    Time now = b.at + slowed(b, op_);
    if (!s.relaxed) {
      if (b.stored > now) bound(b, Cause::latency, kNone);
      now = std::max(now, b.stored) + slowed(b, release_);
    }
    if (b.record != kNone) outcome_.records[b.record].sends = 1;
    end_at(t, now);
    for (const std::uint32_t k : p_.objects_of(s)) {
      Time leaves = now;
      if (p_.channels[k].port) leaves = proxies_[k] = std::max(now, proxies_[k]) + proxy_;
      tell(channels_[k], {leaves + wired_.hops[k], b.record});
    }
  }

  void tell(Counter& c, Told told) {
    c.told.insert(std::ranges::upper_bound(c.told, told.at, {}, &Told::at), told);
    for (const std::uint32_t t : std::exchange(c.waiting, {})) retry(t);
  }
  void retry(std::uint32_t t) {
    blocks_[t].phase = Phase::arrives;
    begin(t);
  }

  // Takes one of each counter of the step, once all have one; earliest first.
  void take(std::uint32_t t, std::vector<Counter>& counters, Cause cause) {
    Block& b = blocks_[t];
    for (const std::uint32_t k : p_.objects_of(step(b))) {
      if (!counters[k].told.empty()) continue;
      counters[k].waiting.push_back(t);
      b.phase = Phase::waits;
      return;
    }
    Told last{b.at, kNone};
    for (const std::uint32_t k : p_.objects_of(step(b))) {
      if (counters[k].told.front().at > last.at) last = counters[k].told.front();
      counters[k].told.pop_front();
    }
    // Whoever waits for a signal loads the counter.
    if (step(b).op == Op::wait) last.at += local_;
    note(t, last.at, cause, last.record);
    end_at(t, last.at + slowed(b, op_));
  }

  void meet(std::uint32_t t) {
    const std::uint32_t k = p_.objects[step(blocks_[t]).first];
    std::vector<std::uint32_t>& come = meetings_[k];
    come.push_back(t);
    if (come.size() != p_.barriers[k].threadblocks) {
      blocks_[t].phase = Phase::waits;
      return;
    }
    const std::uint32_t last = *std::ranges::max_element(come, {}, [&](std::uint32_t c) { return blocks_[c].at; });
    const Time all = blocks_[last].at + local_;
    const std::uint32_t record = blocks_[last].record;
    for (const std::uint32_t c : std::exchange(come, {})) {
      note(c, all, Cause::semaphore, record);
      end_at(c, all + slowed(blocks_[c], op_));
    }
  }

  // A proxy moves the data after all that it was told before.
  void hand_over(std::uint32_t t) {
    Block& b = blocks_[t];
    const Step& s = step(b);
    note(t, b.at, Cause::program, kNone);
    const Time told = b.at + slowed(b, op_);
    Time through = std::max(told, proxies_[s.channel]) + proxy_;
    const Time start = through;
    const std::uint64_t bytes = s.count * chunk_bytes_;
    const std::uint64_t carried = is_packet(p_.operands[s.first].access) ? 2 * bytes : bytes;
    std::uint32_t slowest = kNone;
    for (std::uint32_t k = s.first; k != s.first + s.sources + s.targets; ++k) {
      occupy(wired_.ways[k], start, carried, through, slowest);
    }
    proxies_[s.channel] = through;
    deliver(s, start, through + wired_.hops[s.channel], b.record);
    ++outcome_.slice_ops;
    if (b.record != kNone) outcome_.records[b.record].bytes = bytes;
    end_at(t, told);
  }

  void await_packets(std::uint32_t t) {
    Block& b = blocks_[t];
    const Step& s = step(b);
    Told last{b.at, kNone};
    for (const Operand& o : p_.sources(s)) {
      if (!is_packet(o.access)) continue;
      for (std::uint32_t c = 0; c < s.count; ++c) {
        Packet& packet = packets_[first_place_[o.owner] + o.chunk + c];
        if (packet.first < 0) {
          packet.waiting.push_back(t);
          b.phase = Phase::waits;
          return;
        }
        if (packet.first > last.at) last = {packet.first, packet.record};
      }
    }
    note(t, last.at, Cause::input, last.record);
    b.at = last.at + slowed(b, op_);
    b.left = s.count * chunk_bytes_;
    b.packets = std::ranges::any_of(std::span(p_.operands).subspan(s.first, s.sources + s.targets), &is_packet,
                                    &Operand::access);
    b.piece = b.packets ? b.left : piece_bytes(b.left, timing_);
    b.over_links = b.hops = 0;
    if (b.record != kNone) outcome_.records[b.record].bytes = b.left;
    b.phase = Phase::moves;
    schedule(t, b.at);
  }

  void schedule(std::uint32_t t, Time at) {
    blocks_[t].issues = true;
    push(t, at);
  }

  // Loads the next piece of a move from all its sources.
  void issue(std::uint32_t t, Time now) {
    Block& b = blocks_[t];
    const Step& s = step(b);
    const std::uint64_t bytes = std::min(b.left, b.piece);
    b.left -= bytes;
    ++outcome_.slice_ops;
    double moved = 0;
    for (std::uint32_t k = s.first; k != s.first + s.sources + s.targets; ++k) {
      moved += (is_packet(p_.operands[k].access) ? 2 : 1) * (k < s.first + s.sources ? 1 : kStore);
    }
    const std::uint32_t number = t - p_.ranks[b.rank].first_tb;
    Time& processor =
        processors_[timing_.processors == 0 ? t : b.rank * timing_.processors + number % timing_.processors];
    const auto all = static_cast<std::uint64_t>(moved * static_cast<double>(bytes));
    processor = std::max(processor, now) + slowed(b, per_byte(timing_.bytes_per_s).of(all));
    Time hop = 0, through = now;
    std::uint32_t slowest = kNone;
    Time complete = now;
    for (std::uint32_t k = s.first; k != s.first + s.sources; ++k) {
      const Way& way = wired_.ways[k];
      const bool here = is_packet(p_.operands[k].access);  // has been waited for
      hop = std::max(hop, way.remote ? 2 * way.hop : local_);
      occupy(way, now, bytes, through, slowest);
      for (std::uint32_t c = 0; here && c < s.count; ++c) {
        const Operand& o = p_.operands[k];
        complete = std::max(complete, packets_[first_place_[o.owner] + o.chunk + c].last);
      }
    }
    // A piece that is longer than its share of what may be in flight takes several loads.
    const double share = static_cast<double>(timing_.in_flight) / (b.packets ? 1 : kInAir);
    const Time alone = std::llround(static_cast<double>(hop) * std::max(1.0, static_cast<double>(bytes) / share));
    const Time loaded = std::max({now + alone, through + hop, processor, complete});
    account(b, through - now, loaded == processor ? Time{0} : alone, slowest);
    const std::uint32_t slot = free_piece(t);
    pieces_[t * kInAir + slot] = {bytes, b.packets};
    ++b.in_air;
    push(t, b.packets ? store(b, now + hop, loaded, bytes) : loaded, slot + 1);
    if (b.left != 0 && b.in_air < kInAir) schedule(t, processor);
  }

  // A piece has been loaded, or what was stored of it has left.
  void arrive(std::uint32_t t, std::uint32_t slot, Time now) {
    Block& b = blocks_[t];
    Piece& piece = pieces_[t * kInAir + slot];
    if (!std::exchange(piece.loaded, true)) {
      const Time through = store(b, now, now, piece.bytes);
      if (through > now) return push(t, through, slot + 1);
    }
    piece.bytes = 0;
    --b.in_air;
    if (b.left != 0) {
      if (!b.issues) schedule(t, now);
    } else if (b.in_air == 0) {
      end_at(t, now);
    }
  }

  // Stores a piece from `now` on, not all of it before `ready`; returns when it has left.
  Time store(Block& b, Time now, Time ready, std::uint64_t bytes) {
    const Step& s = step(b);
    Time through = ready, arrived = ready;
    std::uint32_t slowest = kNone;
    for (std::uint32_t k = s.first + s.sources; k != s.first + s.sources + s.targets; ++k) {
      const Way& way = wired_.ways[k];
      occupy(way, now, bytes, through, slowest);
      arrived = std::max(arrived, through + way.hop);
      if (way.remote) b.stored = std::max(b.stored, through + 2 * way.hop);  // it is told that they have arrived
    }
    if (b.packets) deliver(s, now, arrived, b.record);
    account(b, through - now, 0, slowest);
    return through;
  }

  // Packets that a step writes: whoever waits for them may begin with the first ones.
  void deliver(const Step& s, Time start, Time last, std::uint32_t record) {
    for (std::uint32_t k = s.first + s.sources; k != s.first + s.sources + s.targets; ++k) {
      const Operand& o = p_.operands[k];
      if (!is_packet(o.access)) continue;
      const Time first = std::min(start + wired_.ways[k].hop, last);
      if (o.access == ir::direct::Access::packet) {
        write(o.owner, o, s.count, first, last, record);
      } else {
        for (const std::uint32_t rank : p_.groups[o.owner].ranks) write(rank, o, s.count, first, last, record);
      }
    }
  }
  void write(std::uint32_t rank, const Operand& o, std::uint32_t count, Time first, Time last, std::uint32_t record) {
    for (std::uint32_t c = 0; c < count; ++c) {
      Packet& packet = packets_[first_place_[rank] + o.chunk + c];
      packet.first = first;
      packet.last = last;
      packet.record = record;
      for (const std::uint32_t t : std::exchange(packet.waiting, {})) retry(t);
    }
  }

  std::uint32_t free_piece(std::uint32_t t) const {
    std::uint32_t slot = 0;
    while (pieces_[t * kInAir + slot].bytes != 0) ++slot;
    return slot;
  }

  void occupy(const Way& way, Time start, std::uint64_t bytes, Time& through, std::uint32_t& slowest) {
    const auto carried = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * way.carried));
    for (std::uint32_t k = way.taken.first; k != way.taken.first + way.taken.count; ++k) {
      links_.use(wired_.resources[k], start, carried, through, slowest);
    }
  }

  // What decides the time of a move: links, if its pieces spend more time on them than on the way.
  void account(Block& b, Time over_links, Time hops, std::uint32_t slowest) {
    b.over_links += over_links;
    b.hops += hops;
    if (slowest != kNone && b.over_links > b.hops) return bound(b, Cause::link, slowest);
    if (b.hops >= b.over_links && b.hops > 0) bound(b, Cause::latency, kNone);
  }
  void bound(const Block& b, Cause cause, std::uint32_t resource) {
    if (b.record == kNone) return;
    outcome_.records[b.record].delivered_by = cause;
    outcome_.records[b.record].resource = resource;
  }

  // Records that the step begins at `due`, when its wait has ended.
  void note(std::uint32_t t, Time due, Cause wait, std::uint32_t before) {
    if (!options_.record) return;
    Block& b = blocks_[t];
    Record r;
    r.ready = b.at;
    r.due = r.start = r.end = std::max(due, b.at);
    r.tb = t;
    r.step = b.step;
    if (due > b.at) r.wait = wait;
    r.before = r.sent_by = before;
    b.record = static_cast<std::uint32_t>(outcome_.records.size());
    outcome_.records.push_back(r);
  }

  // The threadblock has finished its step at `end`.
  void end_at(std::uint32_t t, Time end) {
    Block& b = blocks_[t];
    if (b.record != kNone) outcome_.records[b.record].end = outcome_.records[b.record].delivered = end;
    b.phase = Phase::ends;
    push(t, end);
  }
  void next_step(std::uint32_t t, Time now) {
    Block& b = blocks_[t];
    b.at = now;
    if (++b.step != b.step_count) {
      b.phase = Phase::arrives;
      return begin(t);
    }
    b.phase = Phase::finished;
    outcome_.rank_end[b.rank] = std::max(outcome_.rank_end[b.rank], now);
  }

  const Wired& wired_;
  const ir::direct::Program& p_;
  const Options& options_;
  const Timing& timing_;
  const std::uint64_t chunk_bytes_;
  const Time op_, local_, release_, proxy_;
  std::vector<double> slowdown_;
  std::vector<Counter> channels_;
  std::vector<Counter> semaphores_;
  std::vector<std::vector<std::uint32_t>> meetings_;  // by barrier: who has come
  std::vector<Time> proxies_;                         // by channel: until when its proxy moves what it was told
  std::vector<Time> free_;
  Outcome outcome_;
  Links links_;
  std::vector<Time> processors_;
  std::vector<std::size_t> first_place_;  // by rank, of its scratch
  std::size_t places_ = 0;
  std::vector<Packet> packets_;
  std::vector<Block> blocks_;
  std::vector<Piece> pieces_;  // kInAir of each threadblock
  EventQueue queue_;
};

}  // namespace

Result<Outcome> Simulator::run(std::uint64_t chunk_bytes, const Options& options) const {
  GC3_CHECK(check(options, chunk_bytes, static_cast<std::uint32_t>(wired_.program->ranks.size())));
  return Run(wired_, chunk_bytes, options).run();
}

std::uint64_t Simulator::work(std::uint64_t chunk_bytes, const Timing& timing) const {
  std::uint64_t pieces = 0;
  for (const Step& s : wired_.program->steps) {
    const std::uint64_t bytes = s.op == Op::move ? s.count * chunk_bytes : 0;
    pieces += 1 + bytes / piece_bytes(bytes, timing);
  }
  return pieces;
}

}  // namespace gc3::sim::direct
