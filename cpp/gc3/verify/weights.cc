#include "gc3/verify/weights.h"

#include <algorithm>
#include <cstddef>

#include "gc3/base/random.h"
#include "gc3/model/terms.h"

namespace gc3::verify {

Weights::Weights(std::vector<Residue> of_ranks, std::vector<Residue> of_indices)
    : of_ranks_(std::move(of_ranks)), of_indices_(std::move(of_indices)) {
  for (const Residue weight : of_ranks_) all_ranks_ = all_ranks_ + weight;
}

Result<Weights> Weights::draw(const model::Collective& collective) {
  std::uint32_t longest = 0;
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) longest = std::max(longest, collective.input_chunks(r));
  std::vector<std::uint64_t> words(2 * (std::size_t{collective.ranks()} + longest));
  GC3_CHECK(draw_random(words));
  std::vector<Residue> drawn;
  drawn.reserve(words.size() / 2);
  for (std::size_t k = 0; k < words.size(); k += 2) drawn.emplace_back(words[k], words[k + 1]);
  const auto indices = drawn.begin() + collective.ranks();
  return Weights({drawn.begin(), indices}, {indices, drawn.end()});
}

Residue Weights::sum(const model::Demand& demand) const {
  const bool of_every_rank = demand.listed.empty() && demand.ranks == of_ranks_.size();
  if (of_every_rank) return all_ranks_ * of_indices_[demand.first.index];
  Residue total;
  for (std::uint32_t k = 0; k < demand.size(); ++k) total = total + of_term(demand[k]);
  return total;
}

Residue Weights::of_term(const model::InputChunk& term) const {
  return term.rank == model::kComputed ? of_calls_[term.index] : input(term.rank, term.index);
}

void Weights::evaluate(const model::Collective& collective, Functions& functions) {
  if (!collective.has_tensors()) return;
  for (const model::TermCall& call : collective.custom_data()->calls) {
    const auto part = model::part_arguments(call, collective.custom_data()->properties[call.operation]);
    if (!part) {  // of a whole: equal to no result of a chunk
      of_calls_.push_back(functions.unique());
      continue;
    }
    std::vector<Functions::Argument> arguments;
    for (const std::vector<model::InputChunk>& terms : *part) {
      Functions::Argument& argument = arguments.emplace_back();
      argument.terms = static_cast<std::uint32_t>(terms.size());
      for (const model::InputChunk& term : terms) argument.value = argument.value + of_term(term);
    }
    of_calls_.push_back(functions.value(call.operation, call.result, arguments));
  }
}

Residue Functions::draw() {
  if (words_.empty()) {
    words_.resize(64);
    if (Status drawn = draw_random(words_); !drawn.ok()) status_ = std::move(drawn);
  }
  const std::uint64_t hi = words_.back();
  words_.pop_back();
  const std::uint64_t lo = words_.back();
  words_.pop_back();
  return {hi, lo};
}

Residue Functions::value(std::uint32_t operation, std::uint32_t result, std::span<const Argument> arguments) {
  std::vector<std::uint64_t> key{std::uint64_t{operation} << 32U | result};
  for (const Argument& a : arguments) {
    // The number of terms is not known, so its value may be that of another sum. No postcondition has such a term.
    if (a.terms == model::kManyTerms) return draw();
    key.insert(key.end(), {a.terms, a.value.hi(), a.value.lo()});
  }
  const auto at = known_.find(key);
  return at != known_.end() ? at->second : known_.emplace(std::move(key), draw()).first->second;
}

}  // namespace gc3::verify
