// Memory that the processes of a job share: one anonymous file, of which each process maps parts (window.h).
//
// It has no name in the system, so nothing can be left behind: the memory is released with the last process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gc3/base/result.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"

namespace gc3::core {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// A part of the file, by its offset in the file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// A part of the file, by its address in this process. It stays mapped as long as the window that it is in.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::uint8_t* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  std::uint8_t* data() const { return base_; }
  std::size_t size() const { return bytes_; }
  // Enters [from, from + bytes) into this process's page table, so that no first touch happens during a call.
  void populate(std::size_t from, std::size_t bytes) const;

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

class SharedMemory {
 public:
  SharedMemory() = default;
  // The first process creates the file and sends its descriptor to the others. The file has its final size of addresses
  // and is sealed, so that no process can truncate it, which would end the others by a signal.
  static Result<SharedMemory> create();
  // A file from another process; refused unless it is what create() makes.
  static Result<SharedMemory> adopt(FileDescriptor file);

  // Fails if so much memory is not available. An anonymous file has no limit: the system would give it all memory, and
  // then kill processes to get some back.
  static Status afford(std::uint64_t bytes, const std::string& purpose);
  // Ensures that memory is allocated for a part of the file.
  Status reserve(Extent extent, const std::string& purpose) const;
  // Whether it is a part of the file, of whole pages at its beginning.
  bool contains(Extent extent) const;

  int descriptor() const { return file_.get(); }
  // Of addresses, which cost nothing: more than any machine has memory, unless the process that made it may make no
  // larger file. Memory exists only for allocated parts.
  std::uint64_t size() const { return size_; }
  static constexpr std::uint64_t kMostAddresses = std::uint64_t{1} << 46U;

 private:
  SharedMemory(FileDescriptor file, std::uint64_t size) : file_(std::move(file)), size_(size) {}

  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

// A Diagnostic about the system call `what`, from errno.
Diagnostic refused(const std::string& what);

}  // namespace gc3::core
