// Direct programs for tests, each right as it stands, and the builder that makes them.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gc3/ir/direct/program.h"

namespace gc3::ir::direct::test {

using model::Buffer;
using Numbers = std::vector<std::uint32_t>;
using Operands = std::vector<Operand>;

inline Operand in(std::uint32_t rank, std::uint32_t chunk) { return {rank, chunk, Buffer::input, Access::plain}; }
inline Operand out(std::uint32_t rank, std::uint32_t chunk) { return {rank, chunk, Buffer::output, Access::plain}; }
inline Operand sc(std::uint32_t rank, std::uint32_t chunk) { return {rank, chunk, Buffer::scratch, Access::plain}; }
inline Operand pkt(std::uint32_t rank, std::uint32_t chunk) { return {rank, chunk, Buffer::scratch, Access::packet}; }
inline Operand switched(Operand operand, std::uint32_t group) {
  operand.owner = group;
  operand.access = is_packet(operand.access) ? Access::multicast_packet : Access::multicast;
  return operand;
}

// Ranks, their threadblocks and their steps are given from front to back; objects at any time.
class DirectBuilder {
 public:
  DirectBuilder(std::string name, model::Collective collective) {
    p_.name = std::move(name);
    p_.collective = std::move(collective);
  }
  Program& program() { return p_; }
  std::uint32_t ranks() const { return p_.collective.ranks(); }

  std::uint32_t channel(std::uint32_t from, std::uint32_t to, bool port = false) {
    p_.channels.push_back({from, to, port});
    return static_cast<std::uint32_t>(p_.channels.size()) - 1;
  }
  // One from each rank to each other one, from the number on that is returned.
  std::uint32_t all_channels(bool port = false) {
    const auto first = static_cast<std::uint32_t>(p_.channels.size());
    for (std::uint32_t a = 0; a < ranks(); ++a) {
      for (std::uint32_t b = 0; b < ranks(); ++b) {
        if (a != b) channel(a, b, port);
      }
    }
    return first;
  }
  std::uint32_t between(std::uint32_t first, std::uint32_t from, std::uint32_t to) const {
    return first + from * (ranks() - 1) + (to < from ? to : to - 1);
  }
  std::uint32_t semaphore(std::uint32_t rank, std::uint32_t initial) {
    p_.semaphores.push_back({rank, initial});
    return static_cast<std::uint32_t>(p_.semaphores.size()) - 1;
  }
  std::uint32_t barrier(std::uint32_t rank, std::uint32_t threadblocks) {
    p_.barriers.push_back({rank, threadblocks});
    return static_cast<std::uint32_t>(p_.barriers.size()) - 1;
  }
  std::uint32_t group_of_all() {
    p_.groups.emplace_back();
    for (std::uint32_t r = 0; r < ranks(); ++r) p_.groups.back().ranks.push_back(r);
    return static_cast<std::uint32_t>(p_.groups.size()) - 1;
  }

  void rank(std::uint32_t scratch_chunks = 0) {
    p_.ranks.push_back({static_cast<std::uint32_t>(p_.threadblocks.size()), 0, scratch_chunks});
  }
  void tb() {
    ++p_.ranks.back().tb_count;
    p_.threadblocks.push_back({static_cast<std::uint32_t>(p_.steps.size()), 0});
  }
  void move(const Operands& sources, const Operands& targets, std::uint32_t count = 1, std::uint32_t through = kNone) {
    append({Op::move, false, count, static_cast<std::uint32_t>(p_.operands.size()),
            static_cast<std::uint32_t>(sources.size()), static_cast<std::uint32_t>(targets.size()), through});
    p_.operands.insert(p_.operands.end(), sources.begin(), sources.end());
    p_.operands.insert(p_.operands.end(), targets.begin(), targets.end());
  }
  void step(Op op, const Numbers& objects = {}, bool relaxed = false) {
    append({op, relaxed, 0, static_cast<std::uint32_t>(p_.objects.size()), static_cast<std::uint32_t>(objects.size()),
            0, kNone});
    p_.objects.insert(p_.objects.end(), objects.begin(), objects.end());
  }

