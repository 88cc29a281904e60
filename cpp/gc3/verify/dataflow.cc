#include "gc3/verify/dataflow.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/verify/execution.h"
#include "gc3/verify/linear.h"
#include "gc3/verify/switched.h"
#include "gc3/verify/terms.h"

namespace gc3::verify {
namespace {

// Values without linear operations.
class PlainValues {
 public:
  using Value = Residue;

  PlainValues(const model::Collective& collective, Weights& weights, Functions& functions)
      : weights_(weights), functions_(functions) {
    weights.evaluate(collective, functions);
  }
  Value input(std::uint32_t rank, std::uint32_t index) { return weights_.input(rank, index); }
  Value sum(Value a, Value b) { return a + b; }
  Value apply(std::uint32_t operation, std::uint32_t result, const std::vector<Cell<Value>>& arguments,
              std::uint32_t& /*terms*/) {
    std::vector<Functions::Argument> of;
    for (const Cell<Value>& cell : arguments) of.push_back({cell.terms, cell.value});
    return functions_.value(operation, result, of);
  }
  Cell<Value> demanded(const model::Demand& demand) { return {weights_.sum(demand), demand.size(), State::written}; }
  bool full() const { return false; }

 private:
  const Weights& weights_;
  Functions& functions_;
};

Residue residue(Residue value) { return value; }
Residue residue(const LinearValues::Value& value) { return value.residue; }
template <class Value>
bool equal(const Cell<Value>& a, const Cell<Value>& b) {
  return a.terms == b.terms && residue(a.value) == residue(b.value);
}

// Reports what is read and has not been written.
template <class Values>
class Weighing : public Values {
 public:
  Weighing(const ProgramIndex& index, Weights& weights, Functions& functions, Findings& findings)
      : Values(index.program().collective, weights, functions), index_(index), findings_(findings) {}
  void unwritten(Step reader, model::Place place) {
    if (findings_.full() || reader == last_reader_) return;  // once per instruction
    last_reader_ = reader;
    findings_.add({ErrorCode::UninitializedRead,
                   index_.describe(reader) + " reads " + place_name(place) + ", which nothing has written"});
  }

 private:
  const ProgramIndex& index_;
  Findings& findings_;
  Step last_reader_;
};

template <class Algebra>
std::vector<OutputChunk> wrong_outputs(const model::Collective& c, Algebra& algebra, Execution<Algebra>& execution,
                                       std::size_t limit) {
  std::vector<OutputChunk> wrong;
  Breath breathe;
  for (std::uint32_t r = 0; r < c.ranks(); ++r) {
    for (std::uint32_t i = 0; i < c.output_chunks(r) && wrong.size() < limit; ++i) {
      breathe();
      const model::Demand demanded = c.demand(r, i);
      if (demanded.size() == 0) continue;
      const auto& held = execution.output(r, i);
      if (held.state == State::spoiled) continue;
      if (!equal(held, algebra.demanded(demanded))) wrong.push_back({r, i});
    }
  }
  return wrong;
}

template <class Values>
std::vector<OutputChunk> compare(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                                 Weights weights, Findings& findings) {
  Functions functions;
  Weighing<Values> weighing(index, weights, functions, findings);
  Execution<Weighing<Values>> execution(index, connections, weighing);
  execution.run(schedule);
  check_multicast_values(index, connections, findings, [&](std::size_t a, std::size_t b) {
    const auto& one = execution.message(a);
    const auto& other = execution.message(b);
    return one.state != State::written || other.state != State::written || equal(one, other);
  });
  std::vector<OutputChunk> wrong = wrong_outputs(index.program().collective, weighing, execution, findings.room());
  if (!functions.status().ok()) {
    findings.add(functions.status().error());
    return {};
  }
  if (weighing.full()) {
    findings.add({ErrorCode::ProgramTooLarge,
                  "its linear operations make values of more terms than can be listed, so it cannot be proven"});
    return {};
  }
  return wrong;
}

// The step that writes the final value of an output chunk, if any.
std::optional<Step> last_writer(const ProgramIndex& index, const Schedule& schedule, OutputChunk output) {
  const model::Place place = index.program().collective.canonical(output.rank, {model::Buffer::output, output.index});
  for (auto run = schedule.rbegin(); run != schedule.rend(); ++run) {
    if (index.rank_of(run->tb) != output.rank) continue;
    for (std::uint32_t s = run->end; s-- > run->first;) {
      const ir::Instruction& i = index.instruction({run->tb, s});
      const bool covers =
          i.dst_buffer == place.buffer && i.dst_chunk <= place.index && place.index - i.dst_chunk < i.count;
      const auto results = index.program().compute.writes(i);
      const bool computes =
          std::ranges::any_of(results, [&](const ir::Operand& o) { return model::Place{o.buffer, o.chunk} == place; });
      if (computes || (ir::info(i.opcode).writes_local && covers)) return Step{run->tb, s};
    }
  }
  return std::nullopt;
}

Diagnostic explain(const ProgramIndex& index, const Schedule& schedule, OutputChunk wrong, const Held& held,
                   const model::Calls& calls) {
  const Terms expected = calls.demanded(wrong.rank, wrong.index);
  const auto to_string = [&](const Terms& terms) { return verify::to_string(terms, calls); };
  const std::string holds = held.terms ? to_string(*held.terms) : model::terms_text(held.count) + ", too many to list,";
  Diagnostic problem(ErrorCode::WrongResult, "rank " + std::to_string(wrong.rank) + " output[" +
                                                 std::to_string(wrong.index) + "] holds " + holds + " instead of " +
                                                 to_string(expected));
  if (held.terms) {
    const Terms missing = model::difference(expected, *held.terms);
    const Terms surplus = model::difference(*held.terms, expected);
    if (!missing.empty()) problem.note("missing: " + to_string(missing));
    if (!surplus.empty()) problem.note("too much: " + to_string(surplus));
  }
  const std::optional<Step> writer = last_writer(index, schedule, wrong);
  problem.note(writer ? "last written by " + index.describe(*writer) : "no step writes it");
  return problem;
}

}  // namespace

void check_dataflow(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                    const Weights& given, Findings& findings) {
  const model::Collective& c = index.program().collective;
  std::vector<OutputChunk> wrong = c.has_linear() ? compare<LinearValues>(index, connections, schedule, given, findings)
                                                  : compare<PlainValues>(index, connections, schedule, given, findings);
  if (wrong.empty()) return;
  // An output may consist of an input of every rank; with very many ranks, fewer outputs are explained.
  constexpr std::uint64_t kMostTerms = std::uint64_t{1} << 20U;
  wrong.resize(std::min<std::size_t>(wrong.size(), 1 + kMostTerms / c.ranks()));
  model::Calls calls(c);
  const std::vector<Held> held = rebuild_terms(index, connections, schedule, wrong, calls);
  for (std::size_t k = 0; k < wrong.size(); ++k) findings.add(explain(index, schedule, wrong[k], held[k], calls));
}

}  // namespace gc3::verify
