// Memory for the caller's data that all processes of the job can read: gc3.empty.
//
// Each process maps the whole file of the job as one window, so the same offset is the same memory in all processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/shared_memory.h"

namespace gc3::core {

class Heap {
 public:
  void open(const SharedMemory& memory);

  // Memory of this process, zeroed and present. Any thread may call it. `memory` and `end`: see SharedMemory::allocate.
  Result<std::uint8_t*> allocate(const SharedMemory& memory, std::uint64_t& end, std::uint64_t bytes);
  // Needs no descriptor, because memory may outlive the job.
  void free(std::uint8_t* at, std::uint64_t bytes);

  // The whole file as this process maps it; empty if the system has refused so much address space.
  std::uint8_t* window() const { return window_.data(); }
  std::uint64_t window_bytes() const { return window_.size(); }

 private:
  Mapping window_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> free_;  // offsets of freed memory by its size, to be used again
};

}  // namespace gc3::core
