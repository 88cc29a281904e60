// Collectives of NCCL's API in the manner of nccl-tests: for each collective, type, reduction and size it checks the
// results, in and out of place, and measures. Needs neither nccl.h nor CUDA's headers: NCCL is the libnccl.so.2 that
// the loader finds, the driver libcuda.so.1 or what GC3_CUDA_DRIVER names. Ranks share devices if there are more.
//
//   gc3_nccl_perf COLLECTIVE|all [-b BYTES] [-e BYTES] [-f FACTOR] [-n ITERATIONS] [-t THREADS] [-g RANKS of a thread]
//                 [-d TYPE|all] [-o REDUCTION|all] [-r ROOT|all] [-G 1: in CUDA graphs] [-N 1: non-blocking
//                 communicators]
//
// Bytes are those of the larger buffer of a rank, as in nccl-tests. The exit status is 1 if a result is wrong.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "nccl_data.h"

namespace {

using namespace gc3::nccl_perf;

constexpr int kInProgress = 7;
constexpr std::size_t kPlaces = 64;  // wrong results are named up to here

struct Options {
  std::size_t first = 1024, last = 1024, factor = 4;
  int iterations = 5, threads = 1, ranks = 1;  // ranks: of each thread
  std::string type = "float", op = "sum", root = "0";
  bool graphs = false, non_blocking = false;
};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "gc3_nccl_perf: %s\n", why.c_str());
  std::_Exit(2);
}

void* library(const char* name) {
  void* const opened = dlopen(name, RTLD_NOW);
  if (opened == nullptr) die(dlerror());
  return opened;
}
template <class... Arguments>
int call(void* library, const char* symbol, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, symbol));
  if (function == nullptr) die(std::string("there is no ") + symbol);
  return function(arguments...);
}
template <class... Arguments>
void cuda(const char* symbol, Arguments... arguments) {
  static void* const driver =
      library(std::getenv("GC3_CUDA_DRIVER") == nullptr ? "libcuda.so.1" : std::getenv("GC3_CUDA_DRIVER"));
  if (const int status = call(driver, symbol, arguments...); status != 0) {
    die(std::string(symbol) + " returns " + std::to_string(status));
  }
}
void* nccl_library() {
  static void* const found = library("libnccl.so.2");
  return found;
}
void fail(const char* symbol, int answer) {
  const auto text = reinterpret_cast<const char* (*)(void*)>(dlsym(nccl_library(), "ncclGetLastError"));
  die(std::string(symbol) + " returns " + std::to_string(answer) + ": " + (text == nullptr ? "" : text(nullptr)));
}
// In progress is no error of non-blocking communicators.
template <class... Arguments>
int nccl(const char* symbol, Arguments... arguments) {
  const int answer = call(nccl_library(), symbol, arguments...);
  if (answer != 0 && answer != kInProgress) fail(symbol, answer);
  return answer;
}

struct UniqueId {
  char bytes[128];
};
// The beginning of ncclConfig_t; what follows is as NCCL_CONFIG_INITIALIZER sets it.
struct Config {
  std::size_t size = 24;
  unsigned magic = 0xcafebeef;
  unsigned version = 23007;
  int blocking = 0;
  std::array<int, 64> others;
  Config() { others.fill(INT32_MIN); }
};

struct Rank {
  int number = 0;
  void* context = nullptr;
  void* comm = nullptr;
  void* stream = nullptr;
  std::uint64_t in = 0, out = 0;  // device memory
  std::uint64_t send = 0, recv = 0;
  void* graph = nullptr;
  void* executable = nullptr;
};

