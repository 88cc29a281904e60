// Programs written by hand, for tests and benchmarks of the runtime, which must not need the compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gc3/ir/program.h"

namespace gc3::testing {

struct At {
  model::Buffer buffer;
  std::uint32_t chunk;
};
inline At in(std::uint32_t chunk) { return {model::Buffer::input, chunk}; }
inline At out(std::uint32_t chunk) { return {model::Buffer::output, chunk}; }
inline At scratch(std::uint32_t chunk) { return {model::Buffer::scratch, chunk}; }

// Collects threadblocks rank by rank, in any order, and lays them out as an ir::Program.
class ProgramBuilder {
 public:
  ProgramBuilder(model::CollectiveKind kind, std::uint32_t ranks, std::uint32_t chunks, bool in_place,
                 model::Protocol protocol, std::uint32_t root = 0)
      : ProgramBuilder(model::Collective::builtin(kind, ranks, chunks, root, in_place).value(), protocol) {}
  ProgramBuilder(model::Collective collective, model::Protocol protocol) : tbs_(collective.ranks()) {
    program_.name = "test";
    program_.protocol = protocol;
    program_.ranks.resize(collective.ranks());
    program_.collective = std::move(collective);
  }

  ProgramBuilder& slots(std::uint32_t n) {
    program_.slots = n;
    return *this;
  }
  ProgramBuilder& scratch_chunks(std::uint32_t rank, std::uint32_t n) {
    program_.ranks[rank].scratch_chunks = n;
    return *this;
  }
  // Starts a threadblock; the following steps belong to it. Returns its index within the rank. A rank that is its own
  // peer, as on a ring of one, gets no peer.
  std::uint32_t tb(std::uint32_t rank, std::uint32_t send_peer = ir::kNoRank, std::uint32_t recv_peer = ir::kNoRank,
                   std::uint32_t channel = 0) {
    current_ = &tbs_[rank].emplace_back();
    current_->tb.send_peer = send_peer == rank ? ir::kNoRank : send_peer;
    current_->tb.recv_peer = recv_peer == rank ? ir::kNoRank : recv_peer;
    current_->tb.channel = channel;
    return static_cast<std::uint32_t>(tbs_[rank].size() - 1);
  }
  using Deps = std::vector<ir::Dependency>;
  void nop(Deps deps) { add(ir::Opcode::nop, in(0), in(0), 0, std::move(deps)); }
  void send(At src, std::uint32_t count = 1, Deps deps = {}) {
    add(ir::Opcode::send, src, in(0), count, std::move(deps));
  }
  void recv(At dst, std::uint32_t count = 1, Deps deps = {}) {
    add(ir::Opcode::recv, in(0), dst, count, std::move(deps));
  }
  // Any opcode; an operand it does not use is ignored.
  void step(ir::Opcode op, At src, At dst, std::uint32_t count = 1, Deps deps = {}) {
    add(op, src, dst, count, std::move(deps));
  }

  ir::Program build() {
    for (std::uint32_t r = 0; r < tbs_.size(); ++r) {
      program_.ranks[r].first_tb = static_cast<std::uint32_t>(program_.threadblocks.size());
      program_.ranks[r].tb_count = static_cast<std::uint32_t>(tbs_[r].size());
      for (Threadblock& t : tbs_[r]) {
        for (auto& [instruction, deps] : t.steps) {
          instruction.dep_begin = static_cast<std::uint32_t>(program_.dependencies.size());
          instruction.dep_count = static_cast<std::uint32_t>(deps.size());
          for (const ir::Dependency& d : deps) {
            program_.dependencies.push_back(d);
            tbs_[r][d.tb].steps[d.step].first.has_dependents = 1;
          }
        }
      }
      for (Threadblock& t : tbs_[r]) {
        t.tb.first_instruction = static_cast<std::uint32_t>(program_.instructions.size());
        t.tb.instruction_count = static_cast<std::uint32_t>(t.steps.size());
        for (const auto& s : t.steps) program_.instructions.push_back(s.first);
        program_.threadblocks.push_back(t.tb);
      }
    }
    return std::move(program_);
  }

