#include "gc3/runtime/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <limits>

namespace gc3::cpu {
namespace {

// Memory that can be handed out without pushing anything to swap; what the kernel estimates, else all there is.
std::size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string name; info >> name;) {
    std::size_t kib = 0;
    if (name == "MemAvailable:" && info >> kib) return kib * 1024;
    info.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

Diagnostic out_of_memory(const std::string& bytes, const std::string& purpose) {
  return Diagnostic(ErrorCode::OutOfMemory, bytes + " bytes for " + purpose);
}

}  // namespace

Result<Arena> Arena::create(std::size_t bytes, const std::string& purpose) {
  Arena arena;
  if (bytes == 0) return arena;
  if (bytes > available_memory()) return out_of_memory(std::to_string(bytes), purpose);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return out_of_memory(std::to_string(bytes), purpose);
  arena.base_ = static_cast<std::uint8_t*>(base);
  arena.bytes_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace gc3::cpu
