// The functions of libnccl.so.2 that GC3 uses: non-blocking communicators, and windows over the memory of fake devices.
// Ranks in several processes exchange files in a folder, whose name follows from the id.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gc3/runtime/cuda/device/test_platform.h"
#include "machine.h"

namespace gc3::fake_cuda {
namespace {

constexpr int kNcclSuccess = 0;
constexpr int kNcclInvalidArgument = 4;
constexpr int kNcclInvalidUsage = 5;
constexpr int kNcclInProgress = 7;

struct Id {
  char bytes[128];
};
struct Config {  // as in nccl.h of version 2.14
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
};

struct Window {
  std::vector<std::uint64_t> addresses;  // by rank
  std::size_t bytes = 0;
  void* all = nullptr;  // stands for the address of all ranks
};

struct Comm {
  std::filesystem::path folder;
  int rank = 0;
  int ranks = 0;
  int meetings = 0;
  // The running task. A window exists when all ranks have given the locations of their parts, and have then reported
  // that they have mapped the other parts.
  enum class Task { none, join, exchange, leave_together } task = Task::none;
  int outcome = kNcclSuccess;  // of the exchange
  std::uint64_t base = 0;
  Window** result = nullptr;

  std::filesystem::path place(int who) const { return folder / (std::to_string(meetings) + "." + std::to_string(who)); }
  void say(const std::string& text) const {
    const std::filesystem::path written = place(rank);
    std::ofstream(written.string() + ".part") << text;
    std::filesystem::rename(written.string() + ".part", written);
  }
  // The data of all ranks, if all have given it.
  std::optional<std::vector<std::string>> heard() const {
    std::vector<std::string> all;
    for (int r = 0; r < ranks; ++r) {
      std::ifstream file(place(r));
      if (!file) return std::nullopt;
      all.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return all;
  }
};

std::map<std::uint64_t, std::size_t> allocations;  // by ncclMemAlloc; only these can become windows

// Maps all parts of the window.
int map_parts(Comm& comm, const std::vector<std::string>& said) {
  auto window = std::make_unique<Window>();
  for (int r = 0; r < comm.ranks; ++r) {
    std::uint64_t process = 0;
    std::uint64_t file = 0;
    std::uint64_t bytes = 0;
    int device = 0;
    if (std::sscanf(said[static_cast<std::size_t>(r)].c_str(), "%lu %lu %lu %d", &process, &file, &bytes, &device) !=
            4 ||
        bytes != allocations[comm.base]) {
      return kNcclInvalidUsage;  // a symmetric window has the same size on all ranks
    }
    std::uint64_t at = comm.base;
    if (r != comm.rank && Memory::get().open(process, file, {bytes, device, -1}, &at) != kSuccess) {
      return kNcclInvalidUsage;
    }
    window->addresses.push_back(Settings::get().lsa ? at : 0);
  }
  window->bytes = allocations[comm.base];
  *comm.result = window.release();
  return kNcclSuccess;
}

}  // namespace
}  // namespace gc3::fake_cuda

using namespace gc3::fake_cuda;

#define GC3_FAKE_NCCL(symbol, ...) extern "C" __attribute__((visibility("default"))) int symbol(__VA_ARGS__)

GC3_FAKE_NCCL(ncclGetVersion, int* version) {
  *version = Settings::get().nccl;
  return kNcclSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int error) {
  return error == kNcclInvalidUsage ? "invalid usage" : "error";
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(void*) {
  return "said by the fake NCCL";
}
GC3_FAKE_NCCL(ncclGetUniqueId, Id* id) {
  std::memset(id, 0, sizeof *id);
  std::strncpy(id->bytes, (std::filesystem::temp_directory_path() / "fake-nccl-XXXXXX").c_str(), sizeof id->bytes - 1);
  return mkdtemp(id->bytes) == nullptr ? kNcclInvalidUsage : kNcclSuccess;
}
GC3_FAKE_NCCL(ncclCommInitRankConfig, void** made, int ranks, Id id, int rank, Config* config) {
  if (config->magic != 0xcafebeefU || config->size != sizeof(Config) || config->version != 21400 ||
      config->blocking != 0) {
    return kNcclInvalidArgument;
  }
  if (injected("ncclCommInitRankConfig") != kSuccess) {
    std::error_code gone;
    std::filesystem::remove_all(id.bytes, gone);
    return kNcclInvalidUsage;
  }
  auto comm = std::make_unique<Comm>();
  comm->folder = id.bytes;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->task = Comm::Task::join;
  comm->say("here");
  *made = comm.release();
  return kNcclInProgress;
}
GC3_FAKE_NCCL(ncclCommGetAsyncError, void* handle, int* state) {
  Comm& comm = *static_cast<Comm*>(handle);
  *state = kNcclSuccess;
  if (comm.task == Comm::Task::none) return kNcclSuccess;
  *state = kNcclInProgress;
  const auto said = comm.heard();
  if (!said) return kNcclSuccess;
  ++comm.meetings;
  if (comm.task == Comm::Task::exchange) {
    comm.outcome = map_parts(comm, *said);
    comm.task = Comm::Task::leave_together;
    comm.say("mapped");
    return kNcclSuccess;
  }
  *state = comm.task == Comm::Task::join ? kNcclSuccess : comm.outcome;
  comm.task = Comm::Task::none;
  return kNcclSuccess;
}
GC3_FAKE_NCCL(ncclCommAbort, void* handle) {
  const std::unique_ptr<Comm> comm(static_cast<Comm*>(handle));
  std::error_code gone;  // another rank may remove it first
  if (comm->rank == 0) std::filesystem::remove_all(comm->folder, gone);
  return kNcclSuccess;
}
GC3_FAKE_NCCL(ncclMemAlloc, void** base, std::size_t bytes) {
  std::uint64_t at = 0;
  if (Memory::get().allocate(current_device(), bytes, &at) != kSuccess) return kNcclInvalidUsage;
  std::memset(reinterpret_cast<void*>(at), 0xee, bytes);  // not zeroed
  allocations[at] = bytes;
  *base = reinterpret_cast<void*>(at);
  return kNcclSuccess;
}
GC3_FAKE_NCCL(ncclMemFree, void* base) {
  allocations.erase(reinterpret_cast<std::uint64_t>(base));
  const int status = Memory::get().release(reinterpret_cast<std::uint64_t>(base), true);
  return status == kSuccess ? kNcclSuccess : kNcclInvalidArgument;
}
GC3_FAKE_NCCL(ncclCommWindowRegister, void* handle, void* base, std::size_t bytes, void** window, int flags) {
  Comm& comm = *static_cast<Comm*>(handle);
  const auto at = reinterpret_cast<std::uint64_t>(base);
  const Allocation* const found = Memory::get().find(at);
  if (found == nullptr || flags != 1 || !allocations.contains(at) || allocations[at] != bytes) {
    return kNcclInvalidArgument;
  }
  *window = nullptr;
  if (!Settings::get().windows) return kNcclSuccess;
  comm.base = at;
  comm.result = reinterpret_cast<Window**>(window);
  comm.task = Comm::Task::exchange;
  comm.say(std::to_string(getpid()) + " " + std::to_string(found->file) + " " + std::to_string(bytes) + " " +
           std::to_string(found->device));
  return kNcclInProgress;
}
GC3_FAKE_NCCL(ncclCommWindowDeregister, void* handle, void* registered) {
  const std::unique_ptr<Window> window(static_cast<Window*>(registered));
  const Comm& comm = *static_cast<Comm*>(handle);
  if (window->all != nullptr) munmap(window->all, window->bytes);
  for (int r = 0; r < comm.ranks; ++r) {
    if (r != comm.rank) Memory::get().close(window->addresses[static_cast<std::size_t>(r)]);
  }
  return kNcclSuccess;
}
GC3_FAKE_NCCL(ncclGetPeerDevicePointer, void* registered, std::size_t offset, int peer, void** at) {
  const std::uint64_t address = static_cast<Window*>(registered)->addresses.at(static_cast<std::size_t>(peer));
  *at = address == 0 ? nullptr : reinterpret_cast<void*>(address + offset);
  return kNcclSuccess;
}
GC3_FAKE_NCCL(ncclGetLsaMultimemDevicePointer, void* registered, std::size_t offset, void** at) {
  *at = nullptr;
  const int multicast = Settings::get().multicast;
  if (multicast == 0) return kNcclSuccess;
  auto& window = *static_cast<Window*>(registered);
  if (window.all == nullptr) {
    window.all = mmap(nullptr, window.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    gc3::cuda::HostSwitch::get().add(reinterpret_cast<std::uint64_t>(window.all), window.bytes,
                                     multicast == 1 ? window.addresses : std::vector<std::uint64_t>());
  }
  *at = static_cast<std::uint8_t*>(window.all) + offset;
  return kNcclSuccess;
}
