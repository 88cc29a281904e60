// The machine of the fake driver: devices, memory, streams, graphs, and injected failures.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gc3::fake_cuda {

// Numbers of cuda.h.
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNotFound = 500,
  kNotReady = 600,
  kPeerAlreadyEnabled = 704,
  kCooperativeTooLarge = 720,
  kNotSupported = 801,
  kCaptureUnsupported = 900
};

// The settings in FAKE_CUDA: "devices=2 sms=132 blocks=2 warps=1 memory=BYTES peer=0 nvlink=0 nvrtc=fail cuda=13
// nccl=23007 windows=0 lsa=0 multicast=1 mapped=1 unmap=MS values=0 channels=1 fail=SYMBOL:N", where the N-th call of
// SYMBOL fails.
struct Settings {
  int devices = 1;
  int multiprocessors = 132;
  int blocks = 2;  // resident on each multiprocessor
  int warps = 1;   // of a threadblock
  std::uint64_t memory = std::uint64_t{4} << 30U;
  bool peer = true;
  bool nvlink = true;
  bool pools = false;  // whether memory is as of a pool that only its own device may access
  bool compiles = true;
  int compiler = 13;    // version of NVRTC; the driver's is 13
  int nccl = 23007;     // version of NCCL
  bool windows = true;  // whether NCCL makes symmetric windows
  bool lsa = true;      // whether windows have addresses
  int multicast = 0;    // 1: a switch reaches the windows of all ranks; 2: it does nothing
  bool mapped = false;  // whether freeing memory that another process has mapped ends this one
  int unmap_ms = 0;     // how long it takes to unmap memory of another process
  bool values = true;   // whether streams wait for values in memory
  int channels = 0;     // queues of a device that its streams share, in the order of submission; 0: one for each
  std::string fails;
  int fails_at = 1;

  static const Settings& get();
};

// The injected result of a call of `symbol`, if there is one.
int injected(const char* symbol);

int current_device();  // of the calling thread's context

struct Allocation {
  std::size_t bytes = 0;
  int device = 0;
  int file = -1;  // of memory that another process can map
};

class Memory {
 public:
  static Memory& get();
  int allocate(int device, std::size_t bytes, std::uint64_t* base);
  // `shared`: made by cuMemCreate, as NCCL does, which keeps memory until its last mapping ends.
  int release(std::uint64_t base, bool shared = false);
  // Opens memory of another process, which `allocate` has made there.
  int open(std::uint64_t process, std::uint64_t file, const Allocation& of, std::uint64_t* base);
  int close(std::uint64_t base);
  const Allocation* find(std::uint64_t address);  // the allocation of this process that contains the address
  int device_of(std::uint64_t address);           // -1: none

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_;
  std::map<std::uint64_t, Allocation> opened_;
  std::map<int, std::uint64_t> used_;
};

using Work = std::function<void()>;
using Graph = std::vector<Work>;

class Stream;

// A queue of a device: executes the work of its streams in the order of submission, on a separate thread.
class Channel {
 public:
  Channel() : thread_([this] { work(); }) {}
  ~Channel();
  static std::shared_ptr<Channel> of(int device, unsigned long long stream);
  void add(Stream* stream, Work work);
  void synchronize(const Stream* stream);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Stream*, Work>> queue_;
  std::map<const Stream*, std::size_t> pending_;
  bool stop_ = false;
  std::thread thread_;
};

// Executes its work in order.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  static void synchronize_all(int device);
  int device() const { return device_; }
  unsigned long long id() const { return id_; }
  void add(Work work);  // adds to the graph during a capture
  void synchronize() { channel_->synchronize(this); }
  void begin_capture() { graph_ = std::make_unique<Graph>(); }
  std::unique_ptr<Graph> end_capture() { return std::move(graph_); }
  bool capturing() const { return graph_ != nullptr; }

 private:
  int device_;
  unsigned long long id_;  // never reused, while an address may be
  std::shared_ptr<Channel> channel_;
  std::unique_ptr<Graph> graph_;
};

struct Event {
  std::atomic<std::uint64_t> recorded{0};  // how often
  std::atomic<std::uint64_t> reached{0};
  std::atomic<std::int64_t> time_ns{0};
};

}  // namespace gc3::fake_cuda
