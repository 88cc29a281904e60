// The lower bound of this machine's memory on the time of a collective: the same reads and writes on the ranks'
// buffers, by threads that share them and never wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gc3/base/result.h"

namespace gc3::cpu {

// `bytes` of float32 are read from each of `sources` buffers, summed, and written to each of `targets` buffers.
struct Traffic {
  std::uint32_t sources = 1;
  std::uint32_t targets = 1;
  std::size_t bytes = 0;
};

// Buffers for such traffic, every page of them present, and the threads to cause it.
class MemoryBound {
 public:
  // `threads`: at most one for each core that this process may use.
  static Result<MemoryBound> create(const Traffic& traffic, std::uint32_t threads);
  ~MemoryBound();
  MemoryBound(MemoryBound&& other) noexcept;
  MemoryBound& operator=(MemoryBound&&) = delete;

  // Seconds of the fastest of `repetitions`, with streaming or with ordinary stores.
  Result<double> seconds(std::uint32_t repetitions) const;

 private:
  MemoryBound(const Traffic& traffic, std::uint32_t threads, float* memory);
  void share(std::uint32_t thread, bool streaming) const;

  Traffic traffic_;
  std::uint32_t threads_;
  float* memory_;  // the sources, then the targets
};

}  // namespace gc3::cpu
