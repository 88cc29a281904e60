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
  // The first process makes the file and sends its descriptor to the others. The file has all the addresses that it
  // will ever have, and is sealed: nobody can cut a part off that others have mapped, which would end them by a signal.
  static Result<SharedMemory> create();
  // A file from another process: refused if it is anything else than what create() makes.
  static Result<SharedMemory> adopt(FileDescriptor file);

  // Zeroed memory behind what is in use; where that ends, the processes know by `end`, a counter in the file.
  Result<Extent> allocate(std::uint64_t& end, std::uint64_t bytes, const std::string& purpose) const;
  // Makes sure that there is memory behind a part of the file.
  Status reserve(Extent extent, const std::string& purpose) const;
  // Refuses what is no part of the file.
  Result<Mapping> map(Extent extent) const;
  // Gives the memory back to the system; nobody may use it any more.
  void discard(Extent extent) const;

  int descriptor() const { return file_.get(); }
  // Of addresses; there is memory only behind what was allocated.
  std::uint64_t size() const { return size_; }

 private:
  SharedMemory(FileDescriptor file, std::uint64_t size) : file_(std::move(file)), size_(size) {}
  bool contains(Extent extent) const;

  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

// A Diagnostic about the system call `what`, from errno.
Diagnostic refused(const std::string& what);

}  // namespace gc3::core