 private:
  struct Threadblock {
    ir::Threadblock tb;
    std::vector<std::pair<ir::Instruction, Deps>> steps;
  };
  void add(ir::Opcode op, At src, At dst, std::uint32_t count, Deps deps) {
    const ir::OpcodeInfo& does = ir::info(op);
    ir::Instruction i;
    i.opcode = op;
    i.count = count;
    if (does.reads_local) {
      i.src_buffer = src.buffer;
      i.src_chunk = src.chunk;
    }
    if (does.writes_local) {
      i.dst_buffer = dst.buffer;
      i.dst_chunk = dst.chunk;
    }
    current_->steps.emplace_back(i, std::move(deps));
  }

  ir::Program program_;
  std::vector<std::vector<Threadblock>> tbs_;
  Threadblock* current_ = nullptr;
};

// AllToNext of two ranks: rank 0 sends a message to rank 1.
inline ir::Program one_message() {
  ProgramBuilder b(model::CollectiveKind::alltonext, 2, 1, false, model::Protocol::Simple);
  b.tb(0, 1);
  b.send(in(0));
  b.tb(1, ir::kNoRank, 0);
  b.recv(out(0));
  return b.build();
}

// AllReduce on a ring: one threadblock per rank, one chunk per rank and channel. Uses send, rrs, rrcs, rcs and recv.
inline ir::Program ring_allreduce(std::uint32_t ranks, bool in_place, model::Protocol protocol,
                                  std::uint32_t channels = 1) {
  ProgramBuilder b(model::CollectiveKind::allreduce, ranks, ranks * channels, in_place, protocol);
  b.slots(ranks == 1 ? 1 : 2);  // a fused step needs a free slot while its predecessor's message still occupies one
  const auto source = [&](std::uint32_t chunk) { return in_place ? out(chunk) : in(chunk); };
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t ch = 0; ch < channels; ++ch) {
      const auto chunk = [&](std::uint32_t k) { return ch * ranks + (r + 2 * ranks - k) % ranks; };
      b.tb(r, (r + 1) % ranks, (r + ranks - 1) % ranks, ch);
      if (ranks == 1) {
        b.step(ir::Opcode::copy, source(ch), out(ch));
        continue;
      }
      b.send(source(chunk(0)));
      for (std::uint32_t k = 1; k + 1 < ranks; ++k) {
        b.step(ir::Opcode::recv_reduce_send, source(chunk(k)), in(0));
      }
      b.step(ir::Opcode::recv_reduce_copy_send, source(chunk(ranks - 1)), out(chunk(ranks - 1)));
      for (std::uint32_t k = ranks; k + 2 < 2 * ranks; ++k) b.step(ir::Opcode::recv_copy_send, in(0), out(chunk(k)));
      b.recv(out(chunk(2 * ranks - 2)));
    }
  }
  return b.build();
}

// AllReduce where rank r gathers chunk r of all ranks into scratch, reduces it and sends it to all. One threadblock
// per peer; semaphores order them. Uses send, recv, copy, reduce, rrc and nop.
inline ir::Program allpairs_allreduce(std::uint32_t ranks, bool in_place, model::Protocol protocol) {
  ProgramBuilder b(model::CollectiveKind::allreduce, ranks, ranks, in_place, protocol);
  const auto source = [&](std::uint32_t chunk) { return in_place ? out(chunk) : in(chunk); };
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.scratch_chunks(r, ranks);
    // Threadblock 0 sums; threadblock 1 + i communicates with the i-th peer.
    b.tb(r);
    ProgramBuilder::Deps received;
    std::uint32_t step = 0;
    b.step(ir::Opcode::copy, source(r), scratch(r));
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
      const std::uint32_t peer = (r + 1 + i) % ranks;
      b.step(ir::Opcode::reduce, scratch(peer), scratch(r), 1, {{1 + i, 1}});
      ++step;
    }
    b.step(ir::Opcode::copy, scratch(r), out(r));
    const std::uint32_t summed = step + 1;
    for (std::uint32_t i = 0; i + 1 < ranks; ++i) {
      const std::uint32_t peer = (r + 1 + i) % ranks;
      b.tb(r, peer, peer);
      b.send(source(peer));
      b.recv(scratch(peer));
      b.nop({{0, summed}});
      b.send(out(r));
      b.recv(out(peer));
    }
  }
  return b.build();
}

