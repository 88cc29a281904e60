#include "collective.h"

#include <cstdlib>
#include <cstring>

namespace gc3::fake_nccl {
namespace {

// Calls a function with a value of the C++ type of a number of nccl.h.
template <class Work>
bool with_type(int type, const Work& work) {
  switch (type) {
    case 0:
      return work(std::int8_t{}), true;
    case 1:
      return work(std::uint8_t{}), true;
    case 2:
      return work(std::int32_t{}), true;
    case 3:
      return work(std::uint32_t{}), true;
    case 4:
      return work(std::int64_t{}), true;
    case 5:
      return work(std::uint64_t{}), true;
    case 7:
      return work(float{}), true;
    case 8:
      return work(double{}), true;
    default:
      return false;
  }
}

template <class T>
T at(const Bytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}
template <class T>
void put(Bytes& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

template <class T>
T folded(T a, T b, int op) {
  switch (op) {
    case 1:
      return static_cast<T>(a * b);
    case 2:
      return b > a ? b : a;
    case 3:
      return b < a ? b : a;
    default:
      return static_cast<T>(a + b);
  }
}

}  // namespace

std::size_t bytes_of(int type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}

bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter; }

bool reducible(int type) {
  return with_type(type, [](auto) {});
}

std::size_t input_bytes(const Header& header, int rank, int ranks) {
  const std::size_t block = header.count * bytes_of(header.type);
  switch (header.kind) {
    case Kind::broadcast:
      return rank == header.root ? block : 0;
    case Kind::scatter:
      return rank == header.root ? block * static_cast<std::size_t>(ranks) : 0;
    case Kind::reduce_scatter:
    case Kind::all_to_all:
      return block * static_cast<std::size_t>(ranks);
    default:
      return block;
  }
}

void scale(int type, Bytes& data, const Bytes& scalar) {
  with_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < data.size() / sizeof(T); ++i) {
      put(data, i, static_cast<T>(at<T>(data, i) * at<T>(scalar, 0)));
    }
  });
}

Bytes compute(const Header& header, int rank, const std::vector<Bytes>& inputs) {
  const std::size_t block = header.count * bytes_of(header.type);
  Bytes result;
  const auto take = [&](std::size_t from, int index) {
    const auto begin = inputs[from].begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index) * block);
    result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(block));
  };
  const auto reduce = [&](int index) {
    take(0, index);
    with_type(header.type, [&](auto zero) {
      using T = decltype(zero);
      const std::size_t first = static_cast<std::size_t>(index) * header.count;
      for (std::size_t i = 0; i < header.count; ++i) {
        T value = at<T>(result, i);
        for (std::size_t r = 1; r < inputs.size(); ++r) value = folded(value, at<T>(inputs[r], first + i), header.op);
        put(result, i, header.op == 4 ? static_cast<T>(value / static_cast<T>(inputs.size())) : value);
      }
    });
  };
  const auto root = static_cast<std::size_t>(header.root);
  switch (header.kind) {
    case Kind::all_reduce:
      reduce(0);
      break;
    case Kind::reduce:
      if (rank == header.root) reduce(0);
      break;
    case Kind::reduce_scatter:
      reduce(rank);
      break;
    case Kind::broadcast:
      take(root, 0);
      break;
    case Kind::all_gather:
      for (std::size_t r = 0; r < inputs.size(); ++r) take(r, 0);
      break;
    case Kind::gather:
      for (std::size_t r = 0; r < inputs.size() && rank == header.root; ++r) take(r, 0);
      break;
    case Kind::all_to_all:
      for (std::size_t r = 0; r < inputs.size(); ++r) take(r, rank);
      break;
    case Kind::scatter:
      take(root, rank);
      break;
  }
  return result;
}

}  // namespace gc3::fake_nccl
