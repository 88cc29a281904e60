#include "gc3/verify/weights.h"

#include <algorithm>
#include <cstddef>

#include "gc3/base/random.h"

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
  for (std::uint32_t k = 0; k < demand.size(); ++k) total = total + input(demand[k].rank, demand[k].index);
  return total;
}

}  // namespace gc3::verify
