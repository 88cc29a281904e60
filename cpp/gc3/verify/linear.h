// Values of programs with linear operations: a random residue, as in weights.h, and of which terms it is the sum.
//
// What a linear operation makes of a sum is the sum of what it makes of the terms. So it is applied to one term of each
// linear operand at a time, which gives a normal form: equal values have equal residues, and different ones differ with
// the probability of weights.h, where N also counts these arguments.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gc3/verify/execution.h"
#include "gc3/verify/weights.h"

namespace gc3::verify {

class LinearValues {
 public:
  struct Value {
    Residue residue;
    std::uint32_t node = 0;  // in nodes_
  };

  // Evaluates the terms of the postcondition that operations make, too.
  LinearValues(const model::Collective& collective, const Weights& weights, Functions& functions);

  Value input(std::uint32_t rank, std::uint32_t index) { return term(weights_.input(rank, index)); }
  Value sum(Value a, Value b);
  Value apply(std::uint32_t operation, std::uint32_t result, const std::vector<Cell<Value>>& arguments,
              std::uint32_t& terms);
  // The required value of an output chunk.
  Cell<Value> demanded(const model::Demand& demand);
  // Whether there are more terms than can be listed; values are then without meaning.
  bool full() const { return room_ == 0; }

 private:
  struct Node {
    bool is_term = false;
    std::uint32_t a = 0;  // a term: its number in terms_; else a part of the sum
    std::uint32_t b = 0;  // the other part
  };
  using Listed = std::map<std::uint32_t, std::uint64_t>;  // by number, how often

  Value term(Residue residue);
  Value multiple(Value of, std::uint64_t times);
  Listed listed(std::uint32_t node);
  Cell<Value> cell_of(const model::InputChunk& term);
  template <class Terms>
  Cell<Value> sum_of(const Terms& terms);

  const std::vector<model::Properties>& properties_;
  const Weights& weights_;
  Functions& functions_;
  std::vector<Node> nodes_{Node{}};  // node 0: nothing
  std::vector<Residue> terms_;
  std::vector<Cell<Value>> of_calls_;             // of the postcondition
  std::uint64_t room_ = std::uint64_t{1} << 22U;  // visits of nodes, and results
};

}  // namespace gc3::verify
