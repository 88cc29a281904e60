// The chunks that the ranks of a direct program may name, in one array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gc3/ir/index.h"
#include "gc3/model/collective.h"

namespace gc3::ir::direct {

class Places {
 public:
  // Of a rank with `scratch[rank]` chunks of scratch, in `halves` copies. The collective lives longer.
  Places(const model::Collective& collective, std::vector<std::uint32_t> scratch, std::uint32_t halves)
      : collective_(collective), scratch_(std::move(scratch)), halves_(halves) {
    for (std::uint32_t r = 0; r < scratch_.size(); ++r) {
      first_.push_back(count_);
      count_ +=
          std::size_t{collective.input_chunks(r)} + collective.output_chunks(r) + std::size_t{halves} * scratch_[r];
    }
  }
  std::size_t count() const { return count_; }

  // Chunk `chunk` of a buffer of `rank` in a call. Two names of one place give one number.
  std::uint32_t number(std::uint32_t rank, model::Buffer buffer, std::uint32_t chunk, std::uint32_t call = 0) const {
    const std::size_t outputs = first_[rank] + collective_.input_chunks(rank);
    if (buffer == model::Buffer::scratch) {
      const std::size_t half = std::size_t{call % halves_} * scratch_[rank];
      return static_cast<std::uint32_t>(outputs + collective_.output_chunks(rank) + half + chunk);
    }
    const model::Place place = collective_.canonical(rank, {buffer, chunk});
    return static_cast<std::uint32_t>((place.buffer == model::Buffer::input ? first_[rank] : outputs) + place.index);
  }
  std::string name(std::uint32_t number) const {
    std::uint32_t rank = 0;
    while (rank + 1 < first_.size() && first_[rank + 1] <= number) ++rank;
    std::size_t rest = number - first_[rank];
    const std::array<std::size_t, 2> sizes = {collective_.input_chunks(rank), collective_.output_chunks(rank)};
    std::size_t buffer = 0;
    for (; buffer < 2 && rest >= sizes[buffer]; ++buffer) rest -= sizes[buffer];
    if (buffer == 2) rest %= scratch_[rank];
    return "rank " + std::to_string(rank) + " " +
           place_name({static_cast<model::Buffer>(buffer), static_cast<std::uint32_t>(rest)});
  }

 private:
  const model::Collective& collective_;
  std::vector<std::uint32_t> scratch_;  // per rank
  std::uint32_t halves_;
  std::vector<std::size_t> first_;  // per rank
  std::size_t count_ = 0;
};

}  // namespace gc3::ir::direct
