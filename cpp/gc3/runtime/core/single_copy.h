// Whether ranks read large messages straight from each other's memory (process_vm_readv), and from how many bytes on.
//
// Which way is faster depends on the processor and the system: the call pins every page that it reads, and copies as
// the kernel does. So the ranks try both ways at once when they meet, for some milliseconds.
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

  // Nanoseconds that a message of a size takes: to be put into shared memory, to be taken from there by the next rank,
  // and to be read by the next rank straight from where it lies.
  struct Times {
    std::uint32_t put = 0;
    std::uint32_t take = 0;
    std::uint32_t read = 0;
  };

  bool reads = false;     // every rank can read the next one's memory
  bool writes = false;    // and write it
  bool measured = false;  // else the next three are a guess
  // Bytes from which on it is faster to read a message than to copy it through shared memory: one that is only to be
  // moved, one that the receiver adds up or sends on, and one of which the sender writes half.
  std::uint64_t least_moved = kNever;
  std::uint64_t least_combined = kNever;
  std::uint64_t least_helped = kNever;
  std::array<Times, kSizes.size()> times = {};  // mean of the ranks

  // Sets the three, by the times where there are any.
  void choose(bool core_each);
  // In a few words, for people.
  std::string describe() const;
};

struct SingleCopyWish {
  bool allowed = true;
  bool measured = true;
};

// Collective, within a call: tries it out. All ranks get the same. It is used if all ranks allow it.
Result<SingleCopy> try_single_copy(Group& group, const SingleCopyWish& wish, const std::function<bool()>& interrupted);

}  // namespace gc3::core
