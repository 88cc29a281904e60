#include "gc3/ir/blocks.h"

#include <optional>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/ir/step_order.h"
#include "gc3/ir/structure.h"

namespace gc3::ir {
namespace {

using model::Buffer;
using model::Collective;
using model::Place;

constexpr std::uint64_t kMostPieces = std::uint64_t{1} << 28U;

class Tracer {
 public:
  Tracer(const ProgramIndex& index, const Connections& connections)
      : index_(index),
        connections_(connections),
        collective_(index.program().collective),
        held_(index.slot_count(), kNone),
        messages_(connections.chunks, kNone) {
    for (const Connection& c : connections.all) {
      sent_.push_back(c.first_chunk);
      received_.push_back(c.first_chunk);
    }
    std::uint32_t pieces = 0;
    for (const Instruction& i : index.program().instructions) {
      blocks_.first.push_back(pieces);
      pieces += i.count;
    }
    blocks_.pieces.assign(pieces, kNone);
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      for (std::uint32_t i = 0; i < collective_.input_chunks(r); ++i) {
        held(r, collective_.canonical(r, {Buffer::input, i})) = piece_of(collective_, r, {Buffer::input, i});
      }
    }
  }

  Result<Blocks> run() {
    const StepOrder order = StepOrder::find(index_, connections_);
    for (const Step step : order.steps) {
      if (!execute(step)) return std::move(*problem_);
    }
    if (order.stuck) return none(index_.describe(*order.stuck) + " waits for ever");
    GC3_CHECK(check_outputs());
    return std::move(blocks_);
  }

 private:
  std::uint32_t& held(std::uint32_t rank, Place place) {
    return held_[index_.slots(rank).first + index_.slot(rank, place.buffer, place.index)];
  }
  static Diagnostic none(const std::string& why) { return Diagnostic(ErrorCode::NoVForm, why); }

  bool execute(Step step) {
    const Instruction& i = index_.instruction(step);
    const OpcodeInfo& op = info(i.opcode);
    const std::uint32_t rank = index_.rank_of(step.tb);
    if (i.opcode == Opcode::apply) return apply(step, rank, i);
    std::uint32_t* piece =
        blocks_.pieces.data() + blocks_.first[index_.program().threadblocks[step.tb].first_instruction + step.step];
    for (std::uint32_t k = 0; k < i.count; ++k, ++piece) {
      if (op.receives) *piece = messages_[received_[connections_.receiving[step.tb]]++];
      if (op.reads_local && !take(step, *piece, rank, {i.src_buffer, i.src_chunk + k})) return false;
      if (op.updates_dst() && !take(step, *piece, rank, {i.dst_buffer, i.dst_chunk + k})) return false;
      if (op.writes_local) held(rank, {i.dst_buffer, i.dst_chunk + k}) = *piece;
      if (op.sends) messages_[sent_[connections_.sending[step.tb]]++] = *piece;
    }
    return true;
  }

  bool apply(Step step, std::uint32_t rank, const Instruction& i) {
    const Compute& compute = index_.program().compute;
    std::uint32_t* piece =
        blocks_.pieces.data() + blocks_.first[index_.program().threadblocks[step.tb].first_instruction + step.step];
    for (const Operand& o : compute.reads(i)) {
      if (!take(step, *piece++, rank, {o.buffer, o.chunk})) return false;
    }
    for (const Operand& o : compute.writes(i)) held(rank, {o.buffer, o.chunk}) = *piece++ = o.length;
    return true;
  }

  // What a step reads at `place` is, or is added to, the chunk that it moves.
  bool take(Step step, std::uint32_t& piece, std::uint32_t rank, Place place) {
    const std::uint32_t found = held(rank, place);
    if (found == kNone) {
      problem_ = none(index_.describe(step) + " reads " + place_name(place) + ", which nothing has written");
      return false;
    }
    if (piece != kNone && piece != found) {
      problem_ = none(index_.describe(step) + " adds " + name(found) + " to " + name(piece) +
                      ", and the lengths of these may differ");
      return false;
    }
    piece = found;
    return true;
  }

  // "chunk 1 of the block from rank 0 to rank 3".
  std::string name(std::uint32_t piece) const {
    const std::uint32_t chunks = collective_.chunks();
    const std::uint32_t count = piece / chunks;
    if (collective_.has_tensors()) return "a chunk as long as those of " + index_.program().compute.lengths[piece];
    std::string text = chunks == 1 ? "" : "chunk " + std::to_string(piece % chunks) + " of ";
    if (collective_.kind() == model::CollectiveKind::alltoall) {
      return text + "the block from rank " + std::to_string(count / collective_.ranks()) + " to rank " +
             std::to_string(count % collective_.ranks());
    }
    return text + (collective_.v_counts() == 0 ? "a block" : "the block of rank " + std::to_string(count));
  }

  Status check_outputs() {
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      for (std::uint32_t i = 0; i < collective_.output_chunks(r); ++i) {
        const std::uint32_t found = held(r, collective_.canonical(r, {Buffer::output, i}));
        const std::uint32_t wanted = piece_of(collective_, r, {Buffer::output, i});
        if (found == wanted || collective_.demand(r, i).size() == 0) continue;
        return none("rank " + std::to_string(r) + " output[" + std::to_string(i) + "] holds " +
                    (found == kNone ? "nothing" : name(found)) + " instead of " + name(wanted));
      }
    }
    return {};
  }

  const ProgramIndex& index_;
  const Connections& connections_;
  const Collective& collective_;
  std::vector<std::uint32_t> held_;      // per slot of all ranks: the piece in it
  std::vector<std::uint32_t> messages_;  // per chunk of all messages
  std::vector<std::size_t> sent_;        // per connection: the position in messages_ of its next message
  std::vector<std::size_t> received_;
  Blocks blocks_;
  std::optional<Diagnostic> problem_;
};

Diagnostic has_none(const Collective& collective) {
  return Diagnostic(ErrorCode::NoVForm, std::string(collective.name()) + " has no v-form");
}

}  // namespace

std::uint32_t piece_of(const Collective& collective, std::uint32_t rank, Place place) {
  const std::uint32_t chunks = collective.chunks();
  return collective.v_count(rank, place.buffer, place.index / chunks) * chunks + place.index % chunks;
}

Result<Blocks> trace_blocks(const ProgramIndex& index, const Connections& connections) {
  const Collective& collective = index.program().collective;
  if (collective.kind() == model::CollectiveKind::custom && !collective.has_tensors()) return has_none(collective);
  std::uint64_t pieces = 0;
  for (const Instruction& i : index.program().instructions) pieces += i.count;
  if (pieces > kMostPieces) {
    return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(pieces) + " chunks in all steps; at most " +
                                                      std::to_string(kMostPieces) + " can have lengths of their own");
  }
  return Tracer(index, connections).run();
}

Result<Blocks> trace_blocks(const Program& program) {
  Findings findings(1);
  if (!check_structure(program, 0, findings) || findings.full()) return findings.take().front();
  const ProgramIndex index(program);
  const Connections connections = match_transfers(index, findings);
  if (findings.full()) return findings.take().front();
  return trace_blocks(index, connections);
}

Result<Blocks> trace_blocks(const ClassProgram& read) {
  if (!read.symmetry.exists()) return trace_blocks(read.representative);
  GC3_ASSIGN(const Program whole, expand(read));
  return trace_blocks(whole);
}

Result<Blocks> trace_v_form(const Program& program) {
  if (program.collective.v_counts() == 0) return has_none(program.collective);
  return trace_blocks(program);
}

}  // namespace gc3::ir
