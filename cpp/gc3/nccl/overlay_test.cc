// Programs in NCCL's style, whose ranks are threads: above the fake NCCL of tests/fake_nccl, on the fake driver. Python
// tests ask for every collective; these are for ThreadSanitizer.
#include "gc3/nccl/overlay.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "gc3/base/test_folder.h"
#include "gc3/ir/file.h"
#include "gc3/ir/image.h"
#include "gc3/runtime/interp/test_programs.h"

struct UniqueId {
  char bytes[128];
};
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 23007;
  int blocking = 0;
};

extern "C" {
int ncclGetUniqueId(UniqueId*);
int ncclCommInitRank(void**, int, UniqueId, int);
int ncclCommInitRankConfig(void**, int, UniqueId, int, Config*);
int ncclCommSplit(void*, int, int, void**, Config*);
int ncclCommGetAsyncError(void*, int*);
int ncclCommAbort(void*);
int ncclCommFinalize(void*);
int ncclCommDestroy(void*);
int ncclGroupStart();
int ncclGroupEnd();
int ncclAllReduce(const void*, void*, std::size_t, int, int, void*, void*);
int ncclBroadcast(const void*, void*, std::size_t, int, int, void*, void*);
int gc3NcclLoad(const char*);
}

namespace gc3::nccl {
namespace {

constexpr int kRanks = 3;
constexpr int kInt32 = 2;
constexpr int kSum = 0;
constexpr std::size_t kCount = 700;

template <class... Arguments>
void drive(const char* symbol, Arguments... arguments) {
  static void* const library = dlopen(GC3_FAKE_CUDA_LIBRARY, RTLD_NOW);
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, symbol));
  if (function(arguments...) != 0) std::abort();
}

// A rank: the thread that makes it has its device as the current one, and two streams.
struct Rank {
  int rank;
  std::array<void*, 2> streams{};
  std::vector<std::int32_t> give = std::vector<std::int32_t>(kCount);
  std::vector<std::int32_t> take = std::vector<std::int32_t>(kCount);

  explicit Rank(int r) : rank(r) {
    void* context = nullptr;
    drive("cuDevicePrimaryCtxRetain", &context, r);
    drive("cuCtxPushCurrent_v2", context);
    for (void*& stream : streams) drive("cuStreamCreate", &stream, 1U);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    for (void* const stream : streams) drive("cuStreamDestroy_v2", stream);
    void* context = nullptr;
    drive("cuCtxPopCurrent_v2", &context);
  }
  void synchronize() const {
    for (void* const stream : streams) drive("cuStreamSynchronize", stream);
  }
  // A program serves this, NCCL the next one.
  int reduce(void* comm, int on) {
    std::iota(give.begin(), give.end(), rank);
    return ncclAllReduce(give.data(), take.data(), kCount, kInt32, kSum, comm, streams[static_cast<std::size_t>(on)]);
  }
  int broadcast(void* comm, int on) {
    std::iota(give.begin(), give.end(), rank);
    return ncclBroadcast(give.data(), take.data(), kCount, kInt32, 1, comm, streams[static_cast<std::size_t>(on)]);
  }
  bool holds(int first, int factor) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (take[i] != first + factor * static_cast<int>(i)) return false;
    }
    return true;
  }
  bool reduced(int ranks) const { return holds(ranks * (ranks - 1) / 2, ranks); }
};

