// The interpreter on blocks of several threads that spin, as on a device. It is the same code that the CPU engine runs
// on blocks of one thread that never spin. All data is int32, all reductions are sums.
#include "gc3/runtime/interp/interpreter.h"

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "gc3/runtime/interp/plan.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::interp {
namespace {

constexpr std::uint64_t kThreads = 3;
constexpr std::uint32_t kSlots = 2;
constexpr std::uint64_t kSlotBytes = 512;

class GangBlock {
 public:
  static constexpr std::uint64_t kSimplePiece = 16;
  static constexpr std::uint64_t kLLPiece = 8;
  static constexpr std::uint64_t kLL128Piece = 120;
  template <class Protocol>
  static constexpr std::size_t stage_bytes() {
    return 120;
  }

  GangBlock(std::uint64_t thread, std::barrier<>& barrier) : thread_(thread), barrier_(barrier) {}
  std::uint64_t thread() const { return thread_; }
  static std::uint64_t threads() { return kThreads; }
  void sync() { barrier_.arrive_and_wait(); }

  static std::uint64_t await(const Counter* counter, std::uint64_t value) {
    std::uint64_t seen = 0;
    while ((seen = atomic(counter->value).load(std::memory_order_acquire)) < value) std::this_thread::yield();
    return seen;
  }
  void post(Counter* counter, std::uint64_t value) const {
    if (thread_ == 0) atomic(counter->value).store(value, std::memory_order_release);
  }
  static std::uint64_t load_word(const std::uint64_t* word) { return atomic(*word).load(std::memory_order_relaxed); }
  static void store_word(std::uint64_t* word, std::uint64_t value) {
    atomic(*word).store(value, std::memory_order_relaxed);
  }
  static bool await_line(const std::uint64_t* line, std::uint64_t flag, std::uint64_t* low, std::uint64_t* high) {
    while ((*low = load_word(line)) >> 32U != flag) std::this_thread::yield();
    while ((*high = load_word(line + 1)) >> 32U != flag) std::this_thread::yield();
    return true;
  }
  static bool await_flag(const std::uint64_t* flag, std::uint64_t value) {
    while (atomic(*flag).load(std::memory_order_acquire) != value) std::this_thread::yield();
    return true;
  }
  static void store_flag(std::uint64_t* flag, std::uint64_t value) {
    atomic(*flag).store(value, std::memory_order_release);
  }
  static std::uint64_t get_word(const std::uint8_t* from) {
    std::uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  static void put_word(std::uint8_t* to, std::uint64_t word) { std::memcpy(to, &word, sizeof word); }
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
  static void move(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes) { copy(to, from, bytes); }
  static void zero(std::uint8_t* to, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i) to[i] = 0;
  }
  static void copy2(std::uint8_t* to, std::uint8_t* to2, const std::uint8_t* from, std::uint64_t bytes) {
    copy(to, from, bytes);
    copy(to2, from, bytes);
  }
  static void reduce(std::uint8_t* to, const std::uint8_t* a, const std::uint8_t* b, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; i += 4) {
      std::int32_t x;
      std::int32_t y;
      std::memcpy(&x, a + i, 4);
      std::memcpy(&y, b + i, 4);
      x += y;
      std::memcpy(to + i, &x, 4);
    }
  }
  static void reduce2(std::uint8_t* to, std::uint8_t* to2, const std::uint8_t* a, const std::uint8_t* b,
                      std::uint64_t bytes) {
    reduce(to, a, b, bytes);
    copy(to2, to, bytes);
  }

 private:
  static std::atomic_ref<std::uint64_t> atomic(const std::uint64_t& word) {
    return std::atomic_ref(const_cast<std::uint64_t&>(word));
  }

  std::uint64_t thread_;
  std::barrier<>& barrier_;
};

