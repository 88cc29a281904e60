// NCCL for tests: ranks are threads of a process, or communicators of one thread, on devices of the fake driver. It
// puts work on streams, obeys groups, and fails calls that do not fit together.
#include <dlfcn.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#define GC3_FAKE_NCCL(symbol, ...) extern "C" __attribute__((visibility("default"))) int symbol(__VA_ARGS__)

namespace {

enum Answer : int { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };

template <class Function>
Function driver(const char* symbol) {
  static void* const library = dlopen(std::getenv("GC3_CUDA_DRIVER"), RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

std::size_t bytes_of(int type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}

template <class T>
void fold(void* to, const void* from, std::size_t count, int op) {
  auto* const a = static_cast<T*>(to);
  const auto* const b = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    if (op == 0 || op == 4) a[i] = static_cast<T>(a[i] + b[i]);
    if (op == 1) a[i] = static_cast<T>(a[i] * b[i]);
    if (op == 2) a[i] = b[i] > a[i] ? b[i] : a[i];
    if (op == 3) a[i] = b[i] < a[i] ? b[i] : a[i];
  }
}
void fold(int type, void* to, const void* from, std::size_t count, int op) {
  switch (type) {
    case 0:
      return fold<std::int8_t>(to, from, count, op);
    case 1:
      return fold<std::uint8_t>(to, from, count, op);
    case 2:
      return fold<std::int32_t>(to, from, count, op);
    case 3:
      return fold<std::uint32_t>(to, from, count, op);
    case 4:
      return fold<std::int64_t>(to, from, count, op);
    case 5:
      return fold<std::uint64_t>(to, from, count, op);
    case 7:
      return fold<float>(to, from, count, op);
    case 8:
      return fold<double>(to, from, count, op);
    default:
      std::abort();  // the tests reduce no other types through the fake
  }
}

enum class Kind { all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, gather, scatter };

// A rank's part of a collective.
struct Part {
  Kind kind;
  const std::byte* send;
  std::byte* recv;
  std::size_t count;
  int type;
  int op;
  int root;
};

// A collective of which parts have come.
struct Meeting {
  std::vector<const Part*> parts;
  int present = 0;
  int computed = 0;
  int left = 0;
};

// What the ranks of a communicator share.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0;
  bool aborted = false;
  std::map<std::uint64_t, Meeting> meetings;  // by the number of the call
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;
};

struct Comm {
  std::shared_ptr<World> world;
  int rank = 0;
  int device = 0;
  std::uint64_t calls = 0;
  std::atomic<int> error{kSuccess};
};

std::vector<std::byte> compute(const std::vector<const Part*>& parts, int me) {
  const Part& own = *parts[static_cast<std::size_t>(me)];
  const std::size_t block = own.count * bytes_of(own.type);
  const auto ranks = static_cast<int>(parts.size());
  std::vector<std::byte> result;
  const auto take = [&](int rank, int index) {
    const std::byte* const from = parts[static_cast<std::size_t>(rank)]->send + static_cast<std::size_t>(index) * block;
    result.insert(result.end(), from, from + block);
  };
  const auto sum = [&](int index) {
    take(0, index);
    for (int r = 1; r < ranks; ++r) {
      const std::byte* const from = parts[static_cast<std::size_t>(r)]->send + static_cast<std::size_t>(index) * block;
      fold(own.type, result.data(), from, own.count, own.op);
    }
  };
  switch (own.kind) {
    case Kind::all_reduce:
      sum(0);
      break;
    case Kind::reduce:
      if (me == own.root) sum(0);
      break;
    case Kind::reduce_scatter:
      sum(me);
      break;
    case Kind::broadcast:
      take(own.root, 0);
      break;
    case Kind::all_gather:
      for (int r = 0; r < ranks; ++r) take(r, 0);
      break;
    case Kind::gather:
      for (int r = 0; r < ranks && me == own.root; ++r) take(r, 0);
      break;
    case Kind::all_to_all:
      for (int r = 0; r < ranks; ++r) take(r, me);
      break;
    case Kind::scatter:
      take(own.root, me);
      break;
  }
  return result;
}

bool fit(const Part& a, const Part& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root;
}

// Runs on a stream. A rank writes when all have read, since its output may be its own input.
void meet(Comm& comm, std::uint64_t number, const Part& part) {
  World& world = *comm.world;
  std::unique_lock lock(world.mutex);
  Meeting& meeting = world.meetings[number];
  meeting.parts.resize(static_cast<std::size_t>(world.ranks));
  meeting.parts[static_cast<std::size_t>(comm.rank)] = &part;
  ++meeting.present;
  world.changed.notify_all();
  world.changed.wait(lock, [&] { return meeting.present == world.ranks || world.aborted; });
  if (world.aborted) return;
  bool good = true;
  for (const Part* const other : meeting.parts) good = good && fit(part, *other);
  lock.unlock();
  std::vector<std::byte> result;
  if (good) result = compute(meeting.parts, comm.rank);
  if (!good) comm.error = kRemoteError;
  lock.lock();
  ++meeting.computed;
  world.changed.notify_all();
  world.changed.wait(lock, [&] { return meeting.computed == world.ranks || world.aborted; });
  if (!result.empty()) std::memcpy(part.recv, result.data(), result.size());
  if (++meeting.left == world.ranks) world.meetings.erase(number);
}

struct Message {
  bool sends;
  int peer;
  void* data;
  std::size_t bytes;
};

void send_and_receive(Comm& comm, const std::vector<Message>& messages) {
  World& world = *comm.world;
  std::unique_lock lock(world.mutex);
  for (const Message& m : messages) {
    if (!m.sends) continue;
    const auto* const from = static_cast<const std::byte*>(m.data);
    world.mail[{comm.rank, m.peer}].emplace_back(from, from + m.bytes);
  }
  world.changed.notify_all();
  for (const Message& m : messages) {
    if (m.sends) continue;
    auto& box = world.mail[{m.peer, comm.rank}];
    world.changed.wait(lock, [&] { return !box.empty() || world.aborted; });
    if (world.aborted) return;
    if (box.front().size() != m.bytes) comm.error = kRemoteError;
    if (box.front().size() == m.bytes) std::memcpy(m.data, box.front().data(), m.bytes);
    box.pop_front();
  }
}

// Work of a thread's group, in its order. Sends and receives of a communicator are one piece of work.
struct Work {
  Comm* comm;
  void* stream;
  std::uint64_t number = 0;
  Part part{};
  std::vector<Message> messages;
};
thread_local int depth = 0;
thread_local std::vector<std::unique_ptr<Work>> queued;

void execute(void* data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(data));
  if (work->messages.empty()) {
    meet(*work->comm, work->number, work->part);
  } else {
    send_and_receive(*work->comm, work->messages);
  }
}