  // Signals to all other ranks, and waits for them; `first`: of all_channels().
  void meet(std::uint32_t first, bool relaxed) {
    const std::uint32_t me = current();
    Numbers to;
    Numbers from;
    for (std::uint32_t k = 1; k < ranks(); ++k) {
      const std::uint32_t peer = (me + k) % ranks();
      to.push_back(between(first, me, peer));
      from.push_back(between(first, peer, me));
    }
    if (to.empty()) return;
    step(Op::signal, to, relaxed);
    step(Op::wait, from, relaxed);
  }
  void enter(std::uint32_t first) {
    meet(first, true);
    step(Op::sync);
  }
  void leave(std::uint32_t first) {
    step(Op::sync);
    meet(first, false);
    step(Op::sync);
  }

  Program finish() {
    Findings findings(1);
    const bool sound = check_structure(p_, findings);
    REQUIRE_MESSAGE(sound, p_.name);
    return std::move(p_);
  }

 private:
  std::uint32_t current() const { return static_cast<std::uint32_t>(p_.ranks.size()) - 1; }
  void append(const Step& step) {
    ++p_.threadblocks.back().step_count;
    p_.steps.push_back(step);
  }

  Program p_;
};

inline model::Collective builtin(model::CollectiveKind kind, std::uint32_t ranks, std::uint32_t chunks,
                                 bool in_place = false) {
  auto made = model::Collective::builtin(kind, ranks, chunks, 0, in_place);
  REQUIRE(made.ok());
  return std::move(made).value();
}
// One operand for each rank, for all but `without`, in the order of the ranks: so all ranks add in the same order.
inline Operands each(std::uint32_t ranks, const std::function<Operand(std::uint32_t)>& make,
                     std::uint32_t without = kNone) {
  Operands found;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r != without) found.push_back(make(r));
  }
  return found;
}

// Every rank pulls and adds the inputs of all.
inline Program one_shot(std::uint32_t n) {
  DirectBuilder b("one shot", builtin(model::CollectiveKind::allreduce, n, 2));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    b.move(each(n, [](std::uint32_t p) { return in(p, 0); }), {out(r, 0)}, 2);
    b.leave(meeting);
  }
  return b.finish();
}

// Rank r adds the chunks r of all; then all pull them. `blocks` threadblocks share the work, each with its own
// channels.
inline Program two_shot(std::uint32_t n, std::uint32_t blocks = 1) {
  DirectBuilder b("two shot x" + std::to_string(blocks), builtin(model::CollectiveKind::allreduce, n, n * blocks));
  Numbers meetings;
  for (std::uint32_t t = 0; t < blocks; ++t) meetings.push_back(b.all_channels());
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    for (std::uint32_t t = 0; t < blocks; ++t) {
      b.tb();
      b.enter(meetings[t]);
      b.move(each(n, [&](std::uint32_t p) { return in(p, r * blocks + t); }), {out(r, r * blocks + t)});
      b.leave(meetings[t]);
      for (std::uint32_t k = 1; k < n; ++k) {
        const std::uint32_t p = (r + k) % n;
        b.move({out(p, p * blocks + t)}, {out(r, p * blocks + t)});
      }
      b.leave(meetings[t]);
    }
  }
  return b.finish();
}

// In place: rank r adds the chunks r of all and stores the sum to all.
inline Program two_shot_in_place(std::uint32_t n) {
  DirectBuilder b("two shot in place", builtin(model::CollectiveKind::allreduce, n, n, true));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    const Operands chunks = each(n, [&](std::uint32_t p) { return out(p, r); });
    b.move(chunks, chunks);
    b.leave(meeting);
  }
  return b.finish();
}