class Thread {
 public:
  Thread(const Options& options, const UniqueId& id, int number, std::barrier<>& together, std::atomic<long>& wrong)
      : options_(options), size_(options.threads * options.ranks), together_(together), wrong_(wrong) {
    int devices = 0;
    cuda("cuDeviceGetCount", &devices);
    nccl("ncclGroupStart");
    ranks_.resize(static_cast<std::size_t>(options.ranks));
    Config config;
    for (int i = 0; i < options.ranks; ++i) {
      Rank& rank = ranks_[static_cast<std::size_t>(i)];
      rank.number = number * options.ranks + i;
      cuda("cuDevicePrimaryCtxRetain", &rank.context, rank.number % devices);
      on(rank, [&] {
        cuda("cuStreamCreate", &rank.stream, 1U);
        cuda("cuMemAlloc_v2", &rank.in, options.last + 16);
        cuda("cuMemAlloc_v2", &rank.out, options.last + 16);
        if (options.non_blocking) {
          nccl("ncclCommInitRankConfig", &rank.comm, size_, id, rank.number, &config);
        } else {
          nccl("ncclCommInitRank", &rank.comm, size_, id, rank.number);
        }
      });
    }
    nccl("ncclGroupEnd");
    wait();
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() {
    for (Rank& rank : ranks_) {
      on(rank, [&] {
        nccl("ncclCommFinalize", rank.comm);
        wait_for(rank);
        nccl("ncclCommDestroy", rank.comm);
        cuda("cuMemFree_v2", rank.in);
        cuda("cuMemFree_v2", rank.out);
        cuda("cuStreamDestroy_v2", rank.stream);
      });
    }
  }

  void run(const Test& test) {
    const Type& type = kTypes[static_cast<std::size_t>(test.type)];
    const std::size_t parts = splits(test.kind) ? static_cast<std::size_t>(size_) : 1;
    for (std::size_t bytes = options_.first; bytes <= options_.last; bytes *= options_.factor) {
      const std::size_t count = std::max<std::size_t>(bytes / type.bytes / parts, 1);
      if (count * type.bytes * parts > options_.last + 16) continue;  // of a type that has no smaller call
      for (const bool in_place : {false, true}) {
        if (in_place && test.kind == Kind::alltoall) continue;
        measure(test, bytes, count, in_place);
      }
    }
  }

 private:
  template <class Work>
  static void on(const Rank& rank, const Work& work) {
    void* before = nullptr;
    cuda("cuCtxPushCurrent_v2", rank.context);
    work();
    cuda("cuCtxPopCurrent_v2", &before);
  }
  static void wait_for(const Rank& rank) {
    for (int error = kInProgress; error == kInProgress; std::this_thread::yield()) {
      nccl("ncclCommGetAsyncError", rank.comm, &error);
      if (error != 0 && error != kInProgress) fail("ncclCommGetAsyncError says that a call", error);
    }
  }
  void wait() {
    for (const Rank& rank : ranks_) wait_for(rank);
  }
  void synchronize() {
    for (const Rank& rank : ranks_) {
      on(rank, [&] { cuda("cuStreamSynchronize", rank.stream); });
    }
  }

  std::size_t input_blocks(const Test& test, int rank) const {
    if (rooted(test.kind) && test.kind != Kind::reduce && test.kind != Kind::gather && rank != test.root) return 0;
    return gives_all(test.kind) ? static_cast<std::size_t>(size_) : 1;
  }
  std::size_t output_blocks(const Test& test, int rank) const {
    if ((test.kind == Kind::reduce || test.kind == Kind::gather) && rank != test.root) return 0;
    return takes_all(test.kind) ? static_cast<std::size_t>(size_) : 1;
  }

  // Sets the addresses of a rank's buffers, and writes its input.
  void fill(const Test& test, std::size_t count, bool in_place) {
    const Type& type = kTypes[static_cast<std::size_t>(test.type)];
    for (Rank& rank : ranks_) {
      const std::size_t own = static_cast<std::size_t>(rank.number) * count * type.bytes;
      const bool both = input_blocks(test, rank.number) != 0 && output_blocks(test, rank.number) != 0;
      rank.send = rank.in;
      rank.recv = rank.out;
      if (in_place && both) {
        if (test.kind == Kind::all_gather || test.kind == Kind::gather) rank.send = rank.out + own;
        if (test.kind == Kind::reduce_scatter || test.kind == Kind::scatter) rank.recv = rank.in + own;
      }
      if (in_place && !splits(test.kind)) rank.recv = rank.send;
      std::vector<std::uint8_t> data(input_blocks(test, rank.number) * count * type.bytes);
      for (std::size_t i = 0; i < data.size() / type.bytes; ++i) {
        const std::uint64_t element = encoded(type, given(test, rank.number, i));
        std::memcpy(data.data() + i * type.bytes, &element, type.bytes);
      }
      on(rank, [&] {
        if (!data.empty()) {
          cuda("cuMemcpyHtoDAsync_v2", rank.send, static_cast<const void*>(data.data()), data.size(), rank.stream);
        }
        cuda("cuStreamSynchronize", rank.stream);
      });
    }
  }

  // Compares the outputs.
  void check(const Test& test, std::size_t count, const char* how) {
    const Type& type = kTypes[static_cast<std::size_t>(test.type)];
    for (const Rank& rank : ranks_) {
      std::vector<std::uint8_t> data(output_blocks(test, rank.number) * count * type.bytes);
      if (data.empty()) continue;
      on(rank, [&] {
        cuda("cuMemcpyDtoHAsync_v2", static_cast<void*>(data.data()), rank.recv, data.size(), rank.stream);
        cuda("cuStreamSynchronize", rank.stream);
      });
      for (std::size_t i = 0; i < data.size() / type.bytes; ++i) {
        std::uint64_t element = 0;
        std::memcpy(&element, data.data() + i * type.bytes, type.bytes);
        const std::uint64_t wanted = encoded(type, expected(test, size_, rank.number, count, i));
        if (element == wanted || ++wrong_ > static_cast<long>(kPlaces)) continue;
        std::fprintf(stderr, "%s %s %s of %zu, %s: element %zu of rank %d is %llx instead of %llx\n",
                     kKinds[static_cast<std::size_t>(test.kind)], type.name, kOps[static_cast<std::size_t>(test.op)],
                     count, how, i, rank.number, static_cast<unsigned long long>(element),
                     static_cast<unsigned long long>(wanted));
      }
    }
  }

  void put(const Test& t, std::size_t count, const Rank& rank) const {
    auto* const send = reinterpret_cast<void*>(rank.send);
    auto* const recv = reinterpret_cast<void*>(rank.recv);
    void* const comm = rank.comm;
    void* const stream = rank.stream;
    switch (t.kind) {
      case Kind::all_reduce:
        nccl("ncclAllReduce", send, recv, count, t.type, t.op, comm, stream);
        break;
      case Kind::all_gather:
        nccl("ncclAllGather", send, recv, count, t.type, comm, stream);
        break;
      case Kind::reduce_scatter:
        nccl("ncclReduceScatter", send, recv, count, t.type, t.op, comm, stream);
        break;
      case Kind::alltoall:
        nccl("ncclAlltoAll", send, recv, count, t.type, comm, stream);
        break;
      case Kind::broadcast:
        nccl("ncclBroadcast", send, recv, count, t.type, t.root, comm, stream);
        break;
      case Kind::reduce:
        nccl("ncclReduce", send, recv, count, t.type, t.op, t.root, comm, stream);
        break;
      case Kind::gather:
        nccl("ncclGather", send, recv, count, t.type, t.root, comm, stream);
        break;
      case Kind::scatter:
        nccl("ncclScatter", send, recv, count, t.type, t.root, comm, stream);
        break;
    }
  }
  void put_all(const Test& test, std::size_t count) {
    if (ranks_.size() > 1) nccl("ncclGroupStart");
    for (const Rank& rank : ranks_) {
      on(rank, [&] { put(test, count, rank); });
    }
    if (ranks_.size() > 1) nccl("ncclGroupEnd");
    if (options_.non_blocking) wait();
  }

  void capture(const Test& test, std::size_t count) {
    constexpr int kThreadLocal = 1;
    for (const Rank& rank : ranks_) {
      on(rank, [&] { cuda("cuStreamBeginCapture_v2", rank.stream, kThreadLocal); });
    }
    put_all(test, count);
    for (Rank& rank : ranks_) {
      on(rank, [&] {
        cuda("cuStreamEndCapture", rank.stream, &rank.graph);
        cuda("cuGraphInstantiateWithFlags", &rank.executable, rank.graph, 0ULL);
      });
    }
  }
  void launch() {
    for (const Rank& rank : ranks_) {
      on(rank, [&] { cuda("cuGraphLaunch", rank.executable, rank.stream); });
    }
  }

  void measure(const Test& test, std::size_t bytes, std::size_t count, bool in_place) {
    fill(test, count, in_place);
    together_.arrive_and_wait();
    put_all(test, count);
    synchronize();
    check(test, count, in_place ? "in place" : "out of place");
    if (options_.graphs) {
      capture(test, count);
      for (int turn = 0; turn < 2; ++turn) {  // a graph is launched again and again
        fill(test, count, in_place);
        together_.arrive_and_wait();
        launch();
        synchronize();
        check(test, count, in_place ? "in place, in a graph" : "out of place, in a graph");
      }
    }
    together_.arrive_and_wait();
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < options_.iterations; ++i) {
      if (options_.graphs) {
        launch();
      } else {
        put_all(test, count);
      }
    }
    synchronize();
    together_.arrive_and_wait();
    const double us =
        std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / std::max(options_.iterations, 1);
    for (Rank& rank : ranks_) {
      if (!options_.graphs) break;
      cuda("cuGraphExecDestroy", rank.executable);
      cuda("cuGraphDestroy", rank.graph);
    }
    if (ranks_.front().number == 0) print(test, bytes, count, in_place, us);
  }