int put(std::unique_ptr<Work> work) {
  static const auto retain = driver<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  static const auto push = driver<int (*)(void*)>("cuCtxPushCurrent_v2");
  static const auto pop = driver<int (*)(void**)>("cuCtxPopCurrent_v2");
  static const auto launch = driver<int (*)(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  void* context = nullptr;
  retain(&context, work->comm->device);
  push(context);
  void* const stream = work->stream;
  const int answer = launch(stream, execute, work.release());
  pop(&context);
  return answer == 0 ? kSuccess : 1;
}

std::atomic<bool> ignoring{false};

int submit(std::unique_ptr<Work> work) {
  if (work->comm == nullptr) return kInvalidArgument;
  if (work->messages.empty()) work->number = work->comm->calls++;
  if (depth == 0) return put(std::move(work));
  for (const auto& other : queued) {
    if (work->messages.empty() || other->messages.empty() || other->comm != work->comm) continue;
    other->messages.push_back(work->messages.front());
    return kSuccess;
  }
  queued.push_back(std::move(work));
  return kSuccess;
}

int collective(Kind kind, const void* send, void* recv, std::size_t count, int type, int op, int root, void* comm,
               void* stream) {
  if (type < 0 || type > 11) return kInvalidArgument;
  if (ignoring.load(std::memory_order_relaxed)) return kSuccess;
  auto work = std::make_unique<Work>();
  work->comm = static_cast<Comm*>(comm);
  work->stream = stream;
  work->part = {kind, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv), count, type, op, root};
  return submit(std::move(work));
}

int message(bool sends, void* data, std::size_t count, int type, int peer, void* comm, void* stream) {
  auto work = std::make_unique<Work>();
  work->comm = static_cast<Comm*>(comm);
  work->stream = stream;
  work->messages.push_back({sends, peer, data, count * bytes_of(type)});
  return submit(std::move(work));
}

std::mutex worlds_mutex;

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

struct Id {
  char bytes[128];
};
GC3_FAKE_NCCL(ncclGetUniqueId, Id* id) {
  static std::atomic<int> last{0};
  std::memset(id, 0, sizeof *id);
  const std::string text = "world " + std::to_string(++last);
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommInitRank, void** made, int ranks, Id id, int rank) {
  static std::map<std::string, std::weak_ptr<World>> worlds;
  static const auto device = driver<int (*)(int*)>("cuCtxGetDevice");
  auto comm = std::make_unique<Comm>();
  const std::lock_guard lock(worlds_mutex);
  std::weak_ptr<World>& known = worlds[id.bytes];
  comm->world = known.lock();
  if (comm->world == nullptr) known = comm->world = std::make_shared<World>();
  comm->world->ranks = ranks;
  comm->rank = rank;
  if (device(&comm->device) != 0) return 1;
  *made = comm.release();
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommCount, void* comm, int* count) {
  *count = static_cast<Comm*>(comm)->world->ranks;
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommUserRank, void* comm, int* rank) {
  *rank = static_cast<Comm*>(comm)->rank;
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommCuDevice, void* comm, int* device) {
  *device = static_cast<Comm*>(comm)->device;
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommGetAsyncError, void* comm, int* error) {
  *error = static_cast<Comm*>(comm)->error;
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommDestroy, void* comm) {
  delete static_cast<Comm*>(comm);
  return kSuccess;
}
GC3_FAKE_NCCL(ncclCommFinalize, void*) { return kSuccess; }
GC3_FAKE_NCCL(ncclCommAbort, void* comm) {
  World& world = *static_cast<Comm*>(comm)->world;
  const std::lock_guard lock(world.mutex);
  world.aborted = true;
  world.changed.notify_all();
  return kSuccess;  // work that is still on streams uses the communicator
}

GC3_FAKE_NCCL(ncclGroupStart) {
  ++depth;
  return kSuccess;
}
GC3_FAKE_NCCL(ncclGroupEnd) {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  int answer = kSuccess;
  for (auto& work : std::exchange(queued, {})) {
    if (const int given = put(std::move(work)); given != kSuccess) answer = given;
  }
  return answer;
}

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
