#include "gc3/verify/test_weaver.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

namespace gc3::verify::test {

using ir::Opcode;
using model::Collective;

Weaver::Weaver(std::string name, Collective collective)
    : name_(std::move(name)), collective_(std::move(collective)), ranks_(collective_.ranks()) {
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].slots[0].resize(collective_.input_chunks(r));
    ranks_[r].slots[1].resize(collective_.output_chunks(r));
  }
}

void Weaver::scratch(std::uint32_t rank, std::uint32_t chunks) {
  ranks_[rank].scratch_chunks = chunks;
  ranks_[rank].slots[2].resize(chunks);
}

std::uint32_t Weaver::tb(std::uint32_t rank, std::uint32_t send_peer, std::uint32_t recv_peer, std::uint32_t channel,
                         std::uint32_t lane) {
  Rank& r = ranks_[rank];
  const auto next = static_cast<std::uint32_t>(r.tbs.size());
  const auto [found, is_new] = r.by_connections.try_emplace({send_peer, recv_peer, channel, lane}, next);
  if (is_new) r.tbs.push_back({{send_peer, recv_peer, channel, 0, 0}, {}});
  return found->second;
}

void Weaver::copy(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count) {
  if (collective_.canonical(rank, src) == collective_.canonical(rank, dst)) return;
  emit(Opcode::copy, rank, tb, src, dst, count);
}
void Weaver::reduce(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count) {
  emit(Opcode::reduce, rank, tb, src, dst, count);
}
void Weaver::send(std::uint32_t rank, std::uint32_t tb, Place src, std::uint32_t count) {
  emit(Opcode::send, rank, tb, src, src, count);
}
void Weaver::recv(std::uint32_t rank, std::uint32_t tb, Place dst, std::uint32_t count) {
  emit(Opcode::recv, rank, tb, dst, dst, count);
}
void Weaver::rcs(std::uint32_t rank, std::uint32_t tb, Place dst, std::uint32_t count) {
  emit(Opcode::recv_copy_send, rank, tb, dst, dst, count);
}
void Weaver::rrc(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count) {
  emit(Opcode::recv_reduce_copy, rank, tb, src, dst, count);
}
void Weaver::rrs(std::uint32_t rank, std::uint32_t tb, Place src, std::uint32_t count) {
  emit(Opcode::recv_reduce_send, rank, tb, src, src, count);
}
void Weaver::rrcs(std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count) {
  emit(Opcode::recv_reduce_copy_send, rank, tb, src, dst, count);
}

// Adds the accesses of other threadblocks to `waits`; of several steps of one threadblock only the last is needed.
void Weaver::wait_for(std::uint32_t tb, std::vector<ir::Dependency>& waits, const std::vector<Access>& accesses) {
  for (const Access& a : accesses) {
    if (a.tb == tb) continue;
    const auto known = std::ranges::find(waits, a.tb, &ir::Dependency::tb);
    if (known == waits.end()) {
      waits.push_back({a.tb, a.step});
    } else {
      known->step = std::max(known->step, a.step);
    }
  }
}

void Weaver::emit(Opcode opcode, std::uint32_t rank, std::uint32_t tb, Place src, Place dst, std::uint32_t count) {
  const ir::OpcodeInfo& op = ir::info(opcode);
  Rank& r = ranks_[rank];
  src = collective_.canonical(rank, src);
  dst = collective_.canonical(rank, dst);
  Emitted e;
  e.instruction.opcode = opcode;
  e.instruction.count = count;
  if (op.reads_local) {
    e.instruction.src_buffer = src.buffer;
    e.instruction.src_chunk = src.index;
  }
  if (op.writes_local) {
    e.instruction.dst_buffer = dst.buffer;
    e.instruction.dst_chunk = dst.index;
  }
  const Access self{tb, static_cast<std::uint32_t>(r.tbs[tb].steps.size())};
  const auto slot = [&](Place p, std::uint32_t k) -> Slot& {
    return r.slots[static_cast<std::size_t>(p.buffer)].at(p.index + k);
  };
  for (std::uint32_t k = 0; k < count; ++k) {
    if (op.reads_local) {
      if (synchronise_) wait_for(tb, e.dependencies, slot(src, k).writer);
      slot(src, k).readers.push_back(self);
    }
    if (op.writes_local) {
      Slot& written = slot(dst, k);
      if (synchronise_) {
        wait_for(tb, e.dependencies, written.writer);
        wait_for(tb, e.dependencies, written.readers);
      }
      written.readers.clear();
      written.writer = {self};
    }
  }
  r.tbs[tb].steps.push_back(std::move(e));
}

ir::Program Weaver::finish(std::uint32_t slots) {
  ir::Program p;
  p.name = name_;
  p.collective = collective_;
  p.slots = slots;
  for (Rank& r : ranks_) {
    for (const Tb& tb : r.tbs) {
      for (const Emitted& e : tb.steps) {
        for (const ir::Dependency& d : e.dependencies) r.tbs[d.tb].steps[d.step].instruction.has_dependents = 1;
      }
    }
    p.ranks.push_back({static_cast<std::uint32_t>(p.threadblocks.size()), static_cast<std::uint32_t>(r.tbs.size()),
                       r.scratch_chunks});
    for (const Tb& tb : r.tbs) {
      p.threadblocks.push_back(tb.connections);
      p.threadblocks.back().first_instruction = static_cast<std::uint32_t>(p.instructions.size());
      p.threadblocks.back().instruction_count = static_cast<std::uint32_t>(tb.steps.size());
      for (const Emitted& e : tb.steps) {
        p.instructions.push_back(e.instruction);
        p.instructions.back().dep_begin = static_cast<std::uint32_t>(p.dependencies.size());
        p.instructions.back().dep_count = static_cast<std::uint32_t>(e.dependencies.size());
        p.dependencies.insert(p.dependencies.end(), e.dependencies.begin(), e.dependencies.end());
      }
    }
  }
  return p;
}

TEST_CASE("the builder makes accesses wait for conflicting accesses, and for nothing else") {
  Weaver w("three", Collective::builtin(model::CollectiveKind::allreduce, 1, 2, 0, false).value());
  const auto tb = [&](std::uint32_t lane) { return w.tb(0, kNobody, kNobody, 0, lane); };
  w.copy(0, tb(0), in(0), out(0));
  w.copy(0, tb(0), in(1), out(1));
  w.reduce(0, tb(1), out(0), out(1));
  w.copy(0, tb(1), in(0), out(1));
  w.copy(0, tb(2), in(0), out(0), 2);
  const ir::Program p = w.finish(1);
  const auto deps = [&](std::size_t k) {
    const auto d = p.deps(p.instructions[k]);
    return std::vector<ir::Dependency>(d.begin(), d.end());
  };
  CHECK(deps(0).empty());
  CHECK(deps(1).empty());
  CHECK(deps(2) == std::vector<ir::Dependency>{{0, 1}});
  CHECK(deps(3).empty());
  CHECK(deps(4) == std::vector<ir::Dependency>{{0, 0}, {1, 1}});
  CHECK(p.instructions[0].has_dependents == 1);
  CHECK(p.instructions[2].has_dependents == 0);
}

}  // namespace gc3::verify::test
