#include "gc3/runtime/core/sharing/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/sharing/available_memory.h"

namespace gc3::core {
namespace {

constexpr std::uint64_t kLarge = std::uint64_t{16} << 20U;  // from this size on, available memory is checked
#if !defined(MADV_POPULATE_WRITE)
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif

#if !defined(MFD_NOEXEC_SEAL)
constexpr unsigned kNotExecutable = 8;  // Linux 6.3
#else
constexpr unsigned kNotExecutable = MFD_NOEXEC_SEAL;
#endif
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// At most the maximum size of a file, beyond which the system sends a signal.
std::uint64_t addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SharedMemory::kMostAddresses;
  return std::min<std::uint64_t>(SharedMemory::kMostAddresses, limit.rlim_cur) / kPage * kPage;
}

Diagnostic too_large(const std::string& what, std::uint64_t most) {
  return Diagnostic(ErrorCode::SystemRefused, what + ": it is a file, of which this process may have " +
                                                  std::to_string(most) + " bytes (`ulimit -f` raises that)");
}

}  // namespace

Diagnostic refused(const std::string& what) {
  return Diagnostic(ErrorCode::SystemRefused, what + ": " + std::strerror(errno));
}

void Mapping::populate(std::size_t from, std::size_t bytes) const {
  const std::size_t first = from / kPage * kPage;
  // An older system does not support it; then pages are allocated at their first touch.
  madvise(base_ + first, from + bytes - first, MADV_POPULATE_WRITE);
}

Result<SharedMemory> SharedMemory::create() {
  // Some systems refuse executable files, and older ones do not know the flag.
  int descriptor = memfd_create("gc3", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNotExecutable);
  if (descriptor < 0) descriptor = memfd_create("gc3", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  FileDescriptor file(descriptor);
  if (!file.valid()) return refused("memfd_create");
  const std::uint64_t size = addresses();
  if (size == 0) return too_large("shared memory", size);
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) return refused("ftruncate of shared memory");
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return refused("F_ADD_SEALS");
  return SharedMemory(std::move(file), size);
}

Result<SharedMemory> SharedMemory::adopt(FileDescriptor file) {
  const auto wrong = [](const std::string& what) {
    return Diagnostic(ErrorCode::NotMet, "rank 0 has handed over " + what + " instead of shared memory of gc3");
  };
  struct stat about{};
  struct statfs system{};
  if (fstat(file.get(), &about) != 0 || fstatfs(file.get(), &system) != 0) return refused("fstat of shared memory");
  if (!S_ISREG(about.st_mode) || system.f_type != TMPFS_MAGIC) return wrong("another kind of file");
  if (about.st_uid != geteuid()) return wrong("a file of user " + std::to_string(about.st_uid));
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || (seals & F_SEAL_WRITE) != 0) return wrong("a file that is not sealed");
  if (about.st_size < static_cast<off_t>(kPage)) return wrong("a file of " + std::to_string(about.st_size) + " bytes");
  if ((fcntl(file.get(), F_GETFL) & O_ACCMODE) != O_RDWR) return wrong("a file that cannot be written");
  return SharedMemory(std::move(file), static_cast<std::uint64_t>(about.st_size));
}

bool SharedMemory::contains(Extent extent) const {
  return extent.offset % kPage == 0 && extent.bytes != 0 && extent.bytes <= size_ &&
         extent.offset <= size_ - extent.bytes;
}

Status SharedMemory::afford(std::uint64_t bytes, const std::string& purpose) {
  if (bytes < kLarge) return {};
  const std::uint64_t left = available_memory();
  if (bytes <= left) return {};
  return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes of shared memory for " + purpose + ": " +
                                                std::to_string(left) + " bytes are left");
}

Status SharedMemory::reserve(Extent extent, const std::string& purpose) const {
  GC3_CHECK(afford(extent.bytes, purpose));
  if (!contains(extent))
    return too_large(std::to_string(extent.bytes) + " bytes of shared memory for " + purpose, size_);
  // Now, because later a lack of memory could only be reported by a signal.
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

}  // namespace gc3::core
