// NCCL for tests, on devices of the fake driver. Ranks are threads of a process, processes, or communicators of one
// thread. It puts work on streams, obeys groups, fails calls that do not fit together, and has non-blocking
// communicators. Numbers and structures are those of nccl.h's public documentation.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective.h"
#include "comm.h"

#define GC3_FAKE_NCCL(symbol, ...) extern "C" __attribute__((visibility("default"))) int symbol(__VA_ARGS__)

using gc3::fake_nccl::Comm;
using gc3::fake_nccl::Config;
using gc3::fake_nccl::Kind;
using gc3::fake_nccl::Work;
using namespace gc3::fake_nccl;

namespace {

constexpr int kNoColor = -1;
constexpr int kShrinkAbort = 1;

struct Id {
  char bytes[128];
};

std::atomic<bool> ignoring{false};

int config_of(const void* given, bool* blocking) {
  if (given == nullptr) return kSuccess;
  Config config;
  std::memcpy(&config, given, sizeof config);
  if (config.magic != kMagic || config.size < sizeof config) return kInvalidArgument;
  if (config.blocking == 0 || config.blocking == 1) *blocking = config.blocking == 1;
  return kSuccess;
}

std::shared_ptr<Comm> create(int ranks, int rank, int device, bool blocking) {
  auto comm = std::make_shared<Comm>();
  comm->self = comm;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->device = device;
  comm->blocking = blocking;
  return comm;
}

std::shared_ptr<Comm> held(void* comm) { return static_cast<Comm*>(comm)->shared_from_this(); }
template <class... Pointers>
bool any_null(Pointers... pointers) {
  return ((pointers == nullptr) || ...);
}

int join(void** made, int ranks, const Id& id, int rank, const void* config) {
  bool blocking = true;
  int device = 0;
  if (made == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return kInvalidArgument;
  if (const int answer = config_of(config, &blocking); answer != kSuccess) return answer;
  if (const int answer = device_here(&device); answer != kSuccess) return answer;
  const auto comm = create(ranks, rank, device, blocking);
  comm->mailbox = std::make_unique<Mailbox>(id.bytes, rank);
  *made = comm.get();
  return step(comm, true, [comm] { return comm->meet(); });
}

// A communicator of some ranks of another one. The handle is given when it is complete.
int derive(const std::shared_ptr<Comm>& parent, const std::string& name, const std::vector<int>& ranks, bool blocking,
           void** made) {
  if (ranks.empty()) return kSuccess;
  const auto own = std::find(ranks.begin(), ranks.end(), parent->rank);
  const auto comm =
      create(static_cast<int>(ranks.size()), static_cast<int>(own - ranks.begin()), parent->device, blocking);
  comm->mailbox = std::make_unique<Mailbox>(parent->mailbox->folder() + name, comm->rank);
  const int answer = comm->meet();
  *made = comm.get();
  return answer;
}

int split(const std::shared_ptr<Comm>& parent, std::uint64_t number, int color, int key, bool blocking, void** made) {
  struct Wish {
    int color;
    int key;
  };
  const Wish own{color, key};
  std::vector<int> all;
  for (int r = 0; r < parent->ranks; ++r) all.push_back(r);
  std::string name = "s";
  name += std::to_string(number);
  parent->mailbox->post(name, all, &own, sizeof own);
  std::vector<std::pair<int, int>> chosen;
  for (const int r : all) {
    const auto given = parent->mailbox->take(name, r, parent->aborted, true);
    if (!given) return kRemoteError;
    Wish wish{};
    std::memcpy(&wish, given->data(), sizeof wish);
    if (color != kNoColor && wish.color == color) chosen.emplace_back(wish.key, r);
  }
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> ranks;
  for (const auto& one : chosen) ranks.push_back(one.second);
  return derive(parent, std::string(".") += name + '.' + std::to_string(color), ranks, blocking, made);
}

int collective(Kind kind, const void* send, void* recv, std::size_t count, int type, int op, int root, void* handle,
               void* stream) {
  if (type < 0 || type > 11 || op < 0 || handle == nullptr) return kInvalidArgument;
  if (ignoring.load(std::memory_order_relaxed)) return kSuccess;
  auto work = std::make_unique<Work>();
  work->comm = held(handle);
  if (root < 0 || root >= work->comm->ranks || (reduces(kind) && !reducible(type))) return kInvalidArgument;
  work->stream = stream;
  work->header = {kind, type, op, root, count};
  const bool receives = (kind != Kind::reduce && kind != Kind::gather) || root == work->comm->rank;
  if (count != 0 && input_bytes(work->header, work->comm->rank, work->comm->ranks) != 0 && send == nullptr) {
    return kInvalidArgument;
  }
  if (count != 0 && receives && recv == nullptr) return kInvalidArgument;
  work->send = send;
  work->recv = recv;
  if (op > 4) {
    const auto found = work->comm->ops.find(op);
    if (found == work->comm->ops.end() || found->second->type != type) return kInvalidArgument;
    work->scaled = found->second;
    work->header.op = kPreMulSum;
  }
  return submit(std::move(work));
}

int message(bool sends, void* data, std::size_t count, int type, int peer, void* handle, void* stream) {
  if (type < 0 || type > 11 || handle == nullptr || (count != 0 && data == nullptr)) return kInvalidArgument;
  auto work = std::make_unique<Work>();
  work->comm = held(handle);
  if (peer < 0 || peer >= work->comm->ranks) return kInvalidArgument;
  work->stream = stream;
  work->messages.push_back({sends, peer, data, count * bytes_of(type), 0});
  return submit(std::move(work));
}

}  // namespace

// From now on collectives do nothing: what remains of a call's time is that of its way here.
extern "C" __attribute__((visibility("default"))) void fake_nccl_ignore_calls() { ignoring = true; }

GC3_FAKE_NCCL(ncclGetVersion, int* version) {
  *version = 23007;
  return kSuccess;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetErrorString(int error) {
  return error == kSuccess ? "no error" : "an error of the fake NCCL";
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(void*) {
  return "said by the fake NCCL";
}

// The id is the name of a folder, which the last rank removes.
GC3_FAKE_NCCL(ncclGetUniqueId, Id* id) {
  std::string path = (std::filesystem::temp_directory_path() / "fake-nccl-XXXXXX").string();
  if (path.size() >= sizeof id->bytes || mkdtemp(path.data()) == nullptr) return kSystemError;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->bytes, path.data(), path.size());
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommInitRank, void** made, int ranks, Id id, int rank) {
  return join(made, ranks, id, rank, nullptr);
}
GC3_FAKE_NCCL(ncclCommInitRankConfig, void** made, int ranks, Id id, int rank, void* config) {
  return join(made, ranks, id, rank, config);
}
GC3_FAKE_NCCL(ncclCommInitRankScalable, void** made, int ranks, int rank, int ids, const Id* id, void* config) {
  return ids < 1 ? int{kInvalidArgument} : join(made, ranks, *id, rank, config);
}
GC3_FAKE_NCCL(ncclCommInitAll, void** made, int ranks, const int* devices) {
  Id id;
  if (const int answer = ncclGetUniqueId(&id); answer != kSuccess) return answer;
  group_start();
  int answer = kSuccess;
  for (int r = 0; r < ranks && answer == kSuccess; ++r) {
    answer = on_device(devices == nullptr ? r : devices[r], [&] { return join(made + r, ranks, id, r, nullptr); });
  }
  const int ended = group_end();
  return answer == kSuccess ? ended : answer;
}
GC3_FAKE_NCCL(ncclCommSplit, void* handle, int color, int key, void** made, void* config) {
  const auto comm = held(handle);
  bool blocking = comm->blocking;
  if (color < kNoColor) return kInvalidArgument;
  if (const int answer = config_of(config, &blocking); answer != kSuccess) return answer;
  if (const int answer = comm->ready(); answer != kSuccess && !comm->revoked) return answer;
  *made = nullptr;
  const std::uint64_t number = comm->children++;
  return step(comm, true, [=] { return split(comm, number, color, key, blocking, made); });
}
GC3_FAKE_NCCL(ncclCommShrink, void* handle, int* excluded, int count, void** made, void* config, int flags) {
  if (any_null(handle, excluded, made)) return kInvalidArgument;
  const auto comm = held(handle);
  bool blocking = comm->blocking;
  if (const int answer = config_of(config, &blocking); answer != kSuccess) return answer;
  const bool aborts = (flags & kShrinkAbort) != 0;
  if (const int answer = comm->ready(); answer != kSuccess && !aborts && !comm->revoked) return answer;
  std::vector<int> ranks;
  for (int r = 0; r < comm->ranks; ++r) {
    if (std::find(excluded, excluded + count, r) == excluded + count) ranks.push_back(r);
  }
  if (std::find(ranks.begin(), ranks.end(), comm->rank) == ranks.end()) return kInvalidArgument;
  *made = nullptr;
  if (aborts) comm->stopped = true;
  std::string name = ".k";
  name += std::to_string(comm->children++);
  return step(comm, true, [=] {
    while (aborts && comm->outstanding > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return derive(comm, name, ranks, blocking, made);
  });
}
GC3_FAKE_NCCL(ncclCommCount, void* handle, int* count) {
  const auto comm = held(handle);
  *count = comm->ranks;
  return comm->ready();
}
GC3_FAKE_NCCL(ncclCommUserRank, void* handle, int* rank) {
  const auto comm = held(handle);
  *rank = comm->rank;
  return comm->ready();
}
GC3_FAKE_NCCL(ncclCommCuDevice, void* handle, int* device) {
  const auto comm = held(handle);
  *device = comm->device;
  return comm->ready();
}
GC3_FAKE_NCCL(ncclCommGetAsyncError, void* comm, int* error) {
  if (any_null(comm, error)) return kInvalidArgument;
  *error = held(comm)->async_error();
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommFinalize, void* handle) {
  if (handle == nullptr) return kInvalidArgument;
  const auto comm = held(handle);
  if (const int answer = comm->ready(); answer != kSuccess) return answer;
  const int answer = step(comm, false, [comm] {
    while (comm->outstanding > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return int{kSuccess};
  });
  comm->finalized = true;
  return answer;
}
GC3_FAKE_NCCL(ncclCommDestroy, void* handle) {
  if (handle == nullptr) return kSuccess;
  const auto comm = held(handle);
  comm->wait_for_job();
  comm->self.reset();
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommAbort, void* handle) {
  if (handle == nullptr) return kSuccess;
  const auto comm = held(handle);
  comm->aborted = true;
  comm->stopped = true;
  comm->wait_for_job();
  comm->self.reset();
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommRevoke, void* handle, int) {
  if (handle == nullptr) return kInvalidArgument;
  const auto comm = held(handle);
  comm->revoked = true;
  comm->stopped = true;
  return kSuccess;
}

GC3_FAKE_NCCL(ncclRedOpCreatePreMulSum, int* op, void* scalar, int type, int residence, void* handle) {
  const auto comm = held(handle);
  if (!reducible(type)) return kInvalidArgument;
  auto made = std::make_shared<UserOp>();
  made->type = type;
  if (residence == 0) {
    made->device = scalar;
  } else {
    const auto* const value = static_cast<const std::byte*>(scalar);
    made->scalar.assign(value, value + bytes_of(type));
  }
  comm->last_op += 1 + comm->rank;  // as NCCL's, it need not be the same on all ranks
  *op = comm->last_op;
  comm->ops[*op] = made;
  return kSuccess;
}
GC3_FAKE_NCCL(ncclRedOpDestroy, int op, void* comm) {
  return comm != nullptr && held(comm)->ops.erase(op) == 1 ? kSuccess : kInvalidArgument;
}

GC3_FAKE_NCCL(ncclGroupStart) { return group_start(); }
GC3_FAKE_NCCL(ncclGroupEnd) { return group_end(); }

GC3_FAKE_NCCL(ncclAllReduce, const void* send, void* recv, std::size_t count, int type, int op, void* comm,
              void* stream) {
  return collective(Kind::all_reduce, send, recv, count, type, op, 0, comm, stream);
}
GC3_FAKE_NCCL(ncclBroadcast, const void* send, void* recv, std::size_t count, int type, int root, void* comm,
              void* stream) {
  return collective(Kind::broadcast, send, recv, count, type, 0, root, comm, stream);
}
// As NCCL's, it calls another function of the API by name.
GC3_FAKE_NCCL(ncclBcast, void* buffer, std::size_t count, int type, int root, void* comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
GC3_FAKE_NCCL(ncclReduce, const void* send, void* recv, std::size_t count, int type, int op, int root, void* comm,
              void* stream) {
  return collective(Kind::reduce, send, recv, count, type, op, root, comm, stream);
}
GC3_FAKE_NCCL(ncclAllGather, const void* send, void* recv, std::size_t count, int type, void* comm, void* stream) {
  return collective(Kind::all_gather, send, recv, count, type, 0, 0, comm, stream);
}
GC3_FAKE_NCCL(ncclReduceScatter, const void* send, void* recv, std::size_t count, int type, int op, void* comm,
              void* stream) {
  return collective(Kind::reduce_scatter, send, recv, count, type, op, 0, comm, stream);
}
GC3_FAKE_NCCL(ncclAlltoAll, const void* send, void* recv, std::size_t count, int type, void* comm, void* stream) {
  return collective(Kind::all_to_all, send, recv, count, type, 0, 0, comm, stream);
}
GC3_FAKE_NCCL(ncclGather, const void* send, void* recv, std::size_t count, int type, int root, void* comm,
              void* stream) {
  return collective(Kind::gather, send, recv, count, type, 0, root, comm, stream);
}
GC3_FAKE_NCCL(ncclScatter, const void* send, void* recv, std::size_t count, int type, int root, void* comm,
              void* stream) {
  return collective(Kind::scatter, send, recv, count, type, 0, root, comm, stream);
}
GC3_FAKE_NCCL(ncclSend, const void* send, std::size_t count, int type, int peer, void* comm, void* stream) {
  return message(true, const_cast<void*>(send), count, type, peer, comm, stream);
}
GC3_FAKE_NCCL(ncclRecv, void* recv, std::size_t count, int type, int peer, void* comm, void* stream) {
  return message(false, recv, count, type, peer, comm, stream);
}
