// What a rank gives to a collective, and what it gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mailbox.h"

namespace gc3::fake_nccl {

enum class Kind : std::int32_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter
};
constexpr int kPreMulSum = 5;  // any reduction of the user: a sum of scaled inputs

// The same on all ranks.
struct Header {
  Kind kind;
  std::int32_t type;
  std::int32_t op;  // of nccl.h, or kPreMulSum
  std::int32_t root;
  std::uint64_t count;

  bool operator==(const Header&) const = default;
};

std::size_t bytes_of(int type);
bool reduces(Kind kind);
bool reducible(int type);  // of these types only are there reductions here
// The bytes of a rank's input.
std::size_t input_bytes(const Header& header, int rank, int ranks);
// Multiplies all elements by the first one of `scalar`.
void scale(int type, Bytes& data, const Bytes& scalar);
// The output of a rank for the inputs of all ranks; empty: it has none.
Bytes compute(const Header& header, int rank, const std::vector<Bytes>& inputs);

}  // namespace gc3::fake_nccl
