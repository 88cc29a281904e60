#include "gc3/verify/test_oracle.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <tuple>

#include "gc3/verify/test_programs.h"

namespace gc3::verify::test {
namespace {

using ir::Instruction;
using ir::Opcode;

constexpr std::uint32_t kPlenty = 1000000;

using Link = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // sender, receiver, channel

// A message in a FIFO slot, during its send and after.
struct Message {
  std::vector<Multiset> chunks;
  std::vector<bool> sent;  // per chunk
  bool complete = false;
};

std::uint32_t size_of(const ir::Program& p, std::uint32_t rank, Buffer b) {
  if (b == Buffer::scratch) return p.ranks[rank].scratch_chunks;
  if (p.collective.canonical(rank, {b, 0}).buffer != b) return 0;
  return b == Buffer::input ? p.collective.input_chunks(rank) : p.collective.output_chunks(rank);
}

class Simulation {
 public:
  Simulation(const ir::Program& p, std::uint32_t slots, std::mt19937_64& random)
      : p_(p), slots_(slots), random_(random) {
    const auto ranks = static_cast<std::uint32_t>(p.ranks.size());
    memory_.resize(ranks);
    tbs_.resize(p.threadblocks.size());
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::size_t b = 0; b < 3; ++b) memory_[r][b].resize(size_of(p, r, static_cast<Buffer>(b)));
      for (std::uint32_t i = 0; i < p.collective.input_chunks(r); ++i) {
        cell(r, p.collective.canonical(r, in(i))) = {true, Multiset{{{r, i}, 1}}};
      }
      for (std::uint32_t t = 0; t < p.ranks[r].tb_count; ++t) tbs_[p.ranks[r].first_tb + t].rank = r;
    }
    // Half of the schedules are unfair: a threadblock runs as long as none of higher priority can.
    unfair_ = random_() % 2 == 0;
    streams_ = random_() % 2 == 0;
    for (Tb& tb : tbs_) tb.priority = random_();
  }

  Outcome run() {
    std::vector<std::uint32_t> able;
    while (true) {
      able.clear();
      bool unfinished = false;
      for (std::uint32_t t = 0; t < tbs_.size(); ++t) {
        if (tbs_[t].step == p_.threadblocks[t].instruction_count) continue;
        unfinished = true;
        if (tbs_[t].running ? !able_chunks(t).empty() || chunks_done(t) : can_start(t)) able.push_back(t);
      }
      if (!unfinished) break;
      if (able.empty()) {
        outcome_.deadlock = true;
        return outcome_;
      }
      std::uint32_t chosen = able[random_() % able.size()];
      if (unfair_) {
        chosen = *std::ranges::max_element(able, {}, [&](std::uint32_t t) { return tbs_[t].priority; });
        if (random_() % 16 == 0) tbs_[chosen].priority = random_();
      }
      advance(chosen);
    }
    check();
    return outcome_;
  }

  // What an operation makes, as a term of its own: equal arguments give equal terms.
  Multiset result(std::uint32_t operation, std::uint32_t result, const std::vector<Multiset>& arguments) {
    const auto number = static_cast<std::uint32_t>(made_.size());
    return {{{model::kComputed, made_.try_emplace({operation, result, arguments}, number).first->second}, 1}};
  }

  std::vector<std::vector<Multiset>> outputs() {
    std::vector<std::vector<Multiset>> all(p_.ranks.size());
    for (std::uint32_t r = 0; r < p_.ranks.size(); ++r) {
      for (std::uint32_t i = 0; i < p_.collective.output_chunks(r); ++i) {
        all[r].push_back(cell(r, p_.collective.canonical(r, out(i))).content);
      }
    }
    return all;
  }

 private:
  struct Cell {
    bool written = false;
    Multiset content;
  };
  struct ChunkState {
    int phase = 0;  // 0: nothing done; 1: src read; 2: dst read (reduce); 3: written
    Multiset value;
  };
  struct Tb {
    std::uint32_t rank = 0;
    std::uint32_t step = 0;
    bool running = false;  // in the middle of its step
    std::uint64_t priority = 0;
    std::vector<ChunkState> chunks;
    std::shared_ptr<Message> sending;
  };

