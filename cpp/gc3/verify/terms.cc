#include "gc3/verify/terms.h"

#include <functional>
#include <string>

#include "gc3/verify/execution.h"

namespace gc3::verify {
namespace {

// Values are nodes of an expression graph. Copying a value is free, so an execution costs two words per reduction.
class Expressions {
 public:
  using Value = std::uint32_t;

  explicit Expressions(model::Calls& calls) : calls_(calls) {}

  Value input(std::uint32_t rank, std::uint32_t index) { return add({true, rank, index}); }
  Value sum(Value a, Value b) { return add({false, a, b}); }
  // An argument that is too long to list is empty in the result, which is then shown only.
  Value apply(std::uint32_t operation, std::uint32_t result, const std::vector<Cell<Value>>& arguments,
              std::uint32_t& /*terms*/) {
    std::vector<Terms> listed;
    for (const Cell<Value>& cell : arguments) {
      listed.push_back(cell.value == 0 ? Terms{} : terms(cell.value, visits_).value_or(Terms{}));
    }
    Value all = 0;
    for (const auto& [term, times] : calls_.made(operation, result, listed).value_or(Terms{})) {
      all = sum(all, multiple(add({true, term.rank, term.index}), times));
    }
    return all;
  }
  void unwritten(Step /*reader*/, model::Place /*place*/) {}  // node 0, the empty value

  // Walks from the root down, each sum before its operands, so that each node is visited once, with its multiplicity.
  // None if that takes more than `visits` visits; subtracts the visits made.
  std::optional<Terms> terms(Value root, std::uint64_t& visits) const {
    Terms found;
    std::map<Value, std::uint64_t, std::greater<>> open{{root, 1}};
    while (!open.empty()) {
      if (visits == 0) return std::nullopt;
      --visits;
      const auto [id, times] = *open.begin();
      open.erase(open.begin());
      if (id == 0) continue;
      const Node& n = nodes_[id];
      if (n.is_input) {
        std::uint64_t& count = found[{n.a, n.b}];  // two nodes can be of the same result
        count = model::plus_times(count, times);
        continue;
      }
      for (const Value part : {n.a, n.b}) {
        std::uint64_t& count = open[part];
        count = model::plus_times(count, times);
      }
    }
    return found;
  }

 private:
  Value multiple(Value of, std::uint64_t times) {
    Value all = 0;
    for (; times != 0; times /= 2) {
      if (times % 2 != 0) all = sum(all, of);
      of = sum(of, of);
    }
    return all;
  }

  struct Node {
    bool is_input;
    std::uint32_t a;  // rank of the input, or a part of the sum
    std::uint32_t b;  // index of the input, or the other part
  };
  Value add(Node n) {
    nodes_.push_back(n);
    return static_cast<Value>(nodes_.size() - 1);
  }
  std::vector<Node> nodes_{{false, 0, 0}};
  model::Calls& calls_;
  std::uint64_t visits_ = std::uint64_t{1} << 20U;  // for all arguments
};

}  // namespace

std::vector<Held> rebuild_terms(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                                const std::vector<OutputChunk>& wanted, model::Calls& calls) {
  Expressions expressions(calls);
  Execution<Expressions> execution(index, connections, expressions);
  execution.run(schedule);
  std::uint64_t visits = std::uint64_t{1} << 20U;
  std::vector<Held> found;
  for (const OutputChunk& w : wanted) {
    const auto& cell = execution.output(w.rank, w.index);
    found.push_back({cell.terms, cell.terms == 0 ? Terms{} : expressions.terms(cell.value, visits)});
  }
  return found;
}

std::string to_string(const Terms& terms, const model::Calls& calls) {
  constexpr std::size_t kShown = 8;
  if (terms.empty()) return "nothing";
  std::string out;
  std::size_t shown = 0;
  for (const auto& [chunk, times] : terms) {
    if (shown == kShown) return out + " + ... (" + std::to_string(terms.size()) + " in all)";
    if (shown++ > 0) out += " + ";
    out += model::times_text(times);
    const std::optional<std::string> name = calls.name(chunk);
    out += name ? *name : "rank " + std::to_string(chunk.rank) + " input[" + std::to_string(chunk.index) + "]";
  }
  return out;
}

}  // namespace gc3::verify
