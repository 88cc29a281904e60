#include "gc3/verify/linear.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "gc3/model/terms.h"

namespace gc3::verify {

LinearValues::LinearValues(const model::Collective& collective, const Weights& weights, Functions& functions)
    : properties_(collective.custom_data()->properties), weights_(weights), functions_(functions) {
  for (const model::TermCall& call : collective.custom_data()->calls) {
    const auto part = model::part_arguments(call, properties_[call.operation]);
    std::vector<Cell<Value>> arguments;
    if (!part) {  // of a whole: equal to no result of a chunk
      of_calls_.push_back({term(functions_.unique()), 1, State::written});
      continue;
    }
    for (const std::vector<model::InputChunk>& argument : *part) arguments.push_back(sum_of(argument));
    std::uint32_t terms = 1;
    const Value made = apply(call.operation, call.result, arguments, terms);
    of_calls_.push_back({made, terms, State::written});
  }
}

LinearValues::Value LinearValues::term(Residue residue) {
  terms_.push_back(residue);
  nodes_.push_back({true, static_cast<std::uint32_t>(terms_.size() - 1), 0});
  return {residue, static_cast<std::uint32_t>(nodes_.size() - 1)};
}

LinearValues::Value LinearValues::sum(Value a, Value b) {
  nodes_.push_back({false, a.node, b.node});
  return {a.residue + b.residue, static_cast<std::uint32_t>(nodes_.size() - 1)};
}

LinearValues::Value LinearValues::multiple(Value of, std::uint64_t times) {
  std::optional<Value> all;
  for (; times != 0; times /= 2) {
    if (times % 2 != 0) all = all ? sum(*all, of) : of;
    if (times > 1) of = sum(of, of);
  }
  return all.value_or(Value{});
}

// From the sum down, each sum before its parts, so that each node is visited once.
LinearValues::Listed LinearValues::listed(std::uint32_t node) {
  Listed found;
  std::map<std::uint32_t, std::uint64_t, std::greater<>> open{{node, 1}};
  while (!open.empty() && room_ != 0) {
    --room_;
    const auto [id, times] = *open.begin();
    open.erase(open.begin());
    const Node& n = nodes_[id];
    if (n.is_term) {
      found[n.a] += times;
    } else if (id != 0) {
      open[n.a] += times;
      open[n.b] += times;
    }
  }
  return found;
}

LinearValues::Value LinearValues::apply(std::uint32_t operation, std::uint32_t result,
                                        const std::vector<Cell<Value>>& arguments, std::uint32_t& terms) {
  struct Choice {
    std::vector<Functions::Argument> arguments;
    std::uint64_t times = 1;
  };
  std::vector<Choice> choices(1);
  std::uint64_t count = 1;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const bool linear = model::covers(properties_[operation].linear, k);
    // Below 2^32, so are all numbers of times, whose product is below 2^64 only if the number of all terms is.
    if (linear) count = std::min<std::uint64_t>(count * arguments[k].terms, model::kManyTerms);
  }
  terms = static_cast<std::uint32_t>(count);
  if (count == model::kManyTerms) return term(functions_.unique());
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (!model::covers(properties_[operation].linear, k)) {
      for (Choice& c : choices) c.arguments.push_back({arguments[k].terms, arguments[k].value.residue});
      continue;
    }
    const Listed parts = listed(arguments[k].value.node);
    room_ -= std::min<std::uint64_t>(room_, choices.size() * parts.size());
    if (room_ == 0) return {};
    std::vector<Choice> longer;
    for (const Choice& c : choices) {
      for (const auto& [part, times] : parts) {
        longer.push_back(c);
        longer.back().arguments.push_back({1, terms_[part]});
        longer.back().times *= times;
      }
    }
    choices = std::move(longer);
  }
  std::optional<Value> all;
  for (const Choice& c : choices) {
    const Value made = multiple(term(functions_.value(operation, result, c.arguments)), c.times);
    all = all ? sum(*all, made) : made;
  }
  return all.value_or(Value{});
}

Cell<LinearValues::Value> LinearValues::cell_of(const model::InputChunk& term) {
  if (term.rank == model::kComputed) return of_calls_[term.index];
  return {input(term.rank, term.index), 1, State::written};
}

template <class Terms>
Cell<LinearValues::Value> LinearValues::sum_of(const Terms& terms) {
  std::optional<Cell<Value>> all;
  for (std::uint32_t k = 0; k < terms.size(); ++k) {
    const Cell<Value> one = cell_of(terms[k]);
    all = all ? Cell<Value>{sum(all->value, one.value), model::plus_terms(all->terms, one.terms), State::written} : one;
  }
  return all.value_or(Cell<Value>{});
}

Cell<LinearValues::Value> LinearValues::demanded(const model::Demand& demand) { return sum_of(demand); }

}  // namespace gc3::verify