  Cell& cell(std::uint32_t rank, Place at) { return memory_[rank][static_cast<std::size_t>(at.buffer)][at.index]; }
  const Instruction& instruction(std::uint32_t t) const {
    return p_.instructions[p_.threadblocks[t].first_instruction + tbs_[t].step];
  }
  Link in_link(std::uint32_t t) const {
    return {p_.threadblocks[t].recv_peer, tbs_[t].rank, p_.threadblocks[t].channel};
  }
  Link out_link(std::uint32_t t) const {
    return {tbs_[t].rank, p_.threadblocks[t].send_peer, p_.threadblocks[t].channel};
  }
  void wrong(const std::string& what) {
    if (outcome_.wrong.empty()) outcome_.wrong = what;
  }

  bool can_start(std::uint32_t t) {
    const Instruction& i = instruction(t);
    for (const ir::Dependency& d : p_.deps(i)) {
      if (tbs_[p_.ranks[tbs_[t].rank].first_tb + d.tb].step <= d.step) return false;
    }
    if (ir::info(i.opcode).receives) {
      const auto& fifo = fifos_[in_link(t)];
      if (fifo.empty() || !(streams_ || fifo.front()->complete)) return false;
    }
    return !ir::info(i.opcode).sends || fifos_[out_link(t)].size() < slots_;
  }
  bool chunks_done(std::uint32_t t) const {
    return std::ranges::all_of(tbs_[t].chunks, [](const ChunkState& c) { return c.phase == 3; });
  }
  // The chunks of the running step that can advance.
  std::vector<std::uint32_t> able_chunks(std::uint32_t t) {
    const bool receives = ir::info(instruction(t).opcode).receives;
    std::vector<std::uint32_t> able;
    for (std::uint32_t k = 0; k < tbs_[t].chunks.size(); ++k) {
      const int phase = tbs_[t].chunks[k].phase;
      const ir::Compute& compute = p_.compute;
      // Of an operation, what it reads comes before what it writes.
      const std::size_t reads = compute.reads(instruction(t)).size();
      const auto read = std::span(tbs_[t].chunks).first(reads);
      if (k >= reads && std::ranges::any_of(read, [](const ChunkState& c) { return c.phase != 3; })) continue;
      if (phase == 3 || (phase == 0 && receives && !fifos_[in_link(t)].front()->sent[k])) continue;
      able.push_back(k);
    }
    return able;
  }

  // One read or write of one chunk, or the beginning or end of the instruction.
  void advance(std::uint32_t t) {
    Tb& tb = tbs_[t];
    const Instruction& i = instruction(t);
    if (!tb.running) {
      tb.running = true;
      tb.chunks.assign(i.count, {});
      if (!ir::info(i.opcode).sends) return;
      tb.sending = std::make_shared<Message>();
      tb.sending->chunks.resize(i.count);
      tb.sending->sent.resize(i.count);
      fifos_[out_link(t)].push_back(tb.sending);
      return;
    }
    const std::vector<std::uint32_t> open = able_chunks(t);
    if (open.empty()) {
      finish(t, i);
      return;
    }
    const std::uint32_t k = open[random_() % open.size()];
    ChunkState& c = tb.chunks[k];
    if (i.opcode == Opcode::apply) return apply(tb, i, k);
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    const Place src{i.src_buffer, i.src_chunk + k};
    const Place dst{i.dst_buffer, i.dst_chunk + k};
    if (c.phase == 0) {
      if (op.receives) c.value = fifos_[in_link(t)].front()->chunks[k];
      if (op.reads_local) {
        const Multiset local = load(tb.rank, src);
        c.value = op.receives ? sum(c.value, local) : local;
      }
      c.phase = i.opcode == Opcode::reduce ? 1 : op.writes_local ? 2 : 3;
    } else if (c.phase == 1) {
      c.value = sum(c.value, load(tb.rank, dst));
      c.phase = 2;
    } else {
      store(tb.rank, dst, c.value);
      c.phase = 3;
    }
    if (c.phase == 3 && op.sends) {
      tb.sending->chunks[k] = c.value;
      tb.sending->sent[k] = true;
    }
  }

  void apply(Tb& tb, const Instruction& i, std::uint32_t k) {
    const std::size_t reads = p_.compute.reads(i).size();
    tb.chunks[k].phase = 3;
    if (k < reads) {
      const ir::Operand& o = p_.compute.reads(i)[k];
      tb.chunks[k].value = load(tb.rank, {o.buffer, o.chunk});
      return;
    }
    std::vector<Multiset> arguments;
    for (std::size_t a = 0; a < reads; ++a) arguments.push_back(tb.chunks[a].value);
    const ir::Operand& o = p_.compute.writes(i)[k - reads];
    const auto operation = p_.compute.applications[i.src_chunk].operation;
    store(tb.rank, {o.buffer, o.chunk}, result(operation, static_cast<std::uint32_t>(k - reads), arguments));
  }

