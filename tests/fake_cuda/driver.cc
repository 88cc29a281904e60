// A library with the functions of libcuda.so.1 that GC3 uses, for machines without a GPU. It executes the host build of
// the kernels. Like the real library it checks contexts, captures, and the resources of the device.
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"
#include "machine.h"

namespace gc3::fake_cuda {
namespace {

struct Context {
  int device = 0;
  std::set<int> peers;
};
struct Function {
  const Module* module;
  enum class Does : std::uint8_t { run, divide, scale, guard } does;
};

// Numbered once: several threads may retain a context at the same time.
std::array<Context, 16> contexts = [] {
  std::array<Context, 16> made;
  for (std::size_t i = 0; i < made.size(); ++i) made[i].device = static_cast<int>(i);
  return made;
}();
std::mutex peers_mutex;
thread_local std::vector<Context*> current;
thread_local int capture_mode = 0;
std::atomic<int> captures{0};

bool no_context() { return current.empty(); }

// Null is the default stream of the current device.
Stream& stream_of(void* handle) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<Stream>> defaults;
  if (handle != nullptr) return *static_cast<Stream*>(handle);
  const std::lock_guard lock(mutex);
  std::unique_ptr<Stream>& stream = defaults[current.back()->device];
  if (stream == nullptr) stream = std::make_unique<Stream>(current.back()->device);
  return *stream;
}

// Allocating, freeing and loading may wait for the device. A capture forbids this unless the thread has relaxed it.
bool forbidden_in_capture() { return captures.load() != 0 && capture_mode != 2; }

struct IpcHandle {
  std::uint64_t words[8];
};

}  // namespace

int current_device() { return current.empty() ? 0 : current.back()->device; }

}  // namespace gc3::fake_cuda

using namespace gc3::fake_cuda;

