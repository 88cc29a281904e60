// Executes direct programs in small steps under random schedules and a weak memory, to judge the prover, with which it
// shares no code. For small programs.
//
// Every chunk has two halves; for each step other threads of the threadblock may handle them. A step of several objects
// has a thread for each; the first thread tells proxies of moves. An access is of one half of one chunk. Several calls
// follow each other on each rank; between two of them the user reads the outputs, and stores new inputs and other data
// into the outputs.
//
// Wrong are what is wrong in memory, a wrong result, changed input, and threadblocks that wait forever.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/ir/direct/program.h"
#include "gc3/ir/direct/test_memory.h"

namespace gc3::ir::direct::test {

class DirectWeaver final : WeakMemory {
 public:
  DirectWeaver(const Program& program, std::uint32_t calls, std::uint64_t seed, bool strict = false)
      : p_(program), calls_(calls), seed_(seed), random_(mix64(seed)), channels_(p_.channels.size()) {
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      for (std::uint32_t t = 0; t < p_.ranks[r].tb_count; ++t) {
        const std::uint32_t tb = p_.ranks[r].first_tb + t;
        std::uint32_t width = 2;
        for (const Step& s : p_.steps_of(p_.threadblocks[tb])) {
          width = std::max(width, static_cast<std::uint32_t>(p_.objects_of(s).size()));
        }
        blocks_.push_back({static_cast<std::uint32_t>(threads_.size()), width, 0, 0, {}, {}});
        for (std::uint32_t i = 0; i < width; ++i) threads_.push_back({.rank = r, .tb = tb, .index = i});
      }
    }
    strict_ = strict;
    users_ = static_cast<std::uint32_t>(threads_.size());
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) threads_.push_back({.rank = r, .tb = kNone, .index = 0});
    proxies_ = static_cast<std::uint32_t>(threads_.size());
    for (const Channel& c : p_.channels) threads_.push_back({.rank = c.from, .tb = kNone, .index = 0});
    for (const Thread& t : threads_) rank_of_.push_back(t.rank);
    now_.assign(threads_.size(), nothing());
    for (const Semaphore& s : p_.semaphores) tokens_.emplace_back(s.initial, nothing());
    for (std::size_t k = 0; k < p_.barriers.size(); ++k) gatherings_.emplace_back();
    launches_.resize(p_.ranks.size());
    live_.resize(p_.ranks.size());
  }

  // The first thing that is wrong; empty: nothing.
  std::string run() {
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) user(r);
    std::vector<std::uint32_t> ready;
    choose_priorities();
    while (wrong_.empty()) {
      ready.clear();
      for (std::uint32_t t = 0; t < threads_.size(); ++t) {
        if (can_run(t)) ready.push_back(t);
      }
      // Threads that turn out to wait are left out until another one has moved.
      bool moved = false;
      while (!ready.empty() && !moved && wrong_.empty()) {
        const std::size_t k = pick(ready);
        moved = advance(ready[k]);
        ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(k));
      }
      if (!moved) break;
    }
    if (!wrong_.empty()) return wrong_;
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      if (launches_[r].size() != calls_ || live_[r] != 0) return "rank " + std::to_string(r) + " waits forever";
    }
    return {};
  }

 private:
  struct Thread {
    std::uint32_t rank;
    std::uint32_t tb;
    std::uint32_t index;
    std::uint32_t step = 0;
    std::uint32_t at = 0;      // what it has done of the step
    std::uint64_t ticket = 0;  // of a wait
    std::uint64_t sum = 0;
  };
  struct Block {
    std::uint32_t first;
    std::uint32_t width;
    std::uint32_t arrived;
    std::uint64_t passed;  // syncs
    Clocks gathered, released;
  };
  struct Entry {  // of a proxy
    const Step* step;
    bool signal;
    std::uint64_t call;
    Clocks posted;
  };
  struct Signals {
    std::vector<Clocks> sent;  // each with those before it
    std::uint64_t waits = 0;
    std::deque<Entry> queue;
  };
  struct Gathering {
    std::uint64_t arrivals = 0;
    std::map<std::uint64_t, Clocks> turns;
  };
  std::uint64_t below(std::uint64_t bound) { return (random_ = mix64(random_ + 1)) % bound; }
  // Schedules: any thread, or the one of the highest priority, which sometimes changes; ranks may be preferred as a
  // whole, and proxies be as late as possible.
  void choose_priorities() {
    any_ = below(3) == 0;
    const bool by_rank = below(2) == 0;
    const bool late_proxies = below(2) == 0;
    std::vector<std::uint64_t> ranks(p_.ranks.size());
    for (auto& r : ranks) r = below(1U << 20U);
    priority_.clear();
    for (std::uint32_t t = 0; t < threads_.size(); ++t) {
      priority_.push_back((by_rank ? ranks[threads_[t].rank] << 20U : 0) + below(1U << 20U) + 1);
      if (t >= proxies_ && late_proxies) priority_.back() = 0;
    }
  }
  std::size_t pick(const std::vector<std::uint32_t>& ready) {
    if (any_) return below(ready.size());
    if (below(40) == 0) priority_[ready[below(ready.size())]] = below(std::uint64_t{1} << 40U);
    return static_cast<std::size_t>(std::ranges::max_element(ready, {}, [&](std::uint32_t t) { return priority_[t]; }) -
                                    ready.begin());
  }

  // Places

  Place place(std::uint32_t rank, Buffer buffer, std::uint32_t chunk, std::uint32_t half, std::uint64_t call) const {
    const model::Place at = p_.collective.canonical(rank, {buffer, chunk});
    const std::uint64_t copy = at.buffer == Buffer::scratch ? (call % p_.halves) << 40U : 0;
    return {rank, at.buffer, copy + 2 * std::uint64_t{at.index} + half};
  }
  std::array<Place, 2> packet(std::uint32_t rank, std::uint32_t chunk, std::uint32_t half, std::uint64_t call) const {
    return {place(rank, Buffer::scratch, 2 * chunk + half, 0, call),
            place(rank, Buffer::scratch, 2 * chunk + half, 1, call)};
  }
  using WeakMemory::name;
  std::string name(std::uint32_t t) const override {
    const Thread& thread = threads_[t];
    const std::string of = " of rank " + std::to_string(thread.rank);
    if (t >= proxies_) return "the proxy of channel " + std::to_string(t - proxies_) + of;
    if (t >= users_) return "the user" + of;
    return "thread " + std::to_string(thread.index) + of + " threadblock " +
           std::to_string(thread.tb - p_.ranks[thread.rank].first_tb) + " step " + std::to_string(thread.step) +
           " of call " + std::to_string(begun(thread.rank) - 1);
  }

  // The user

  std::uint64_t input(std::uint32_t rank, std::uint32_t chunk, std::uint32_t half, std::uint64_t call) const {
    return mix64(mix64(mix64(call * 1000003U + rank) + 2 * std::uint64_t{chunk} + half) ^ seed_);
  }
  // Ends a call of the rank, if there was one, and begins the next, if there is one.
  void user(std::uint32_t r) {
    const std::uint32_t t = users_ + r;
    const model::Collective& c = p_.collective;
    for (std::uint32_t k = 0; k < users_; ++k) {
      if (threads_[k].rank == r) join(now_[t], now_[k]);
    }
    const std::uint64_t call = begun(r);
    if (call != 0) {
      for (std::uint32_t chunk = 0; chunk < c.output_chunks(r); ++chunk) {
        const auto terms = c.expected_terms(r, chunk);
        for (std::uint32_t half = 0; half < 2 && !terms.empty(); ++half) {
          std::uint64_t sum = 0;
          for (const model::InputChunk& term : terms) sum += input(term.rank, term.index, half, call - 1);
          if (load(t, place(r, Buffer::output, chunk, half, 0)) != sum) {
            fail("output[" + std::to_string(chunk) + "] of rank " + std::to_string(r) + " is wrong after call " +
                 std::to_string(call - 1));
          }
        }
      }
    }
    for (std::uint32_t chunk = 0; chunk < c.output_chunks(r); ++chunk) {
      for (std::uint32_t half = 0; half < 2; ++half)
        store(t, place(r, Buffer::output, chunk, half, 0), below(~std::uint64_t{0}));
    }
    for (std::uint32_t chunk = 0; chunk < c.input_chunks(r); ++chunk) {
      for (std::uint32_t half = 0; half < 2; ++half) {
        const Place at = place(r, Buffer::input, chunk, half, 0);
        // In place a program may add up there; engines then work on a copy.
        const bool kept = !c.writable(r, {at.buffer, static_cast<std::uint32_t>(at.half / 2)});
        if (call != 0 && kept && load(t, at) != input(r, chunk, half, call - 1)) {
          fail("input[" + std::to_string(chunk) + "] of rank " + std::to_string(r) + " was changed");
        }
        store(t, at, input(r, chunk, half, call));
      }
    }
    if (p_.shared_scratch) {
      for (std::uint64_t copy = 0; copy < p_.halves; ++copy) {
        for (std::uint32_t chunk = 0; chunk < 2 * p_.ranks[r].scratch_chunks; ++chunk) {
          for (std::uint32_t half = 0; half < 2; ++half) {
            store(t, place(r, Buffer::scratch, chunk, half, copy), below(~std::uint64_t{0}), 0, true);
          }
        }
      }
    }
    if (call == calls_) return;
    launches_[r].push_back(tick(t));
    live_[r] = 0;
    for (std::uint32_t k = 0; k < users_; ++k) {
      if (threads_[k].rank != r) continue;
      threads_[k].step = threads_[k].at = 0;
      join(now_[k], now_[t]);
      if (p_.threadblocks[threads_[k].tb].step_count != 0) ++live_[r];
    }
    if (live_[r] == 0) user(r);
  }

  // Threads

  bool can_run(std::uint32_t t) const {
    if (t >= proxies_) return !channels_[t - proxies_].queue.empty();
    return t < users_ && live_[threads_[t].rank] != 0 && threads_[t].step < p_.threadblocks[threads_[t].tb].step_count;
  }
  // Makes one access, or one other step; false: it waits.
  bool advance(std::uint32_t t) {
    if (t >= proxies_) return proxy(t);
    Thread& thread = threads_[t];
    const Step& s = p_.steps[p_.threadblocks[thread.tb].first_step + thread.step];
    const Did did = s.op == Op::move ? move(t, s) : s.op == Op::sync || s.op == Op::barrier ? meet(t, s) : object(t, s);
    if (did == Did::waits) return false;
    if (did == Did::part) return true;
    thread.at = 0;
    thread.ticket = 0;
    ++thread.step;
    if (thread.step == p_.threadblocks[thread.tb].step_count && --live_[thread.rank] == 0) user(thread.rank);
    return true;
  }
  enum class Did : std::uint8_t { waits, part, all };

  std::vector<Operand> expanded(std::span<const Operand> operands) const {
    std::vector<Operand> found;
    for (const Operand& o : operands) {
      if (!is_multicast(o.access)) {
        found.push_back(o);
        continue;
      }
      for (const std::uint32_t rank : p_.groups[o.owner].ranks) {
        found.push_back({rank, o.chunk, o.buffer, is_packet(o.access) ? Access::packet : Access::plain});
      }
    }
    return found;
  }

  Did move(std::uint32_t t, const Step& s) {
    Thread& thread = threads_[t];
    const std::uint64_t call = begun(thread.rank) - 1;
    const std::uint32_t width = blocks_[thread.tb].width;
    if (s.channel != kNone) {
      if (thread.index == 0) post(t, s.channel, s, false);
      return Did::all;
    }
    const auto mine = [&](std::uint32_t half) {
      return mix64(seed_ ^ mix64((thread.tb * 1000U + thread.step) * 2U + half) ^ call) % width == thread.index;
    };
    return transfer(t, s, call, mine);
  }
  // One access of the halves that `mine` chooses.
  template <class Mine>
  Did transfer(std::uint32_t t, const Step& s, std::uint64_t call, const Mine& mine) {
    Thread& thread = threads_[t];
    const auto sources = expanded(p_.sources(s));
    const auto targets = expanded(p_.targets(s));
    const auto accesses = static_cast<std::uint32_t>(sources.size() + targets.size());
    for (; thread.at < 2 * s.count * accesses; ++thread.at) {
      const std::uint32_t half = thread.at / accesses % 2;
      const std::uint32_t chunk = thread.at / accesses / 2;
      const std::uint32_t k = thread.at % accesses;
      if (!mine(half)) continue;
      const Operand& o = k < sources.size() ? sources[k] : targets[k - sources.size()];
      if (k == 0) thread.sum = 0;
      if (k >= sources.size()) {
        if (is_packet(o.access)) {
          send(t, packet(o.owner, o.chunk + chunk, half, call), thread.sum, call + 1);
        } else {
          store(t, place(o.owner, o.buffer, o.chunk + chunk, half, call), thread.sum);
        }
      } else if (is_packet(o.access) && t >= proxies_) {
        thread.sum = copied(t, packet(o.owner, o.chunk + chunk, half, call), call + 1);
      } else if (is_packet(o.access)) {
        std::uint64_t value = 0;
        if (!take(t, packet(o.owner, o.chunk + chunk, half, call), call + 1, value)) return Did::waits;
        thread.sum += value;
      } else {
        thread.sum += load(t, place(o.owner, o.buffer, o.chunk + chunk, half, call));
      }
      ++thread.at;
      return thread.at == 2 * s.count * accesses ? Did::all : Did::part;
    }
    return Did::all;
  }

  void post(std::uint32_t t, std::uint32_t channel, const Step& s, bool signal) {
    tick(t);
    channels_[channel].queue.push_back({&s, signal, begun(threads_[t].rank) - 1, now_[t]});
  }
  // The proxy has seen what the thread had seen that posted. It executes a move by accesses, too.
  bool proxy(std::uint32_t t) {
    Signals& channel = channels_[t - proxies_];
    const Entry& next = channel.queue.front();
    Thread& thread = threads_[t];
    join(now_[t], next.posted);
    if (next.signal) {
      tick(t);
      sent(channel, now_[t], false);
    } else if (transfer(t, *next.step, next.call, [](std::uint32_t) { return true; }) == Did::part) {
      return true;
    }
    thread.at = 0;
    channel.queue.pop_front();
    return true;
  }
  static void sent(Signals& channel, const Clocks& clocks, bool relaxed) {
    Clocks all =
        channel.sent.empty() ? Clocks{std::vector<std::uint32_t>(clocks.seen.size(), 0), {}} : channel.sent.back();
    join(all, clocks, !relaxed);
    channel.sent.push_back(std::move(all));
  }

  // Signals, waits and so on: the thread of the number of the object.
  Did object(std::uint32_t t, const Step& s) {
    Thread& thread = threads_[t];
    const auto objects = p_.objects_of(s);
    if (thread.index >= objects.size()) return Did::all;
    const std::uint32_t k = objects[thread.index];
    switch (s.op) {
      case Op::signal:
        if (p_.channels[k].port) {
          post(t, k, s, true);
        } else {
          tick(t);
          sent(channels_[k], now_[t], s.relaxed);
        }
        return Did::all;
      case Op::wait: {
        if (thread.ticket == 0) thread.ticket = ++channels_[k].waits;
        if (channels_[k].sent.size() < thread.ticket) return Did::waits;
        join(now_[t], channels_[k].sent[thread.ticket - 1], !s.relaxed || p_.channels[k].port);
        return Did::all;
      }
      case Op::release:
        tick(t);
        tokens_[k].push_back(now_[t]);
        return Did::all;
      case Op::acquire:
        if (tokens_[k].empty()) return Did::waits;
        join(now_[t], tokens_[k].front());
        tokens_[k].pop_front();
        return Did::all;
      case Op::flush: {
        // The moves have read their sources; what they have stored is visible to the receiver alone.
        const auto& queue = channels_[k].queue;
        if (std::ranges::any_of(queue, [](const Entry& e) { return !e.signal; })) return Did::waits;
        join(now_[t], now_[proxies_ + k], false);
        return Did::all;
      }
      default:
        return Did::all;
    }
  }

  // A sync or a barrier. `at`: 0 has not arrived, 1 waits for the others.
  Did meet(std::uint32_t t, const Step& s) {
    Thread& thread = threads_[t];
    Block& block = blocks_[thread.tb];
    if (thread.at == 0) {
      tick(t);
      thread.ticket = block.passed;
      thread.at = 1;
      join(block.gathered, now_[t]);
      if (++block.arrived != block.width) return Did::part;
      block.arrived = 0;
      ++block.passed;
      block.released = std::exchange(block.gathered, {});
      if (s.op != Op::barrier) return Did::part;
      Gathering& all = gatherings_[p_.objects_of(s)[0]];
      const std::uint64_t turn = all.arrivals++ / p_.barriers[p_.objects_of(s)[0]].threadblocks;
      join(all.turns[turn], block.released);
      turns_[thread.tb] = turn;
      return Did::part;
    }
    if (block.passed == thread.ticket) return Did::waits;
    if (s.op != Op::barrier) {
      join(now_[t], block.released);
      return Did::all;
    }
    const std::uint32_t k = p_.objects_of(s)[0];
    const std::uint64_t turn = turns_[thread.tb];
    if (gatherings_[k].arrivals < (turn + 1) * p_.barriers[k].threadblocks) return Did::waits;
    join(now_[t], gatherings_[k].turns[turn]);
    return Did::all;
  }

  const Program& p_;
  std::uint32_t calls_;
  std::uint64_t seed_;
  std::uint64_t random_;
  std::vector<Thread> threads_;  // of threadblocks, users, and proxies of channels
  std::vector<Block> blocks_;
  std::vector<Signals> channels_;
  std::vector<std::deque<Clocks>> tokens_;  // of semaphores
  std::vector<Gathering> gatherings_;       // of barriers
  std::map<std::uint32_t, std::uint64_t> turns_;
  std::vector<std::uint32_t> live_;  // threads, by rank
  bool any_ = false;
  std::vector<std::uint64_t> priority_;
};

// What is wrong with the program under some schedules; empty: nothing was found. `strict`: also accesses that nothing
// orders where that does no harm.
inline std::string wrong_somewhere(const Program& program, std::uint32_t schedules, std::uint64_t seed = 0,
                                   bool strict = false, std::uint32_t calls = 3) {
  for (std::uint32_t k = 0; k < schedules; ++k) {
    std::string wrong = DirectWeaver(program, calls, mix64(seed) + k, strict).run();
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace gc3::ir::direct::test