  void finish(std::uint32_t t, const Instruction& i) {
    Tb& tb = tbs_[t];
    if (ir::info(i.opcode).receives) fifos_[in_link(t)].pop_front();
    if (ir::info(i.opcode).sends) tb.sending->complete = true;
    tb.running = false;
    ++tb.step;
  }

  Multiset load(std::uint32_t rank, Place at) {
    const Cell& c = cell(rank, at);
    if (!c.written) wrong("rank " + std::to_string(rank) + " reads a chunk that holds nothing");
    return c.content;
  }
  void store(std::uint32_t rank, Place at, const Multiset& value) {
    if (!p_.collective.writable(rank, at)) wrong("rank " + std::to_string(rank) + " overwrites its input");
    cell(rank, at).written = true;
    cell(rank, at).content = value;
  }
  static Multiset sum(const Multiset& a, const Multiset& b) {
    Multiset both = a;
    for (const auto& [chunk, times] : b) both[chunk] += times;
    return both;
  }

  void check() {
    const model::Collective& c = p_.collective;
    std::vector<Multiset> calls;
    const auto add = [&](Multiset& to, const model::InputChunk& t) {
      if (t.rank != model::kComputed) return void(++to[t]);
      for (const auto& [made, times] : calls[t.index]) to[made] += times;
    };
    for (std::size_t k = 0; c.has_tensors() && k < c.custom_data()->calls.size(); ++k) {
      const model::TermCall& call = c.custom_data()->calls[k];
      std::vector<Multiset> arguments(call.arguments.size());
      for (std::size_t a = 0; a < arguments.size(); ++a) {
        for (const model::InputChunk& t : call.arguments[a]) add(arguments[a], t);
      }
      calls.push_back(result(call.operation, call.result, arguments));
    }
    for (std::uint32_t r = 0; r < c.ranks(); ++r) {
      for (std::uint32_t i = 0; i < c.output_chunks(r); ++i) {
        Multiset expected;
        for (const model::InputChunk& t : c.expected_terms(r, i)) add(expected, t);
        if (expected.empty()) continue;
        if (cell(r, c.canonical(r, out(i))).content != expected) {
          wrong("rank " + std::to_string(r) + " output " + std::to_string(i));
        }
      }
    }
  }

  const ir::Program& p_;
  std::uint32_t slots_;
  std::mt19937_64& random_;
  bool unfair_ = false;
  bool streams_ = false;
  std::vector<std::array<std::vector<Cell>, 3>> memory_;
  std::vector<Tb> tbs_;
  std::map<Link, std::deque<std::shared_ptr<Message>>> fifos_;  // a message takes a slot when its send begins
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::vector<Multiset>>, std::uint32_t> made_;
  Outcome outcome_;
};

// Per link, the instructions (indices) that send on it and those that receive.
using Uses = std::map<Link, std::array<std::vector<std::uint32_t>, 2>>;
Uses uses_of_links(const ir::Program& p) {
  Uses uses;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    for (const ir::Threadblock& tb : p.tbs(r)) {
      for (std::uint32_t k = tb.first_instruction; k < tb.first_instruction + tb.instruction_count; ++k) {
        const ir::OpcodeInfo& op = ir::info(p.instructions[k].opcode);
        if (op.sends) uses[{r, tb.send_peer, tb.channel}][0].push_back(k);
        if (op.receives) uses[{tb.recv_peer, r, tb.channel}][1].push_back(k);
      }
    }
  }
  return uses;
}

bool in_range(const ir::Program& p, std::uint32_t rank, Buffer b, std::uint32_t chunk, std::uint32_t count) {
  return std::uint64_t{chunk} + count <= size_of(p, rank, b);
}