// A plan with its memory, as an engine would set it up.
class Gang {
 public:
  Gang(const ir::Program& program, std::uint64_t count) : plan_(Plan::create(program).value()) {
    const std::uint64_t line = plan_.protocol == model::Protocol::LL ? 2 : 1;
    const Tiling t = plan_.tiling(count, 4, plan_.protocol == model::Protocol::LL128 ? 480 : kSlotBytes / line);
    run_.chunk_elems = t.chunk_elems;
    run_.tile_elems = t.tile_elems;
    run_.tiles = t.tiles;
    run_.slot_stride = run_.slot_bytes = kSlotBytes;
    run_.slots = kSlots;
    run_.elem_bytes = 4;
    const std::uint32_t chunks = plan_.collective.chunks();
    run_.regular = count % chunks == 0 ? 1 : 0;
    const std::size_t ranks = plan_.ranks.size();
    regions_.resize(3 * ranks);
    buffers_.resize(3 * ranks);
    semaphores_.resize(plan_.threadblocks.size());
    heads_.resize(plan_.connections.size());
    arrivals_.resize(plan_.connections.size() * kSlots);
    fifos_.resize(plan_.connections.size() * kSlots * kSlotBytes / 8);
    tasks_.resize(plan_.threadblocks.size());
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const PlanRank& rank = plan_.ranks[r];
      buffers_[3 * r].resize(rank.input_blocks * count);
      buffers_[3 * r + 1].resize(rank.output_blocks * count);
      buffers_[3 * r + 2].resize(rank.scratch_chunks * t.chunk_elems);
      for (std::size_t i = 0; i < buffers_[3 * r].size(); ++i) buffers_[3 * r][i] = input(r, i);
      for (std::size_t b = 0; b < 3; ++b) {
        auto* base = reinterpret_cast<std::uint8_t*>(buffers_[3 * r + b].data());
        regions_[3 * r + b] = {base, count, chunks, b == 2 ? 1 : run_.regular};
      }
    }
    for (std::uint32_t i = 0; i < tasks_.size(); ++i) {
      const std::uint32_t rank = plan_.threadblocks[i].rank;
      tasks_[i] = plan_.task(i, &regions_[3 * rank], &semaphores_[plan_.ranks[rank].first_tb]);
    }
    for (std::size_t c = 0; c < plan_.connections.size(); ++c) {
      auto* slots = reinterpret_cast<std::uint8_t*>(&fifos_[c * kSlots * kSlotBytes / 8]);
      tasks_[plan_.connections[c].sender_tb].send = {&arrivals_[c * kSlots], &heads_[c], slots, 0, 0, 0};
      tasks_[plan_.connections[c].receiver_tb].recv = {&arrivals_[c * kSlots], &heads_[c], slots, 0, 0};
    }
  }

  template <class Protocol>
  void run() {
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<std::barrier<>>> barriers;
    for (const Task& task : tasks_) {
      barriers.push_back(std::make_unique<std::barrier<>>(static_cast<std::ptrdiff_t>(kThreads)));
      for (std::uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([this, t, own = task, barrier = barriers.back().get()]() mutable {
          GangBlock block(t, *barrier);
          while (advance<Protocol>(block, run_, own, 7) != Outcome::finished) {
          }
        });
      }
    }
    for (std::thread& t : threads) t.join();
  }

  static std::int32_t input(std::uint32_t rank, std::size_t i) {
    return static_cast<std::int32_t>(1000 * rank + i * 7 % 1000);
  }

  // Output elements that differ from the postcondition.
  std::size_t wrong(std::uint64_t count) const {
    std::size_t bad = 0;
    const std::uint32_t chunks = plan_.collective.chunks();
    for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
      for (std::size_t i = 0; i < buffers_[3 * r + 1].size(); ++i) {
        const auto chunk = static_cast<std::uint32_t>(i / count * chunks + i % count / run_.chunk_elems);
        std::int32_t sum = 0;
        for (const model::InputChunk& t : plan_.collective.expected_terms(r, chunk)) {
          sum += input(t.rank, t.index / chunks * count + i % count);
        }
        if (buffers_[3 * r + 1][i] != sum) ++bad;
      }
    }
    return bad;
  }

 private:
  Plan plan_;
  Run run_;
  std::vector<Region> regions_;
  std::vector<std::vector<std::int32_t>> buffers_;
  std::vector<Counter> semaphores_, heads_;
  std::vector<std::uint64_t> arrivals_;  // per connection and slot
  std::vector<std::uint64_t> fifos_;
  std::vector<Task> tasks_;
};

template <class Protocol>
void check(model::Protocol protocol) {
  for (const std::uint64_t count : {1U, 50U, 999U, 1000U}) {
    for (const ir::Program& program :
         {testing::ring_allreduce(3, false, protocol), testing::allpairs_allreduce(3, false, protocol),
          testing::direct_alltoall(2, 5, protocol)}) {
      CAPTURE(count);
      Gang gang(program, count);
      gang.template run<Protocol>();
      CHECK(gang.wrong(count) == 0);
    }
  }
}

TEST_CASE("blocks of several spinning threads compute the same: Simple") { check<Simple>(model::Protocol::Simple); }
TEST_CASE("blocks of several spinning threads compute the same: LL") { check<LL>(model::Protocol::LL); }
TEST_CASE("blocks of several spinning threads compute the same: LL128") { check<LL128>(model::Protocol::LL128); }

}  // namespace
}  // namespace gc3::interp