  void print(const Test& test, std::size_t bytes, std::size_t count, bool in_place, double us) const {
    const double n = size_;
    const double factor = test.kind == Kind::all_reduce ? 2 * (n - 1) / n : splits(test.kind) ? (n - 1) / n : 1;
    const double rate = static_cast<double>(bytes) / us / 1e3;
    std::printf("%-14s %12zu %12zu %8s %4s %4d %3s %10.2f %8.3f %8.3f\n", kKinds[static_cast<std::size_t>(test.kind)],
                bytes, count, kTypes[static_cast<std::size_t>(test.type)].name,
                reduces(test.kind) ? kOps[static_cast<std::size_t>(test.op)] : "none",
                rooted(test.kind) ? test.root : -1, in_place ? "in" : "out", options_.iterations == 0 ? 0 : us,
                options_.iterations == 0 ? 0 : rate, options_.iterations == 0 ? 0 : rate * factor);
  }

  const Options& options_;
  int size_;
  std::barrier<>& together_;
  std::atomic<long>& wrong_;
  std::vector<Rank> ranks_;
};

template <class Names, class Name>
std::vector<int> chosen(const std::string& asked, const Names& names, const Name& name_of) {
  std::vector<int> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (asked == "all" || asked == name_of(names[i])) found.push_back(static_cast<int>(i));
  }
  if (found.empty()) die("there is no '" + asked + "'");
  return found;
}