std::string broken_instruction(const ir::Program& p, std::uint32_t r, std::uint32_t t, std::uint32_t s) {
  const ir::Threadblock& tb = p.tbs(r)[t];
  const Instruction& i = p.steps(tb)[s];
  const ir::OpcodeInfo& op = ir::info(i.opcode);
  if (op.receives && tb.recv_peer == kNobody) return "no receive peer";
  if (op.sends && tb.send_peer == kNobody) return "no send peer";
  if (i.opcode == Opcode::apply) {
    if (i.src_chunk >= p.compute.applications.size() || i.dst_chunk != 0) return "application";
    std::set<std::pair<Buffer, std::uint32_t>> written;
    if (i.count != p.compute.reads(i).size() + p.compute.writes(i).size()) return "operands";
    for (const ir::Operand& o : p.compute.writes(i)) {
      if (!in_range(p, r, o.buffer, o.chunk, 1)) return "result range";
      if (!written.emplace(o.buffer, o.chunk).second) return "results at one place";
    }
    for (const ir::Operand& o : p.compute.reads(i)) {
      if (!in_range(p, r, o.buffer, o.chunk, 1)) return "operand range";
      if (written.contains({o.buffer, o.chunk})) return "operand and result";
    }
  }
  if ((i.opcode == Opcode::nop) != (i.count == 0)) return "count";
  if (op.reads_local && !in_range(p, r, i.src_buffer, i.src_chunk, i.count)) return "source range";
  if (op.writes_local && !in_range(p, r, i.dst_buffer, i.dst_chunk, i.count)) return "destination range";
  if (op.reads_local && op.writes_local && i.src_buffer == i.dst_buffer && i.src_chunk != i.dst_chunk) {
    for (std::uint32_t k = 0; k < i.count; ++k) {
      if (i.src_chunk + k >= i.dst_chunk && i.src_chunk + k < i.dst_chunk + i.count) return "overlap";
    }
  }
  for (const ir::Dependency& d : p.deps(i)) {
    if (d.tb >= p.ranks[r].tb_count || d.step >= p.tbs(r)[d.tb].instruction_count) return "dependency range";
    if (d.tb == t && d.step >= s) return "dependency on itself";
    if (p.steps(p.tbs(r)[d.tb])[d.step].has_dependents == 0) return "awaited step never published";
  }
  return "";
}

}  // namespace

std::string broken_rule(const ir::Program& p) {
  if (p.slots == 0) return "no slots";
  std::set<Link> senders;
  std::set<Link> receivers;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    for (std::uint32_t t = 0; t < p.ranks[r].tb_count; ++t) {
      const ir::Threadblock& tb = p.tbs(r)[t];
      for (const std::uint32_t peer : {tb.send_peer, tb.recv_peer}) {
        if (peer != kNobody && (peer >= p.ranks.size() || peer == r)) return "peer";
      }
      if (tb.send_peer != kNobody && !senders.insert({r, tb.send_peer, tb.channel}).second) return "shared connection";
      if (tb.recv_peer != kNobody && !receivers.insert({tb.recv_peer, r, tb.channel}).second) {
        return "shared connection";
      }
      for (std::uint32_t s = 0; s < tb.instruction_count; ++s) {
        const std::string broken = broken_instruction(p, r, t, s);
        if (!broken.empty()) return broken;
      }
    }
  }
  for (const auto& [link, ends] : uses_of_links(p)) {
    const auto count = [&](std::uint32_t k) { return p.instructions[k].count; };
    if (!std::ranges::equal(ends[0], ends[1], {}, count, count)) return "sends and receives";
  }
  return "";
}

Outcome simulate(const ir::Program& program, std::uint32_t slots, std::mt19937_64& random) {
  return Simulation(program, slots, random).run();
}

std::vector<std::vector<Multiset>> computed(const ir::Program& program) {
  std::mt19937_64 random(1);
  Simulation simulation(program, kPlenty, random);
  simulation.run();
  return simulation.outputs();
}

std::uint32_t smallest_slots(const ir::Program& program) {
  const auto count = static_cast<std::uint32_t>(program.instructions.size());
  std::mt19937_64 random(1);
  for (std::uint32_t s = 1; s <= count; ++s) {
    if (!simulate(program, s, random).deadlock) return s;
  }
  return simulate(program, kPlenty, random).deadlock ? 0 : 1;
}

