// Symbolic execution of a program in one order. The caller chooses the representation of values (a weight, a term).
//
// Chunks move whole. If a count is not divisible, some chunks are shorter than others. The engines ensure that moving
// data from a shorter chunk through a longer one loses nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gc3/base/interrupt.h"
#include "gc3/model/terms.h"
#include "gc3/verify/program.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {

// Spoiled: computed from an unwritten slot whose reading has been reported.
enum class State : std::uint8_t { written, spoiled, unwritten };

template <class Value>
struct Cell {
  Value value{};
  std::uint32_t terms = 0;  // the number of inputs in the sum, exact below model::kManyTerms
  State state = State::unwritten;
};

// Algebra: `Value`, `Value input(rank, index)`, `Value sum(a, b)` and `void unwritten(Step, Place)`, which is called
// for each read of an unwritten slot. Of a program of classes also `sent_place(step, k)` and `sent_value(step, value)`.
// For programs that compute also `Value apply(operation, result, arguments, terms)`, which may change the number of
// terms, 1.
template <class Algebra>
class Execution {
 public:
  using Value = typename Algebra::Value;

  Execution(const ProgramIndex& index, const Connections& connections, Algebra& algebra)
      : index_(index),
        connections_(connections),
        algebra_(algebra),
        slots_(index.slot_count()),
        messages_(connections.chunks) {
    for (const Connection& c : connections.all) {
      to_send_.push_back(c.first_chunk);
      to_receive_.push_back(c.first_chunk);
    }
    const model::Collective& collective = index.program().collective;
    for (std::uint32_t r = 0; r < index.program().ranks.size(); ++r) {
      for (std::uint32_t i = 0; i < collective.input_chunks(r); ++i) {
        cell(r, collective.canonical(r, {model::Buffer::input, i})) = {algebra.input(r, i), 1, State::written};
      }
    }
  }

  void run(const Schedule& schedule) {
    Breath breathe;
    for (const Run& run : schedule) {
      for (std::uint32_t s = run.first; s < run.end; ++s) {
        breathe();
        execute({run.tb, s});
      }
    }
  }

  // The value of output chunk `index` of `rank`.
  const Cell<Value>& output(std::uint32_t rank, std::uint32_t index) {
    return cell(rank, index_.program().collective.canonical(rank, {model::Buffer::output, index}));
  }

  // The k-th chunk of all messages, after `run`.
  const Cell<Value>& message(std::size_t k) const { return messages_[k]; }

 private:
  Cell<Value>& cell(std::uint32_t rank, model::Place place) {
    return slots_[index_.slots(rank).first + index_.slot(rank, place.buffer, place.index)];
  }

  void execute(Step step) {
    const ir::Instruction& i = index_.instruction(step);
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    const std::uint32_t rank = index_.rank_of(step.tb);
    if (i.opcode == ir::Opcode::apply) return apply(step, rank, i);
    std::size_t* in = op.receives ? &to_receive_[connections_.receiving[step.tb]] : nullptr;
    std::size_t* out = op.sends ? &to_send_[connections_.sending[step.tb]] : nullptr;
    for (std::uint32_t k = 0; k < i.count; ++k) {
      Cell<Value> moved;
      if (op.receives) moved = received(step, *in, k);
      if (op.reads_local) {
        const Cell<Value> local = load(step, rank, i.src_buffer, i.src_chunk + k);
        moved = op.receives ? sum(moved, local) : local;
      }
      if (op.updates_dst()) moved = sum(load(step, rank, i.dst_buffer, i.dst_chunk + k), moved);
      if (op.writes_local) cell(rank, {i.dst_buffer, i.dst_chunk + k}) = moved;
      if (op.sends) messages_[(*out)++] = moved;
    }
    if (op.receives) *in += i.count;
  }

  // Chunk `k` of the message that begins at `first`. Where a rank stands for all, the sender is a translation of it.
  Cell<Value> received(Step step, std::size_t first, std::uint32_t k) {
    if constexpr (requires(Value v) { algebra_.sent_value(step, v); }) {
      Cell<Value> sent = messages_[first + algebra_.sent_place(step, k)];
      sent.value = algebra_.sent_value(step, std::move(sent.value));
      return sent;
    } else {
      return messages_[first + k];
    }
  }

  void apply(Step step, std::uint32_t rank, const ir::Instruction& i) {
    const ir::Compute& compute = index_.program().compute;
    std::vector<Cell<Value>> arguments;
    Cell<Value> made{{}, 1, State::written};
    for (const ir::Operand& o : compute.reads(i)) {
      arguments.push_back(load(step, rank, o.buffer, o.chunk));
      made.state = std::max(made.state, arguments.back().state);
    }
    std::uint32_t result = 0;
    for (const ir::Operand& o : compute.writes(i)) {
      if constexpr (requires { algebra_.apply(0U, 0U, arguments, made.terms); }) {
        made.terms = 1;
        made.value = algebra_.apply(compute.applications[i.src_chunk].operation, result++, arguments, made.terms);
      }
      cell(rank, {o.buffer, o.chunk}) = made;
    }
  }

  Cell<Value> load(Step step, std::uint32_t rank, model::Buffer buffer, std::uint32_t chunk) {
    Cell<Value> found = cell(rank, {buffer, chunk});
    if (found.state == State::unwritten) {
      algebra_.unwritten(step, model::Place{buffer, chunk});
      found.state = State::spoiled;
    }
    return found;
  }

  Cell<Value> sum(const Cell<Value>& a, const Cell<Value>& b) {
    return {algebra_.sum(a.value, b.value), model::plus_terms(a.terms, b.terms), std::max(a.state, b.state)};
  }

  const ProgramIndex& index_;
  const Connections& connections_;
  Algebra& algebra_;
  std::vector<Cell<Value>> slots_;
  std::vector<Cell<Value>> messages_;  // a row per connection, in order
  std::vector<std::size_t> to_send_;   // per connection: the position in messages_ of its next message
  std::vector<std::size_t> to_receive_;
};

}  // namespace gc3::verify
