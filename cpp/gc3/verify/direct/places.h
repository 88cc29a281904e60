// The places of a direct program: the chunks of all ranks, with their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gc3/ir/direct/program.h"
#include "gc3/ir/index.h"

namespace gc3::verify::direct {

class Places {
 public:
  explicit Places(const ir::direct::Program& program) : program_(program) {
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      first_.push_back(count_);
      count_ += program.collective.input_chunks(r) + program.collective.output_chunks(r) +
                std::size_t{program.halves} * program.ranks[r].scratch_chunks;
    }
  }
  std::size_t count() const { return count_; }

  // Chunk `chunk` of a buffer of `rank` in a call. Two names of one place give one number.
  std::uint32_t number(std::uint32_t rank, model::Buffer buffer, std::uint32_t chunk, std::uint32_t call) const {
    const model::Collective& c = program_.collective;
    const std::size_t outputs = first_[rank] + c.input_chunks(rank);
    if (buffer == model::Buffer::scratch) {
      const std::size_t half = std::size_t{call % program_.halves} * program_.ranks[rank].scratch_chunks;
      return static_cast<std::uint32_t>(outputs + c.output_chunks(rank) + half + chunk);
    }
    const model::Place place = c.canonical(rank, {buffer, chunk});
    return static_cast<std::uint32_t>((place.buffer == model::Buffer::input ? first_[rank] : outputs) + place.index);
  }
  std::string name(std::uint32_t number) const {
    std::uint32_t rank = 0;
    while (rank + 1 < first_.size() && first_[rank + 1] <= number) ++rank;
    std::size_t rest = number - first_[rank];
    const model::Collective& c = program_.collective;
    const std::array<std::size_t, 2> sizes = {c.input_chunks(rank), c.output_chunks(rank)};
    std::size_t buffer = 0;
    for (; buffer < 2 && rest >= sizes[buffer]; ++buffer) rest -= sizes[buffer];
    if (buffer == 2) rest %= program_.ranks[rank].scratch_chunks;
    return "rank " + std::to_string(rank) + " " +
           ir::place_name({static_cast<model::Buffer>(buffer), static_cast<std::uint32_t>(rest)});
  }

 private:
  const ir::direct::Program& program_;
  std::vector<std::size_t> first_;  // per rank
  std::size_t count_ = 0;
};

}  // namespace gc3::verify::direct