bool has_race(const ir::Program& p) {
  constexpr std::size_t kMost = 1024;
  // Three kinds of events: an instruction begins, handles its chunk k, ends. begin_of[i] + 1 + k is that chunk.
  std::vector<std::size_t> begin_of;
  std::size_t n = 0;
  for (const Instruction& i : p.instructions) {
    begin_of.push_back(n);
    n += i.count + 2;
  }
  REQUIRE(n <= kMost);
  const auto end_of = [&](std::size_t i) { return begin_of[i] + 1 + p.instructions[i].count; };
  std::vector<std::vector<std::size_t>> before(n);
  std::vector<std::uint32_t> rank_of(p.instructions.size());
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    for (const ir::Threadblock& tb : p.tbs(r)) {
      for (std::size_t i = tb.first_instruction; i < tb.first_instruction + tb.instruction_count; ++i) {
        rank_of[i] = r;
        before[end_of(i)].push_back(begin_of[i]);
        for (std::size_t chunk = begin_of[i] + 1; chunk < end_of(i); ++chunk) {
          before[chunk].push_back(begin_of[i]);
          before[end_of(i)].push_back(chunk);
        }
        if (i > tb.first_instruction) before[begin_of[i]].push_back(end_of(i - 1));
        for (const ir::Dependency& d : p.deps(p.instructions[i])) {
          before[begin_of[i]].push_back(end_of(p.tbs(r)[d.tb].first_instruction + d.step));
        }
      }
    }
  }
  for (const auto& [link, ends] : uses_of_links(p)) {
    for (std::size_t m = 0; m < ends[0].size(); ++m) {
      for (std::uint32_t k = 1; k <= p.instructions[ends[0][m]].count; ++k) {
        before[begin_of[ends[1][m]] + k].push_back(begin_of[ends[0][m]] + k);
      }
    }
  }
  // The transitive closure, by iteration to a fixed point.
  std::vector<std::bitset<kMost>> precedes(n);  // [e][f]: f happens before e
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t e = 0; e < n; ++e) {
      const std::bitset<kMost> old = precedes[e];
      for (const std::size_t b : before[e]) {
        precedes[e] |= precedes[b];
        precedes[e].set(b);
      }
      changed = changed || precedes[e] != old;
    }
  }
  struct Access {
    std::size_t event;
    bool writes;
  };
  std::map<std::tuple<std::uint32_t, Buffer, std::uint32_t>, std::vector<Access>> accesses;
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    const Instruction& x = p.instructions[i];
    const ir::OpcodeInfo& op = ir::info(x.opcode);
    const std::size_t reads = p.compute.reads(x).size();
    for (std::uint32_t k = 0; k < x.count; ++k) {
      const std::size_t event = begin_of[i] + 1 + k;
      if (x.opcode == Opcode::apply) {
        const ir::Operand& o = k < reads ? p.compute.reads(x)[k] : p.compute.writes(x)[k - reads];
        accesses[{rank_of[i], o.buffer, o.chunk}].push_back({event, k >= reads});
      }
      if (op.reads_local) accesses[{rank_of[i], x.src_buffer, x.src_chunk + k}].push_back({event, false});
      if (op.writes_local) accesses[{rank_of[i], x.dst_buffer, x.dst_chunk + k}].push_back({event, true});
    }
  }
  for (const auto& [slot, list] : accesses) {
    for (const Access& a : list) {
      for (const Access& b : list) {
        if (a.event == b.event || !(a.writes || b.writes)) continue;
        if (!precedes[a.event][b.event] && !precedes[b.event][a.event]) return true;
      }
    }
  }
  return false;
}

TEST_CASE("the oracle sees a race, a deadlock and a wrong result") {
  std::mt19937_64 random(7);
  const auto exchange = [](bool ordered) {
    Weaver w("exchange", collective(model::CollectiveKind::alltonext, 2, 1, false));
    w.scratch(1, 1);
    w.send(0, w.tb(0, 1, kNobody), in(0));
    w.recv(1, w.tb(1, kNobody, 0), sc(0));
    w.synchronise(ordered);
    w.copy(1, w.tb(1, kNobody, kNobody), sc(0), out(0));
    return w.finish(1);
  };
  CHECK(broken_rule(exchange(false)).empty());
  CHECK_FALSE(has_race(exchange(true)));
  CHECK(has_race(exchange(false)));
  int wrong = 0;
  for (int k = 0; k < 100; ++k) {
    CHECK(simulate(exchange(true), 1, random).wrong.empty());
    wrong += simulate(exchange(false), 1, random).wrong.empty() ? 0 : 1;
  }
  CHECK(wrong > 0);
  CHECK(wrong < 100);
  const ir::Program ring = ring_allreduce(3, 1, false, true);
  CHECK(simulate(ring, 1, random).deadlock);
  CHECK_FALSE(simulate(ring, 2, random).deadlock);
  CHECK(smallest_slots(ring) == 2);
}

}  // namespace gc3::verify::test