#define GC3_FAKE(symbol, ...) extern "C" __attribute__((visibility("default"))) int symbol(__VA_ARGS__)
#define GC3_BEGIN(symbol) \
  if (const int problem = injected(#symbol); problem != kSuccess) return problem
#define GC3_IN_CONTEXT(symbol) \
  GC3_BEGIN(symbol);           \
  if (no_context()) return kInvalidContext

GC3_FAKE(cuGetErrorName, int error, const char** name) {
  static const std::map<int, const char*> names = {{kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
                                                   {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                   {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
                                                   {kCooperativeTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
                                                   {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  const auto found = names.find(error);
  *name = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return kSuccess;
}
GC3_FAKE(cuGetErrorString, int, const char** text) {
  *text = "said by the fake driver";
  return kSuccess;
}
GC3_FAKE(cuInit, unsigned) {
  GC3_BEGIN(cuInit);
  return Settings::get().devices == 0 ? kNoDevice : kSuccess;
}
GC3_FAKE(cuDriverGetVersion, int* version) {
  *version = 13000;
  return kSuccess;
}
GC3_FAKE(cuDeviceGetCount, int* count) {
  *count = Settings::get().devices;
  return kSuccess;
}
GC3_FAKE(cuDeviceGet, int* device, int ordinal) {
  if (ordinal >= Settings::get().devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
GC3_FAKE(cuDeviceGetName, char* name, int size, int) {
  std::strncpy(name, "Fake H200", static_cast<std::size_t>(size));
  return kSuccess;
}
GC3_FAKE(cuDeviceGetAttribute, int* value, int attribute, int) {
  const std::map<int, int> values = {
      {16, Settings::get().multiprocessors}, {75, 9}, {76, 0}, {95, 1}, {122, Settings::get().values ? 1 : 0}};
  const auto found = values.find(attribute);
  if (found == values.end()) return kInvalidValue;
  *value = found->second;
  return kSuccess;
}
GC3_FAKE(cuDeviceCanAccessPeer, int* can, int, int) {
  *can = Settings::get().peer ? 1 : 0;
  return kSuccess;
}
GC3_FAKE(cuDeviceGetP2PAttribute, int* value, int attribute, int, int) {
  if (attribute != 3) return kInvalidValue;
  *value = Settings::get().nvlink ? 1 : 0;
  return kSuccess;
}
GC3_FAKE(cuDevicePrimaryCtxRetain, void** context, int device) {
  GC3_BEGIN(cuDevicePrimaryCtxRetain);
  *context = &contexts[static_cast<std::size_t>(device)];
  return kSuccess;
}
GC3_FAKE(cuDevicePrimaryCtxRelease_v2, int) { return kSuccess; }
GC3_FAKE(cuCtxPushCurrent_v2, void* context) {
  current.push_back(static_cast<Context*>(context));
  return kSuccess;
}
GC3_FAKE(cuCtxPopCurrent_v2, void** context) {
  if (no_context()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
GC3_FAKE(cuCtxSynchronize) {
  GC3_IN_CONTEXT(cuCtxSynchronize);
  if (captures.load() != 0) return kCaptureUnsupported;
  Stream::synchronize_all(current.back()->device);
  return kSuccess;
}
GC3_FAKE(cuCtxEnablePeerAccess, void* peer, unsigned) {
  GC3_IN_CONTEXT(cuCtxEnablePeerAccess);
  const std::lock_guard lock(peers_mutex);
  return current.back()->peers.insert(static_cast<Context*>(peer)->device).second ? kSuccess : kPeerAlreadyEnabled;
}
GC3_FAKE(cuModuleLoadData, void** module, const void* image) {
  GC3_IN_CONTEXT(cuModuleLoadData);
  if (forbidden_in_capture()) return kCaptureUnsupported;
  std::istringstream words(static_cast<const char*>(image));  // "fake PROTOCOL TYPE HAND", see nvrtcGetCUBIN
  std::string fake;
  auto made = std::make_unique<Module>();
  words >> fake >> made->protocol >> made->type >> made->hand;
  if (fake != "fake") return kInvalidValue;
  *module = made.release();
  return kSuccess;
}
GC3_FAKE(cuModuleUnload, void* module) {
  delete static_cast<Module*>(module);
  return kSuccess;
}
GC3_FAKE(cuModuleGetFunction, void** function, void* handle, const char* name) {
  static std::mutex mutex;
  static std::map<std::string, Function> functions;
  const auto* module = static_cast<const Module*>(handle);
  using Does = Function::Does;
  const std::map<std::string, Does> known = {{"gc3_divide_" + module->type, Does::divide},
                                             {"gc3_scale_" + module->type, Does::scale},
                                             {"gc3_guard", Does::guard},
                                             {"gc3_run_" + module->protocol + "_" + module->type, Does::run}};
  const auto does = known.find(name);
  if (does == known.end()) return kNotFound;
  const std::lock_guard lock(mutex);
  static std::map<std::string, Module> modules;
  const Module& kept = modules.insert({module->protocol + module->type + module->hand, *module}).first->second;
  *function = &functions.insert({name + module->protocol + module->hand, Function{&kept, does->second}}).first->second;
  return kSuccess;
}
GC3_FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, int* blocks, void*, int, std::size_t) {
  *blocks = Settings::get().blocks;
  return kSuccess;
}

template <class Argument>
static std::shared_ptr<const Argument> copied(void** arguments) {
  return std::make_shared<Argument>(*static_cast<Argument*>(arguments[0]));
}
static int launch(void* handle, Grid grid, void* stream, void** arguments) {
  const auto [module, does] = *static_cast<Function*>(handle);
  const auto warps = static_cast<std::uint32_t>(Settings::get().warps);
  const auto add = [&](auto work) { stream_of(stream).add(work); };
  if (does == Function::Does::divide) {
    add([=, of = copied<gc3::cuda::Division>(arguments)] { divide(module->type, *of, grid); });
  } else if (does == Function::Does::scale) {
    add([=, of = copied<gc3::cuda::Scaling>(arguments)] { scale(module->type, *of, grid); });
  } else if (does == Function::Does::guard) {
    add([of = copied<gc3::cuda::Guard>(arguments)] { guard(*of); });
  } else if (module->protocol == "OneSided") {
    add([=, of = copied<gc3::cuda::OneSidedLaunch>(arguments)] { run_one_sided(module->type, *of, grid.x, warps); });
  } else {
    add([=, of = copied<gc3::cuda::Launch>(arguments)] { run(*module, *of, grid.x, warps); });
  }
  return kSuccess;
}
GC3_FAKE(cuLaunchCooperativeKernel, void* function, unsigned x, unsigned, unsigned, unsigned, unsigned, unsigned,
         unsigned, void* stream, void** arguments) {
  GC3_IN_CONTEXT(cuLaunchCooperativeKernel);
  const auto most = static_cast<unsigned>(Settings::get().multiprocessors * Settings::get().blocks);
  return x > most ? static_cast<int>(kCooperativeTooLarge) : launch(function, {x, 1}, stream, arguments);
}
GC3_FAKE(cuLaunchKernel, void* function, unsigned x, unsigned y, unsigned, unsigned, unsigned, unsigned, unsigned,
         void* stream, void** arguments, void**) {
  GC3_IN_CONTEXT(cuLaunchKernel);
  return launch(function, {x, y}, stream, arguments);
}

GC3_FAKE(cuMemAlloc_v2, std::uint64_t* base, std::size_t bytes) {
  GC3_IN_CONTEXT(cuMemAlloc_v2);
  if (forbidden_in_capture()) return kCaptureUnsupported;
  return Memory::get().allocate(current.back()->device, bytes, base);
}
GC3_FAKE(cuMemFree_v2, std::uint64_t base) {
  GC3_IN_CONTEXT(cuMemFree_v2);
  if (forbidden_in_capture()) return kCaptureUnsupported;
  return Memory::get().release(base);
}
GC3_FAKE(cuMemHostAlloc, void** base, std::size_t bytes, unsigned) {
  GC3_IN_CONTEXT(cuMemHostAlloc);
  if (forbidden_in_capture()) return kCaptureUnsupported;
  *base = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *base == nullptr ? kOutOfMemory : kSuccess;
}
GC3_FAKE(cuMemFreeHost, void* base) {
  if (forbidden_in_capture()) return kCaptureUnsupported;
  std::free(base);
  return kSuccess;
}
// A byte of device memory is written and read whole, also where two streams do it at once, and so is an aligned word.
// That is used for flags, so it is done for what is not longer than a few of them; the buffers of calls do not overlap.
static void copy_flags(void* to, const void* from, std::size_t bytes) {
  if (bytes == 8 && (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 8 == 0) {
    __atomic_store_n(static_cast<std::uint64_t*>(to),
                     __atomic_load_n(static_cast<const std::uint64_t*>(from), __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    return;
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    __atomic_store_n(static_cast<char*>(to) + i, __atomic_load_n(static_cast<const char*>(from) + i, __ATOMIC_ACQUIRE),
                     __ATOMIC_RELEASE);
  }
}
template <class Word>
static void copy_words(void* to, const void* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes / sizeof(Word); ++i) {
    __atomic_store_n(static_cast<Word*>(to) + i, __atomic_load_n(static_cast<const Word*>(from) + i, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
  }
}
// A rank that is stopped may overwrite what another still reads, which looks at a mark afterwards and then drops it
// (see docs/cuda.md). So words are atomic, without an order. Copies do not overlap.
static void copy_data(void* to, const void* from, std::size_t bytes) {
  const auto all = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
  (all % sizeof(std::uint64_t) == 0 ? copy_words<std::uint64_t> : copy_words<char>)(to, from, bytes);
}
// After hold_next_copy(1), the next copy that is longer than flags reads nothing before hold_next_copy(0).
static std::atomic<bool> next_is_held{false};
static std::atomic<bool> is_holding{false};
extern "C" __attribute__((visibility("default"))) void hold_next_copy(int hold) {
  is_holding = next_is_held = hold != 0;
}
static int copy(void* to, const void* from, std::size_t bytes, void* stream) {
  constexpr std::size_t kFlags = 16;
  if (bytes <= kFlags) {
    stream_of(stream).add([=] { copy_flags(to, from, bytes); });
    return kSuccess;
  }
  stream_of(stream).add([=, held = next_is_held.exchange(false)] {
    while (held && is_holding) std::this_thread::yield();
    copy_data(to, from, bytes);
  });
  return kSuccess;
}
GC3_FAKE(cuMemcpyHtoDAsync_v2, std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  GC3_IN_CONTEXT(cuMemcpyHtoDAsync_v2);
  return copy(reinterpret_cast<void*>(to), from, bytes, stream);
}
GC3_FAKE(cuMemcpyDtoHAsync_v2, void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  GC3_IN_CONTEXT(cuMemcpyDtoHAsync_v2);
  return copy(to, reinterpret_cast<void*>(from), bytes, stream);
}
GC3_FAKE(cuMemcpyDtoDAsync_v2, std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  GC3_IN_CONTEXT(cuMemcpyDtoDAsync_v2);
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream);
}
// Zeros are pages that are given back: most of them nobody uses. ThreadSanitizer sees only what is written.
static void fill(std::uint64_t at, unsigned char value, std::size_t bytes) {
#ifndef __SANITIZE_THREAD__
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t first = (at + kPage - 1) / kPage * kPage;
  const std::uint64_t last = (at + bytes) / kPage * kPage;
  if (value == 0 && first < last && madvise(reinterpret_cast<void*>(first), last - first, MADV_REMOVE) == 0) {
    std::memset(reinterpret_cast<void*>(at), 0, first - at);
    std::memset(reinterpret_cast<void*>(last), 0, at + bytes - last);
    return;
  }
#endif
  std::memset(reinterpret_cast<void*>(at), value, bytes);
}
GC3_FAKE(cuMemsetD8Async, std::uint64_t at, unsigned char value, std::size_t bytes, void* stream) {
  GC3_IN_CONTEXT(cuMemsetD8Async);
  stream_of(stream).add([=] { fill(at, value, bytes); });
  return kSuccess;
}
GC3_FAKE(cuLaunchHostFunc, void* stream, void (*function)(void*), void* data) {
  GC3_IN_CONTEXT(cuLaunchHostFunc);
  stream_of(stream).add([=] { function(data); });
  return kSuccess;
}
GC3_FAKE(cuCtxGetDevice, int* device) {
  GC3_IN_CONTEXT(cuCtxGetDevice);
  *device = current_device();
  return kSuccess;
}
GC3_FAKE(cuPointerGetAttribute, void* value, int attribute, std::uint64_t address) {
  const int device = Memory::get().device_of(address);
  if (device < 0 || (attribute != 9 && attribute != 16)) return kInvalidValue;
  const bool reached = attribute == 16 && (!Settings::get().pools || current.back()->device == device);
  *static_cast<int*>(value) = attribute == 9 ? device : reached ? 3 : 0;
  return kSuccess;
}

GC3_FAKE(cuStreamCreate, void** stream, unsigned) {
  GC3_IN_CONTEXT(cuStreamCreate);
  *stream = new Stream(current.back()->device);
  return kSuccess;
}
GC3_FAKE(cuStreamDestroy_v2, void* stream) {
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
GC3_FAKE(cuStreamGetId, void* stream, unsigned long long* id) {
  GC3_IN_CONTEXT(cuStreamGetId);
  *id = stream_of(stream).id();
  return kSuccess;
}
GC3_FAKE(cuStreamSynchronize, void* stream) {
  GC3_IN_CONTEXT(cuStreamSynchronize);
  if (stream_of(stream).capturing()) return kCaptureUnsupported;
  stream_of(stream).synchronize();
  return kSuccess;
}
GC3_FAKE(cuStreamIsCapturing, void* stream, int* capturing) {
  GC3_IN_CONTEXT(cuStreamIsCapturing);
  *capturing = stream_of(stream).capturing() ? 1 : 0;
  return kSuccess;
}
// Waits for values in memory, and writes them, in the order of the stream.
struct MemoryOperation {
  int operation;
  std::uint64_t address;
  std::uint64_t value;
  unsigned flags;
  std::uint64_t alias;
  std::uint64_t unused;
};
static void operate(const MemoryOperation& does) {
  auto* const at = reinterpret_cast<std::uint64_t*>(does.address);
  if (does.operation == 5) {
    __atomic_store_n(at, does.value, __ATOMIC_RELEASE);
    return;
  }
  for (;;) {
    const std::uint64_t found = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    const bool holds = does.flags == 1 ? found == does.value : static_cast<std::int64_t>(found - does.value) >= 0;
    if (holds) return;
    std::this_thread::yield();
  }
}
GC3_FAKE(cuStreamBatchMemOp_v2, void* stream, unsigned count, MemoryOperation* all, unsigned flags) {
  GC3_IN_CONTEXT(cuStreamBatchMemOp_v2);
  if (!Settings::get().values) return kNotSupported;
  if (count >= 256 || flags != 0) return kInvalidValue;
  for (unsigned i = 0; i < count; ++i) {
    // A write without a barrier is refused, as the second version of the real function does.
    const bool known = all[i].operation == 4 ? all[i].flags <= 1 : all[i].operation == 5 && all[i].flags == 0;
    if (!known || all[i].address % 8 != 0 || Memory::get().device_of(all[i].address) < 0) return kInvalidValue;
  }
  stream_of(stream).add([batch = std::vector<MemoryOperation>(all, all + count)] {
    for (const MemoryOperation& does : batch) operate(does);
  });
  return kSuccess;
}
GC3_FAKE(cuStreamBeginCapture_v2, void* stream, int) {
  GC3_IN_CONTEXT(cuStreamBeginCapture_v2);
  if (stream == nullptr) return kCaptureUnsupported;  // the legacy stream cannot be captured
  ++captures;
  stream_of(stream).begin_capture();
  return kSuccess;
}
GC3_FAKE(cuStreamEndCapture, void* stream, void** graph) {
  GC3_IN_CONTEXT(cuStreamEndCapture);
  --captures;
  *graph = stream_of(stream).end_capture().release();
  return kSuccess;
}
GC3_FAKE(cuThreadExchangeStreamCaptureMode, int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
GC3_FAKE(cuGraphInstantiateWithFlags, void** executable, void* graph, unsigned long long) {
  GC3_BEGIN(cuGraphInstantiateWithFlags);
  *executable = new Graph(*static_cast<Graph*>(graph));
  return kSuccess;
}
GC3_FAKE(cuGraphLaunch, void* executable, void* stream) {
  GC3_IN_CONTEXT(cuGraphLaunch);
  for (const Work& work : *static_cast<Graph*>(executable)) stream_of(stream).add(work);
  return kSuccess;
}
GC3_FAKE(cuGraphExecDestroy, void* executable) {
  delete static_cast<Graph*>(executable);
  return kSuccess;
}
GC3_FAKE(cuGraphDestroy, void* graph) {
  delete static_cast<Graph*>(graph);
  return kSuccess;
}

GC3_FAKE(cuEventCreate, void** event, unsigned) {
  GC3_IN_CONTEXT(cuEventCreate);
  *event = new std::shared_ptr<Event>(std::make_shared<Event>());
  return kSuccess;
}
GC3_FAKE(cuEventDestroy_v2, void* event) {
  delete static_cast<std::shared_ptr<Event>*>(event);
  return kSuccess;
}
GC3_FAKE(cuEventRecord, void* handle, void* stream) {
  GC3_IN_CONTEXT(cuEventRecord);
  const std::shared_ptr<Event> event = *static_cast<std::shared_ptr<Event>*>(handle);
  const std::uint64_t turn = ++event->recorded;
  stream_of(stream).add([=] {
    event->time_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    event->reached = turn;
  });
  return kSuccess;
}
GC3_FAKE(cuEventQuery, void* handle) {
  if (forbidden_in_capture()) return kCaptureUnsupported;
  const Event& event = **static_cast<std::shared_ptr<Event>*>(handle);
  return event.reached >= event.recorded ? kSuccess : kNotReady;
}
GC3_FAKE(cuEventElapsedTime, float* ms, void* first, void* last) {
  const Event& begin = **static_cast<std::shared_ptr<Event>*>(first);
  const Event& end = **static_cast<std::shared_ptr<Event>*>(last);
  if (end.reached < end.recorded) return kNotReady;
  *ms = static_cast<float>(end.time_ns - begin.time_ns) * 1e-6F;
  return kSuccess;
}
GC3_FAKE(cuStreamWaitEvent, void* stream, void* handle, unsigned) {
  GC3_IN_CONTEXT(cuStreamWaitEvent);
  const std::shared_ptr<Event> event = *static_cast<std::shared_ptr<Event>*>(handle);
  const std::uint64_t turn = event->recorded;
  stream_of(stream).add([=] {
    while (event->reached < turn) std::this_thread::yield();
  });
  return kSuccess;
}

GC3_FAKE(cuIpcGetMemHandle, IpcHandle* handle, std::uint64_t base) {
  GC3_IN_CONTEXT(cuIpcGetMemHandle);
  const Allocation* const found = Memory::get().find(base);
  if (found == nullptr) return kInvalidValue;
  *handle = {{static_cast<std::uint64_t>(getpid()), static_cast<std::uint64_t>(found->file), found->bytes, 1, 2, 3, 4,
              static_cast<std::uint64_t>(found->device)}};
  return kSuccess;
}
GC3_FAKE(cuIpcOpenMemHandle_v2, std::uint64_t* base, IpcHandle handle, unsigned) {
  GC3_IN_CONTEXT(cuIpcOpenMemHandle_v2);
  // The handle must be complete, and a process cannot open its own.
  if (handle.words[3] != 1 || handle.words[6] != 4 || handle.words[0] == static_cast<std::uint64_t>(getpid())) {
    return kInvalidValue;
  }
  return Memory::get().open(handle.words[0], handle.words[1], {handle.words[2], static_cast<int>(handle.words[7]), -1},
                            base);
}
GC3_FAKE(cuIpcCloseMemHandle, std::uint64_t base) { return Memory::get().close(base); }