Options read(int count, char** words) {
  Options options;
  for (int i = 2; i + 1 < count; i += 2) {
    const std::string value = words[i + 1];
    const auto number = static_cast<std::size_t>(std::strtoull(value.c_str(), nullptr, 10));
    const std::map<std::string, std::size_t*> sizes = {
        {"-b", &options.first}, {"-e", &options.last}, {"-f", &options.factor}};
    const std::map<std::string, int*> numbers = {
        {"-n", &options.iterations}, {"-t", &options.threads}, {"-g", &options.ranks}};
    const std::map<std::string, std::string*> texts = {
        {"-d", &options.type}, {"-o", &options.op}, {"-r", &options.root}};
    const std::map<std::string, bool*> switches = {{"-G", &options.graphs}, {"-N", &options.non_blocking}};
    const std::string name = words[i];
    if (sizes.contains(name)) {
      *sizes.at(name) = number;
    } else if (numbers.contains(name)) {
      *numbers.at(name) = static_cast<int>(number);
    } else if (texts.contains(name)) {
      *texts.at(name) = value;
    } else if (switches.contains(name)) {
      *switches.at(name) = number != 0;
    } else {
      die("there is no option " + name);
    }
  }
  if (count % 2 != 0) die(std::string(words[count - 1]) + " needs a value");
  if (options.factor < 2 || options.ranks < 1 || options.threads < 1 || options.first < 1) {
    die("-f is at least 2, -b, -g and -t at least 1");
  }
  options.last = std::max(options.first, options.last);
  return options;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) die("COLLECTIVE|all [OPTION VALUE]...; see the source");
  const Options options = read(count, words);
  const auto same = [](const char* name) { return std::string(name); };
  std::vector<Test> tests;
  const int ranks = options.threads * options.ranks;
  for (const int kind : chosen(words[1], kKinds, same)) {
    for (const int type : chosen(options.type, kTypes, [](const Type& t) { return std::string(t.name); })) {
      for (const int op : chosen(options.op, kOps, same)) {
        const auto which = static_cast<Kind>(kind);
        if (op != 0 && !reduces(which)) continue;
        if (options.root == "all" && rooted(which)) {
          for (int root = 0; root < ranks; ++root) tests.push_back({which, type, op, root});
        } else {
          tests.push_back({which, type, op, std::atoi(options.root.c_str()) % ranks});
        }
      }
    }
  }
  cuda("cuInit", 0U);
  UniqueId id{};
  nccl("ncclGetUniqueId", &id);
  std::printf("# %d ranks, %d of each thread%s%s\n", ranks, options.ranks, options.graphs ? ", CUDA graphs" : "",
              options.non_blocking ? ", non-blocking communicators" : "");
  std::printf("# %-12s %12s %12s %8s %4s %4s %3s %10s %8s %8s\n", "collective", "bytes", "count", "type", "op", "root",
              "in", "us", "algbw", "busbw");
  std::barrier<> together(options.threads);
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < options.threads; ++t) {
    threads.emplace_back([&, t] {
      Thread thread(options, id, t, together, wrong);
      for (const Test& test : tests) thread.run(test);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("# %zu tests, wrong elements: %ld\n", tests.size(), wrong.load());
  return wrong == 0 ? 0 : 1;
}
