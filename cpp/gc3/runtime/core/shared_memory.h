// Memory that the processes of a job share: one nameless file, of which each user maps parts.
//
// Nothing is named anywhere in the system, so nothing can be left behind: the memory goes with the last process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gc3/base/result.h"
#include "gc3/runtime/core/file_descriptor.h"

namespace gc3::core {

// A part of the file, as it lies in the file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// A part of the file, as it lies in this process.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::uint8_t* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::uint8_t* data() const { return base_; }
  std::size_t size() const { return bytes_; }
  // Enters [from, from + bytes) into this process's page table, so that no first touch falls into a call.
  void populate(std::size_t from, std::size_t bytes) const;

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

class SharedMemory {
 public:
  SharedMemory() = default;
  // The first process makes the file and sends its descriptor to the others.
  static Result<SharedMemory> create();
  static SharedMemory adopt(FileDescriptor file) { return SharedMemory(std::move(file)); }

  // Zeroed memory at the end of the file; where the file ends, the processes know by `end`, a counter in the file.
  Result<Extent> allocate(std::uint64_t& end, std::uint64_t bytes, const std::string& purpose) const;
  // Makes sure that there is memory behind a part of the file.
  Status reserve(Extent extent, const std::string& purpose) const;
  Result<Mapping> map(Extent extent) const;
  // Gives the memory back to the system; nobody may use it any more.
  void discard(Extent extent) const;

  int descriptor() const { return file_.get(); }

 private:
  explicit SharedMemory(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
};

// A Diagnostic about the system call `what`, from errno.
Diagnostic refused(const std::string& what);

}  // namespace gc3::core
