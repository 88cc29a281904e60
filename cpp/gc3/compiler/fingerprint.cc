#include "gc3/compiler/fingerprint.h"

#include <algorithm>

#include "gc3/base/random.h"
#include "gc3/model/terms.h"

namespace gc3::compiler {

std::size_t Fingerprints::words_of(const model::Collective& collective) {
  std::size_t inputs = 0;
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) inputs += collective.input_chunks(r);
  return 2 * inputs;
}

Result<Fingerprints> Fingerprints::draw(const model::Collective& collective) {
  std::vector<std::uint64_t> words(words_of(collective));
  GC3_CHECK(draw_random(words));
  Fingerprints made(collective, words);
  if (!collective.has_tensors() || collective.has_linear()) return made;
  for (const model::TermCall& call : collective.custom_data()->calls) {
    std::vector<Argument> arguments;
    const auto part = model::part_arguments(call, collective.custom_data()->properties[call.operation]);
    if (!part) arguments.push_back({model::kManyTerms, {}});  // of a whole: equal to no result of a chunk
    for (const std::vector<model::InputChunk>& terms : part.value_or(std::vector<std::vector<model::InputChunk>>())) {
      Argument& sum = arguments.emplace_back();
      for (const model::InputChunk& term : terms) sum.value = sum.value + made.of_term(term);
      sum.terms = static_cast<std::uint32_t>(terms.size());
    }
    GC3_ASSIGN(const Fingerprint value, made.result(call.operation, call.result, std::move(arguments)));
    made.of_calls_.push_back(value);
  }
  return made;
}

Result<Fingerprint> Fingerprints::result(std::uint32_t operation, std::uint32_t result,
                                         std::vector<Argument> arguments) {
  std::array<std::uint64_t, 2> words{};
  // Of so many terms the number is not known, and other sums may have the same value: this result equals no other.
  const bool known = std::ranges::none_of(arguments, [](const Argument& a) { return a.terms == model::kManyTerms; });
  const auto key = std::tuple(operation, result, std::move(arguments));
  if (const auto at = results_.find(key); known && at != results_.end()) return at->second;
  GC3_CHECK(draw_random(words));
  const Fingerprint value(words[0], words[1]);
  if (known) results_.emplace(key, value);
  return value;
}

const Fingerprint& Fingerprints::of_term(const model::InputChunk& term) const {
  return term.rank == model::kComputed ? of_calls_[term.index] : input(term.rank, term.index);
}

Fingerprints::Fingerprints(const model::Collective& collective, std::span<const std::uint64_t> words) {
  inputs_.reserve(words.size() / 2);
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    first_.push_back(inputs_.size());
    const std::uint32_t chunks = collective.input_chunks(r);
    over_ranks_.resize(std::max<std::size_t>(over_ranks_.size(), chunks));
    for (std::uint32_t i = 0; i < chunks; ++i) {
      const std::size_t at = 2 * inputs_.size();
      inputs_.emplace_back(words[at], words[at + 1]);
      over_ranks_[i] = over_ranks_[i] + inputs_.back();
    }
  }
}

Fingerprint Fingerprints::sum(const model::Demand& demand) const {
  const bool of_every_rank = demand.listed.empty() && demand.ranks == first_.size();
  if (of_every_rank) return over_ranks_[demand.first.index];
  Fingerprint total;
  for (std::uint32_t k = 0; k < demand.size(); ++k) total = total + of_term(demand[k]);
  return total;
}

}  // namespace gc3::compiler
