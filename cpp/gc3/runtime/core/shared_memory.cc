#include "gc3/runtime/core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "gc3/runtime/core/available_memory.h"

namespace gc3::core {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLarge = std::uint64_t{16} << 20U;  // worth a look at what is left
#if !defined(MADV_POPULATE_WRITE)
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif

// A nameless file has no limit: the system would give it all memory, and then kill processes to get some back.
Status afford(std::uint64_t bytes, const std::string& purpose) {
  if (bytes < kLarge) return {};
  const std::uint64_t left = available_memory();
  if (bytes <= left) return {};
  return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes of shared memory for " + purpose + ": " +
                                                std::to_string(left) + " bytes are left");
}

}  // namespace

Diagnostic refused(const std::string& what) {
  return Diagnostic(ErrorCode::SystemRefused, what + ": " + std::strerror(errno));
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void Mapping::populate(std::size_t from, std::size_t bytes) const {
  const std::size_t first = from / kPage * kPage;
  // An older system refuses; then pages come at their first touch.
  madvise(base_ + first, from + bytes - first, MADV_POPULATE_WRITE);
}

Result<SharedMemory> SharedMemory::create() {
  FileDescriptor file(memfd_create("gc3", MFD_CLOEXEC));
  if (!file.valid()) return refused("memfd_create");
  return SharedMemory(std::move(file));
}

Result<Extent> SharedMemory::allocate(std::uint64_t& end, std::uint64_t bytes, const std::string& purpose) const {
  GC3_CHECK(afford(bytes, purpose));
  Extent extent;
  extent.bytes = (bytes + kPage - 1) / kPage * kPage;
  extent.offset = std::atomic_ref(end).fetch_add(extent.bytes, std::memory_order_relaxed);
  GC3_CHECK(reserve(extent, purpose));
  return extent;
}

Status SharedMemory::reserve(Extent extent, const std::string& purpose) const {
  GC3_CHECK(afford(extent.bytes, purpose));
  // Now: later a lack of memory could only be told by a signal.
  int error = EINTR;
  while (error == EINTR) {
    error = posix_fallocate(file_.get(), static_cast<off_t>(extent.offset), static_cast<off_t>(extent.bytes));
  }
  if (error != 0) {
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(extent.bytes) + " bytes of shared memory for " + purpose +
                                                  ": " + std::strerror(error));
  }
  return {};
}

Result<Mapping> SharedMemory::map(Extent extent) const {
  void* base =
      mmap(nullptr, extent.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), static_cast<off_t>(extent.offset));
  if (base == MAP_FAILED) return refused("mmap of shared memory");
  return Mapping(static_cast<std::uint8_t*>(base), extent.bytes);
}

void SharedMemory::discard(Extent extent) const {
  // What the system keeps in spite of it goes with the job.
  static_cast<void>(fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              static_cast<off_t>(extent.offset), static_cast<off_t>(extent.bytes)));
}

}  // namespace gc3::core