// Rank r pulls and adds the blocks r of all. Nothing is stored to another rank, so relaxed signals are enough.
inline Program pull_reduce_scatter(std::uint32_t n) {
  DirectBuilder b("pull reduce-scatter", builtin(model::CollectiveKind::reducescatter, n, 2));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    b.move(each(n, [&](std::uint32_t p) { return in(p, 2 * r); }), {out(r, 0)}, 2);
    b.step(Op::sync);
    b.meet(meeting, true);
  }
  return b.finish();
}

// Every rank stores its input to all.
inline Program push_all_gather(std::uint32_t n) {
  DirectBuilder b("push all-gather", builtin(model::CollectiveKind::allgather, n, 1));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    b.move({in(r, 0)}, each(n, [&](std::uint32_t p) { return out(p, r); }));
    b.leave(meeting);
  }
  return b.finish();
}

// Puts into the output of the peer.
inline Program put_all_to_all(std::uint32_t n) {
  DirectBuilder b("put all-to-all", builtin(model::CollectiveKind::alltoall, n, 1));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    for (std::uint32_t k = 0; k < n; ++k) b.move({in(r, (r + k) % n)}, {out((r + k) % n, r)});
    b.leave(meeting);
  }
  return b.finish();
}

// The puts are asynchronous. The waits are the exit; the sources are free after the flush.
inline Program port_all_to_all(std::uint32_t n) {
  DirectBuilder b("port all-to-all", builtin(model::CollectiveKind::alltoall, n, 1));
  const std::uint32_t meeting = b.all_channels();
  const std::uint32_t ports = b.all_channels(true);
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    Numbers to;
    for (std::uint32_t k = 1; k < n; ++k) {
      const std::uint32_t p = (r + k) % n;
      to.push_back(b.between(ports, r, p));
      b.move({in(r, p)}, {out(p, r)}, 1, to.back());
    }
    b.move({in(r, r)}, {out(r, r)});
    b.step(Op::sync);
    b.meet(ports, false);
    if (!to.empty()) b.step(Op::flush, to);
    b.step(Op::sync);
  }
  return b.finish();
}

// Packets need no signals: a rank stores into a half of scratch again only after it has heard from all in the call
// between.
inline Program packet_all_gather(std::uint32_t n) {
  DirectBuilder b("packet all-gather", builtin(model::CollectiveKind::allgather, n, 1));
  b.program().halves = 2;
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank(2 * n);
    b.tb();
    if (n > 1) b.move({in(r, 0)}, each(n, [&](std::uint32_t p) { return pkt(p, r); }, r));
    b.move({in(r, 0)}, {out(r, r)});
    for (std::uint32_t k = 1; k < n; ++k) b.move({pkt(r, (r + k) % n)}, {out(r, (r + k) % n)});
  }
  return b.finish();
}
inline Program packet_one_shot(std::uint32_t n) {
  DirectBuilder b("packet one shot", builtin(model::CollectiveKind::allreduce, n, 1));
  b.program().halves = 2;
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank(2 * n);
    b.tb();
    if (n > 1) b.move({in(r, 0)}, each(n, [&](std::uint32_t p) { return pkt(p, r); }, r));
    b.move(each(n, [&](std::uint32_t p) { return p == r ? in(r, 0) : pkt(r, p); }), {out(r, 0)});
  }
  return b.finish();
}
// Chunk r of each rank goes to rank r, which stores the sum as packets to all.
inline Program packet_two_shot(std::uint32_t n) {
  DirectBuilder b("packet two shot", builtin(model::CollectiveKind::allreduce, n, n));
  b.program().halves = 2;
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank(4 * n);
    b.tb();
    for (std::uint32_t k = 1; k < n; ++k) b.move({in(r, (r + k) % n)}, {pkt((r + k) % n, r)});
    Operands targets = each(n, [&](std::uint32_t p) { return pkt(p, n + r); }, r);
    targets.push_back(out(r, r));
    b.move(each(n, [&](std::uint32_t p) { return p == r ? in(r, r) : pkt(r, p); }), targets);
    for (std::uint32_t k = 1; k < n; ++k) b.move({pkt(r, n + (r + k) % n)}, {out(r, (r + k) % n)});
  }
  return b.finish();
}
// Each rank's chunk goes once around, by the proxies, which copy packets that a thread has stored or waited for.
inline Program port_packet_ring(std::uint32_t n) {
  DirectBuilder b("port packet ring", builtin(model::CollectiveKind::allgather, n, 1));
  b.program().halves = 2;
  const std::uint32_t ports = b.all_channels(true);
  for (std::uint32_t r = 0; r < n; ++r) {
    const std::uint32_t next = (r + 1) % n;
    b.rank(2 * n);
    b.tb();
    b.move({in(r, 0)}, {pkt(r, r), out(r, r)});
    for (std::uint32_t k = 0; k + 1 < n; ++k) {
      const std::uint32_t chunk = (r + n - k) % n;
      if (k > 0) b.move({pkt(r, chunk)}, {});
      b.step(Op::sync);
      b.move({pkt(r, chunk)}, {pkt(next, chunk)}, 1, b.between(ports, r, next));
    }
    for (std::uint32_t k = 1; k < n; ++k) b.move({pkt(r, (r + k) % n)}, {out(r, (r + k) % n)});
  }
  return b.finish();
}

