// Whether ranks read large messages directly from each other's memory (process_vm_readv), and from which size on.
//
// The faster way depends on the processor and the system: the call pins every page that it reads, and the kernel makes
// the copy. So the ranks measure both ways when they join, for some milliseconds.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "gc3/base/result.h"

namespace gc3::core {

class Group;

struct SingleCopy {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::array<std::uint64_t, 5> kSizes = {8 << 10, 32 << 10, 128 << 10, 512 << 10, 1024 << 10};

  // Nanoseconds for a message of a size: to write it into shared memory, to read it there on the next rank, and to read
  // it on the next rank directly from its sender's memory.
  struct Times {
    std::uint32_t put = 0;
    std::uint32_t take = 0;
    std::uint32_t read = 0;
  };

  bool reads = false;     // every rank can read the next one's memory
  bool writes = false;    // and write it
  bool measured = false;  // else the next three are a guess
  // The sizes in bytes from which reading a message is faster than copying it through shared memory: if it is only
  // moved, if the receiver reduces or forwards it, and if the sender writes half of it.
  std::uint64_t least_moved = kNever;
  std::uint64_t least_combined = kNever;
  std::uint64_t least_helped = kNever;
  std::array<Times, kSizes.size()> times = {};  // mean of the ranks

  // Sets the three sizes from the times, if there are any.
  void choose(bool core_each);
  // A short description.
  std::string describe() const;
};

struct SingleCopyWish {
  bool allowed = true;
  bool measured = true;
};

// Collective, within a call: measures both ways. All ranks get the same result. It is used if all ranks allow it.
Result<SingleCopy> try_single_copy(Group& group, const SingleCopyWish& wish, const std::function<bool()>& interrupted);

}  // namespace gc3::core