// AllToAll in one step, `chunks` chunks to each peer in one transfer.
inline ir::Program direct_alltoall(std::uint32_t ranks, std::uint32_t chunks, model::Protocol protocol) {
  ProgramBuilder b(model::CollectiveKind::alltoall, ranks, chunks, false, protocol);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.tb(r);
    b.step(ir::Opcode::copy, in(r * chunks), out(r * chunks), chunks);
    for (std::uint32_t i = 1; i < ranks; ++i) {
      b.tb(r, (r + i) % ranks, ir::kNoRank);
      b.send(in((r + i) % ranks * chunks), chunks);
      b.tb(r, ir::kNoRank, (r + ranks - i) % ranks);
      b.recv(out((r + ranks - i) % ranks * chunks), chunks);
    }
  }
  return b.build();
}

// In place, ranks that write to their inputs outside of their outputs: rank 0, which has no output, to all of its
// input; rank 1 to the chunk after its output, which is the first of two.
inline ir::Program busy_inputs(model::Protocol protocol, std::uint32_t chunks = 1) {
  model::CustomCollective data;
  data.name = "busy";
  data.input_chunks = {2 * chunks, 2 * chunks};
  data.output_chunks = {0, chunks};
  data.alias = {0, 0};
  data.begin = {0};
  for (std::uint32_t c = 0; c < chunks; ++c) {
    data.terms.insert(data.terms.end(), {{0, c}, {0, chunks + c}, {1, c}, {1, chunks + c}});
    data.begin.push_back(data.terms.size());
  }
  ProgramBuilder b(model::Collective::custom(data, 2, chunks, true).value(), protocol);
  b.tb(0, 1);
  b.step(ir::Opcode::reduce, in(0), in(chunks), chunks);
  b.step(ir::Opcode::copy, in(chunks), in(0), chunks);
  b.send(in(0), chunks);
  b.tb(1, ir::kNoRank, 0);
  b.step(ir::Opcode::recv_reduce_copy, in(chunks), in(chunks), chunks);
  b.step(ir::Opcode::reduce, in(chunks), in(0), chunks);
  return b.build();
}

// The same, and the data that rank 1 receives passes through chunks of another length.
inline ir::Program busy_inputs_of_two_lengths(model::Protocol protocol) {
  model::CustomCollective data;
  data.name = "busy";
  data.input_chunks = {2, 4};
  data.output_chunks = {0, 2};
  data.alias = {0, 2};
  data.begin = {0, 1, 2};
  data.terms = {{0, 0}, {0, 1}};
  ProgramBuilder b(model::Collective::custom(data, 2, 2, true).value(), protocol);
  b.tb(0, 1);
  b.send(in(0));
  b.send(in(1));
  b.tb(1, ir::kNoRank, 0);
  b.recv(in(1));
  b.step(ir::Opcode::copy, in(1), in(2));
  b.recv(in(3));
  return b.build();
}

// The text of hierarchical AllReduce on two nodes of two ranks, of which rank 0 stands for all.
inline constexpr std::string_view kHierarchicalOfClasses = R"(program "hierarchical_allreduce" version 1
collective allreduce ranks 4 chunks 4 in place
protocol Simple instances 1 slots 2
symmetry 2 2
region in[0] 0:1 1:2
region out[0] 0:1 1:2
region sc[0]

rank 0
  tb 0 channel 0 send 1
    0 send out[2] x2 signals
    1 send out[0] x2 after (1:2)
  tb 1 channel 0 send 2 recv 2
    0 send out[1] after (2:0)
    1 rrcs out[0] -> out[0]
    2 recv -> out[1] signals
  tb 2 channel 0 recv 1
    0 rrc out[0] -> out[0] x2 signals
    1 recv -> out[2] x2 after (0:0)
)";

}  // namespace gc3::testing