// Rank r lets the switch add chunk r of all and store it to all.
inline Program multicast_all_reduce(std::uint32_t n) {
  DirectBuilder b("multicast all-reduce", builtin(model::CollectiveKind::allreduce, n, n));
  const std::uint32_t meeting = b.all_channels();
  const std::uint32_t all = b.group_of_all();
  for (std::uint32_t r = 0; r < n; ++r) {
    b.rank();
    b.tb();
    b.enter(meeting);
    b.move({switched(in(0, r), all)}, {switched(out(0, r), all)});
    b.leave(meeting);
  }
  return b.finish();
}

// Threadblock 1 pulls the sums into one chunk of scratch, which threadblock 0 empties: semaphores pass it to and fro.
inline Program passed_on(std::uint32_t n) {
  constexpr std::uint32_t kChunks = 3;
  DirectBuilder b("passed on", builtin(model::CollectiveKind::allreduce, n, kChunks));
  const std::uint32_t meeting = b.all_channels();
  for (std::uint32_t r = 0; r < n; ++r) {
    const std::uint32_t entered = b.barrier(r, 2);
    const std::uint32_t ended = b.barrier(r, 2);
    const std::uint32_t full = b.semaphore(r, 0);
    const std::uint32_t free = b.semaphore(r, 1);
    b.rank(1);
    b.tb();
    b.enter(meeting);
    b.step(Op::barrier, {entered});
    for (std::uint32_t c = 0; c < kChunks; ++c) {
      b.step(Op::acquire, {full});
      b.step(Op::sync);
      b.move({sc(r, 0)}, {out(r, c)});
      b.step(Op::sync);
      b.step(Op::release, {free});
    }
    b.step(Op::barrier, {ended});
    b.leave(meeting);
    b.tb();
    b.step(Op::barrier, {entered});
    for (std::uint32_t c = 0; c < kChunks; ++c) {
      b.step(Op::acquire, {free});
      b.step(Op::sync);
      b.move(each(n, [&](std::uint32_t p) { return in(p, c); }), {sc(r, 0)});
      b.step(Op::sync);
      b.step(Op::release, {full});
    }
    b.step(Op::barrier, {ended});
  }
  return b.finish();
}

inline std::vector<Program> all_programs(std::uint32_t ranks) {
  return {one_shot(ranks),
          two_shot(ranks),
          two_shot(ranks, 2),
          two_shot_in_place(ranks),
          pull_reduce_scatter(ranks),
          push_all_gather(ranks),
          put_all_to_all(ranks),
          port_all_to_all(ranks),
          packet_all_gather(ranks),
          packet_one_shot(ranks),
          packet_two_shot(ranks),
          port_packet_ring(ranks),
          multicast_all_reduce(ranks),
          passed_on(ranks)};
}

}  // namespace gc3::ir::direct::test
