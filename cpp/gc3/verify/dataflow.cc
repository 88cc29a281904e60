#include "gc3/verify/dataflow.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/errors/verifier.h"
#include "gc3/verify/execution.h"
#include "gc3/verify/switched.h"
#include "gc3/verify/terms.h"

namespace gc3::verify {
namespace {

class Weighing {
 public:
  using Value = Residue;

  Weighing(const ProgramIndex& index, const Weights& weights, Functions& functions, Findings& findings)
      : index_(index), weights_(weights), functions_(functions), findings_(findings) {}
  Value input(std::uint32_t rank, std::uint32_t index) { return weights_.input(rank, index); }
  Value sum(Value a, Value b) { return a + b; }
  Value apply(std::uint32_t operation, std::uint32_t result, const std::vector<Cell<Value>>& arguments) {
    std::vector<Functions::Argument> of;
    for (const Cell<Value>& cell : arguments) of.push_back({cell.terms, cell.value});
    return functions_.value(operation, result, of);
  }
  void unwritten(Step reader, model::Place place) {
    if (findings_.full() || reader == last_reader_) return;  // once per instruction
    last_reader_ = reader;
    findings_.add({ErrorCode::UninitializedRead,
                   index_.describe(reader) + " reads " + place_name(place) + ", which nothing has written"});
  }

 private:
  const ProgramIndex& index_;
  const Weights& weights_;
  Functions& functions_;
  Findings& findings_;
  Step last_reader_;
};

std::vector<OutputChunk> wrong_outputs(const model::Collective& c, const Weights& weights,
                                       Execution<Weighing>& execution, std::size_t limit) {
  std::vector<OutputChunk> wrong;
  Breath breathe;
  for (std::uint32_t r = 0; r < c.ranks(); ++r) {
    for (std::uint32_t i = 0; i < c.output_chunks(r) && wrong.size() < limit; ++i) {
      breathe();
      const model::Demand demanded = c.demand(r, i);
      if (demanded.size() == 0) continue;
      const Cell<Residue>& held = execution.output(r, i);
      if (held.state == State::spoiled) continue;
      if (held.terms != demanded.size() || held.value != weights.sum(demanded)) wrong.push_back({r, i});
    }
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
  std::vector<OutputChunk> wrong;
  {
    Weights weights = given;
    Functions functions;
    weights.evaluate(c, functions);
    Weighing weighing(index, weights, functions, findings);
    Execution<Weighing> execution(index, connections, weighing);
    execution.run(schedule);
    check_multicast_values(index, connections, findings, [&](std::size_t a, std::size_t b) {
      const Cell<Residue>& one = execution.message(a);
      const Cell<Residue>& other = execution.message(b);
      return one.state != State::written || other.state != State::written ||
             (one.terms == other.terms && one.value == other.value);
    });
    if (!functions.status().ok()) return findings.add(functions.status().error());
    wrong = wrong_outputs(c, weights, execution, findings.room());
  }
  if (wrong.empty()) return;
  // An output may consist of an input of every rank; with very many ranks, fewer outputs are explained.
  constexpr std::uint64_t kMostTerms = std::uint64_t{1} << 20U;
  wrong.resize(std::min<std::size_t>(wrong.size(), 1 + kMostTerms / c.ranks()));
  model::Calls calls(c);
  const std::vector<Held> held = rebuild_terms(index, connections, schedule, wrong, calls);
  for (std::size_t k = 0; k < wrong.size(); ++k) findings.add(explain(index, schedule, wrong[k], held[k], calls));
}

}  // namespace gc3::verify
