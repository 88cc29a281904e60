// A hash map from 64-bit keys to 32-bit values with open addressing, because the compiler interns millions of keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gc3/base/mix64.h"

namespace gc3::compiler {

class FlatMap {
 public:
  FlatMap() : cells_(64) {}

  // The value of `key`, inserted as `fallback` if the key is new.
  std::uint32_t& at(std::uint64_t key, std::uint32_t fallback) {
    if ((size_ + 1) * 2 > cells_.size()) grow();
    Cell& cell = find(key);
    if (!cell.used) {
      cell = {key, fallback, true};
      ++size_;
    }
    return cell.value;
  }

  bool contains(std::uint64_t key) { return find(key).used; }

 private:
  struct Cell {
    std::uint64_t key = 0;
    std::uint32_t value = 0;
    bool used = false;
  };

  Cell& find(std::uint64_t key) {
    std::size_t i = mix64(key) & (cells_.size() - 1);
    while (cells_[i].used && cells_[i].key != key) i = (i + 1) & (cells_.size() - 1);
    return cells_[i];
  }

  void grow() {
    std::vector<Cell> old(cells_.size() * 2);
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.used) find(cell.key) = cell;
    }
  }

  std::vector<Cell> cells_;
  std::size_t size_ = 0;
};

}  // namespace gc3::compiler