void each_rank(const std::function<void(Rank&)>& work) {
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&work, r] {
      Rank rank(r);
      work(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

UniqueId new_id() {
  UniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == kSuccess);
  return id;
}

int poll(void* comm) {
  for (int error = kInProgress;;) {
    ncclCommGetAsyncError(comm, &error);
    if (error != kInProgress) return error;
    std::this_thread::yield();
  }
}

// The programs: an AllReduce for two and for three ranks.
class Programs {
 public:
  Programs() {
    std::ofstream index(folder() / "index");
    index << "gc3-programs-1\n";
    for (const std::uint32_t ranks : {2U, 3U}) {
      const auto program = testing::ring_allreduce(ranks, true, model::Protocol::Simple);
      const std::string file = std::to_string(ranks) + ".gc3";
      REQUIRE(ir::write_file((folder() / file).string(), ir::write_image(program, false)).ok());
      index << "allreduce " << ranks << " 0 - 1 0 0 0 " << file << "\n";
    }
    index.close();
    REQUIRE(gc3NcclLoad(folder_.path().c_str()) == kSuccess);
  }
  std::filesystem::path folder() const { return folder_.path(); }

 private:
  gc3::testing::Folder folder_;
};

TEST_CASE("the digest of a table has the limits of its rows and what is in its files, and not their place") {
  const Programs one;
  const Programs other;
  const auto digest = [](const Programs& programs, const std::string& limits) {
    std::ofstream(programs.folder() / "index") << "gc3-programs-1\nallreduce 2 0 - 1 0 0 0 2.gc3" << limits << "\n";
    const auto table = load_table(programs.folder());
    REQUIRE(table.ok());
    return table.value()->hash;
  };
  CHECK(digest(one, "") == digest(other, ""));
  CHECK(digest(one, "") != digest(other, " skew=2:-"));
  std::filesystem::copy(other.folder() / "3.gc3", other.folder() / "2.gc3",
                        std::filesystem::copy_options::overwrite_existing);
  CHECK(digest(one, "") != digest(other, ""));
}

TEST_CASE("threads make calls and groups of two communicators on two streams") {
  const Programs programs;
  const std::array ids = {new_id(), new_id()};
  std::atomic<int> wrong{0};
  each_rank([&](Rank& rank) {
    Rank other(rank.rank);
    std::array<void*, 2> comms{};
    for (std::size_t c = 0; c < 2; ++c) wrong += ncclCommInitRank(&comms[c], kRanks, ids[c], rank.rank) != kSuccess;
    for (int turn = 0; turn < 8; ++turn) {
      if (turn % 2 == 0) wrong += ncclGroupStart() != kSuccess;
      wrong += rank.reduce(comms[0], turn / 2 % 2) != kSuccess;
      wrong += (turn < 4 ? other.broadcast(comms[1], 0) : other.reduce(comms[1], 1)) != kSuccess;
      if (turn % 2 == 0) wrong += ncclGroupEnd() != kSuccess;
      rank.synchronize();
      other.synchronize();
      wrong += !rank.reduced(kRanks);
      wrong += turn < 4 ? !other.holds(1, 1) : !other.reduced(kRanks);
    }
    // Destroyed in another order on each rank, by several threads at once.
    const auto first = static_cast<std::size_t>(rank.rank % 2);
    wrong += ncclCommFinalize(comms[first]) != kSuccess;
    wrong += ncclCommDestroy(comms[first]) != kSuccess;
    wrong += ncclCommDestroy(comms[1 - first]) != kSuccess;
  });
  CHECK(wrong == 0);
}

TEST_CASE("communicators come and go while another thread loads programs and asks for errors") {
  const Programs programs;
  std::vector<UniqueId> ids;
  for (int turn = 0; turn < 4; ++turn) ids.push_back(new_id());
  std::atomic<int> wrong{0};
  std::atomic<bool> over{false};
  std::thread loader([&] {
    while (!over) {
      wrong += gc3NcclLoad((programs.folder() / "3.gc3").c_str()) != kSuccess;
      static_cast<void>(Overlay::get().log().text());
    }
  });
  each_rank([&](Rank& rank) {
    for (const UniqueId& id : ids) {
      void* comm = nullptr;
      wrong += ncclCommInitRank(&comm, kRanks, id, rank.rank) != kSuccess;
      std::atomic<bool> used{true};
      std::thread watcher([&] {
        int error = kSuccess;
        while (used && error == kSuccess) wrong += ncclCommGetAsyncError(comm, &error) != kSuccess;
        wrong += error != kSuccess;
      });
      for (int turn = 0; turn < 3; ++turn) {
        wrong += rank.reduce(comm, turn % 2) != kSuccess;
        rank.synchronize();
        wrong += !rank.reduced(kRanks);
      }
      used = false;
      watcher.join();
      wrong += ncclCommDestroy(comm) != kSuccess;
    }
  });
  over = true;
  loader.join();
  CHECK(wrong == 0);
}

TEST_CASE("another thread aborts while a rank waits, in a program and in the exchange before") {
  const Programs programs;
  for (const bool ready : {true, false}) {
    const UniqueId id = new_id();
    std::array<std::atomic<void*>, kRanks> comms{};
    std::atomic<int> calling{0};
    std::atomic<int> wrong{0};
    std::thread aborter([&] {
      while (calling < kRanks) std::this_thread::yield();
      // In the exchange: the handle is not used any more until it ends. The message to the rank that does not come
      // stays.
      for (int r = 0; r < kRanks - 1 && !ready; ++r) {
        const std::string file = "c0-0." + std::to_string(r) + "." + std::to_string(kRanks - 1);
        while (!std::filesystem::exists(std::filesystem::path(id.bytes) / file)) std::this_thread::yield();
      }
      for (int r = 0; r < kRanks; ++r) {
        if (r == 1 && !ready) continue;  // notices that the others are gone
        int error = kSuccess;            // a watcher asks before it aborts
        wrong += ncclCommGetAsyncError(comms[static_cast<std::size_t>(r)], &error) != kSuccess;
        wrong += ncclCommAbort(comms[static_cast<std::size_t>(r)]) != kSuccess;
      }
    });
    each_rank([&](Rank& rank) {
      void* comm = nullptr;
      wrong += ncclCommInitRank(&comm, kRanks, id, rank.rank) != kSuccess;
      comms[static_cast<std::size_t>(rank.rank)] = comm;
      if (ready) wrong += rank.reduce(comm, 0) != kSuccess;
      rank.synchronize();
      if (rank.rank == kRanks - 1) {  // does not call
        ++calling;
        return;
      }
      if (ready) {
        wrong += rank.reduce(comm, 0) != kSuccess;
        ++calling;
      } else {
        ++calling;
        wrong += rank.reduce(comm, 0) != kRemoteError;
        if (rank.rank == 1) wrong += ncclCommAbort(comm) != kSuccess;
      }
      rank.synchronize();
    });
    aborter.join();
    CHECK(wrong == 0);
    std::filesystem::remove_all(id.bytes);  // with the messages that were not taken
  }
}

TEST_CASE("another thread aborts while a rank ends its communicator and waits for a program") {
  const Programs programs;
  for (int (*const end)(void*) : {ncclCommFinalize, ncclCommDestroy}) {
    const UniqueId id = new_id();
    std::atomic<int> wrong{0};
    each_rank([&](Rank& rank) {
      void* comm = nullptr;
      wrong += ncclCommInitRank(&comm, kRanks, id, rank.rank) != kSuccess;
      wrong += rank.reduce(comm, 0) != kSuccess;
      rank.synchronize();
      if (rank.rank == 0) {
        wrong += rank.reduce(comm, 0) != kSuccess;  // the others do not call
        const std::shared_ptr<Communicator> known = Overlay::get().find(comm);
        std::thread watchdog([&] {
          while (!known->progress()->closed()) std::this_thread::yield();
          int error = kInProgress;
          wrong += ncclCommGetAsyncError(comm, &error) != kSuccess || error != kSuccess;
          wrong += ncclCommAbort(comm) != kSuccess;
        });
        wrong += end(comm) != kRemoteError;  // NCCL's handle has been freed
        watchdog.join();
      } else {
        wrong += ncclCommDestroy(comm) != kSuccess;
      }
      rank.synchronize();
    });
    CHECK(wrong == 0);
    std::filesystem::remove_all(id.bytes);
  }
}

TEST_CASE("one rank groups the first calls of two communicators, the others make them one after the other") {
  const Programs programs;
  for (const std::size_t first : {0U, 1U}) {
    const std::array ids = {new_id(), new_id()};
    std::atomic<int> wrong{0};
    each_rank([&](Rank& rank) {
      Rank other(rank.rank);
      const std::array both = {&rank, &other};
      std::array<void*, 2> comms{};
      for (std::size_t c = 0; c < 2; ++c) wrong += ncclCommInitRank(&comms[c], kRanks, ids[c], rank.rank) != kSuccess;
      if (rank.rank == 0) wrong += ncclGroupStart() != kSuccess;
      for (const std::size_t c : {first, 1 - first}) {
        const std::size_t which = rank.rank == 0 ? 1 - c : c;
        wrong += both.at(which)->reduce(comms.at(which), 0) != kSuccess;
      }
      if (rank.rank == 0) wrong += ncclGroupEnd() != kSuccess;
      for (std::size_t c = 0; c < 2; ++c) {
        both.at(c)->synchronize();
        wrong += !both.at(c)->reduced(kRanks);
        wrong += ncclCommDestroy(comms.at(c)) != kSuccess;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("threads of non-blocking communicators, which are split") {
  const Programs programs;
  const UniqueId id = new_id();
  std::atomic<int> wrong{0};
  each_rank([&](Rank& rank) {
    Config config;
    void* comm = nullptr;
    wrong += ncclCommInitRankConfig(&comm, kRanks, id, rank.rank, &config) != kInProgress;
    wrong += poll(comm) != kSuccess;
    const int color = rank.rank == 2 ? -1 : 0;
    void* half = nullptr;
    wrong += ncclCommSplit(comm, color, rank.rank, &half, &config) != kInProgress;
    wrong += poll(comm) != kSuccess;
    for (void* const one : {comm, half}) {
      if (one == nullptr) continue;
      for (int turn = 0; turn < 2; ++turn) {
        const int reduced = rank.reduce(one, 0);
        wrong += reduced != kSuccess && reduced != kInProgress;
        wrong += poll(one) != kSuccess;
        rank.synchronize();
        wrong += !rank.reduced(one == comm ? kRanks : 2);
        const int sent = rank.broadcast(one, 1);
        wrong += sent != kSuccess && sent != kInProgress;
        wrong += poll(one) != kSuccess;
        rank.synchronize();
        wrong += !rank.holds(1, 1);
      }
      wrong += ncclCommDestroy(one) != kSuccess;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a first call of a non-blocking communicator is aborted at some moment") {
  const Programs programs;
  std::atomic<int> wrong{0};
  for (int turn = 0; turn < 6; ++turn) {
    const UniqueId id = new_id();
    each_rank([&](Rank& rank) {
      Config config;
      void* comm = nullptr;
      wrong += ncclCommInitRankConfig(&comm, kRanks, id, rank.rank, &config) != kInProgress;
      wrong += poll(comm) != kSuccess;
      wrong += rank.reduce(comm, 0) != kInProgress;
      wrong += rank.reduce(comm, 0) != kInvalidUsage;
      int error = kInProgress;
      // Most of them at another moment of the exchanges.
      for (int i = 0; i < 4 * turn * turn * (1 + rank.rank) && error == kInProgress; ++i) {
        wrong += ncclCommGetAsyncError(comm, &error) != kSuccess;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      wrong += ncclCommAbort(comm) != kSuccess;
      rank.synchronize();
    });
    std::filesystem::remove_all(id.bytes);  // with the messages that were not taken
  }
  CHECK(wrong == 0);
}

TEST_CASE("another thread aborts while a group has calls") {
  const Programs programs;
  const UniqueId id = new_id();
  std::atomic<int> wrong{0};
  each_rank([&](Rank& rank) {
    void* comm = nullptr;
    wrong += ncclCommInitRank(&comm, kRanks, id, rank.rank) != kSuccess;
    wrong += rank.reduce(comm, 0) != kSuccess;
    rank.synchronize();
    wrong += ncclGroupStart() != kSuccess;
    wrong += rank.reduce(comm, 0) != kSuccess;
    wrong += rank.broadcast(comm, 1) != kSuccess;
    std::thread([&] { wrong += ncclCommAbort(comm) != kSuccess; }).join();
    wrong += ncclGroupEnd() != kInvalidUsage;
    rank.synchronize();
  });
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace gc3::nccl
