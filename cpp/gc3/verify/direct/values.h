// What the places of a direct program hold: sums of inputs, as random linear forms (weights.h) and as expressions,
// which explain a wrong result. The inputs of each call are other ones, so what an earlier call left behind is noticed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "gc3/model/terms.h"
#include "gc3/verify/terms.h"
#include "gc3/verify/weights.h"

namespace gc3::verify::direct {

class Values {
 public:
  using Value = std::uint32_t;                // a number of an expression
  static constexpr Value kUnwritten = 0;      // nothing yet
  static constexpr Value kSpoiled = 1;        // made of an unwritten value that has been reported
  static constexpr Value kInput = 1U << 31U;  // with the index of an input that is no expression yet

  explicit Values(std::vector<Weights> of_calls) : weights_(std::move(of_calls)), all_(2) {}

  Value input(std::uint32_t call, std::uint32_t rank, std::uint32_t index) {
    return add({weights_[call].input(rank, index), 1, call, rank, index});
  }
  Value sum(Value a, Value b) {
    if (a <= kSpoiled || b <= kSpoiled) return kSpoiled;
    return add({all_[a].weight + all_[b].weight, model::plus_terms(all_[a].terms, all_[b].terms), kNone, a, b});
  }
  bool holds(Value v, std::uint32_t call, const model::Demand& demand) const {
    return all_[v].terms == demand.size() && all_[v].weight == weights_[call].sum(demand);
  }

  struct Held {
    std::optional<Terms> terms;  // none: too many to list
    bool stale = false;          // inputs of another call are among them
  };
  Held held(Value root, std::uint32_t call) const {
    Held found{Terms{}, false};
    std::map<Value, std::uint64_t, std::greater<>> open{{root, 1}};
    for (std::size_t visits = 0; !open.empty(); ++visits) {
      if (visits == std::size_t{1} << 16U) return {std::nullopt, found.stale};
      const auto [value, times] = *open.begin();
      open.erase(open.begin());
      if (value <= kSpoiled) continue;
      const Expression& e = all_[value];
      if (e.call == kNone) {
        for (const Value part : {e.a, e.b}) open[part] = model::plus_times(open[part], times);
        continue;
      }
      found.stale = found.stale || e.call != call;
      std::uint64_t& count = (*found.terms)[{e.a, e.b}];
      count = model::plus_times(count, times);
    }
    return found;
  }

 private:
  struct Expression {
    Residue weight;
    std::uint32_t terms = 0;     // inputs in it, exact below model::kManyTerms
    std::uint32_t call = kNone;  // of an input; kNone: a sum
    std::uint32_t a = 0;         // its rank, or a part of the sum
    std::uint32_t b = 0;         // its index, or the other part
  };
  Value add(const Expression& e) {
    all_.push_back(e);
    return static_cast<Value>(all_.size() - 1);
  }

  std::vector<Weights> weights_;  // per call
  std::vector<Expression> all_;
};

}  // namespace gc3::verify::direct
