#include "gc3/compiler/fingerprint.h"

#include <algorithm>

#include "gc3/base/random.h"

namespace gc3::compiler {

std::size_t Fingerprints::words_of(const model::Collective& collective) {
  std::size_t inputs = 0;
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) inputs += collective.input_chunks(r);
  return 2 * inputs;
}

Result<Fingerprints> Fingerprints::draw(const model::Collective& collective) {
  std::vector<std::uint64_t> words(words_of(collective));
  GC3_CHECK(draw_random(words));
  return Fingerprints(collective, words);
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
  for (std::uint32_t k = 0; k < demand.size(); ++k) total = total + input(demand[k].rank, demand[k].index);
  return total;
}

}  // namespace gc3::compiler
