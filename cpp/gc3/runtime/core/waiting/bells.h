// A rank of a group sleeps until another rank has posted something for it, and the other rank wakes it.
//
// A sleeping rank leaves its core to a rank that has work, even if other programs want the core; sched_yield gives it
// to the next in the queue. As long as no rank has ever slept, a post costs only the load of a word that is never
// written.
//
// No wake-up is lost. Two orders of a store and a load matter, both between a poster P and a sleeper S:
// - P posts, and then checks whether S sleeps. S announces that it sleeps, and then checks again for the post. A
//   sequentially consistent fence between the two steps on both sides guarantees that at least one sees the other.
// - P checks for sleepers only after it has seen that some rank wants to be woken. P then sets `rings`; before that, S
//   sleeps only for a bounded time. P sets it with release order after its earlier posts, and S reads it with acquire
//   order before its second check. So S sees all earlier posts, and after each later post P checks whether S sleeps.
// A ring means that something was posted, but not that it is what the sleeper awaits. A woken rank checks, and sleeps
// again until the ranks ring from which something is missing.
//
// A process that is killed while it posts may not wake the sleepers. So all sleeps end after some time, and the sleeper
// checks whether the other ranks live.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gc3::core {

class Bells {
 public:
  static std::size_t bytes(std::uint32_t ranks) { return sizeof(Word) * (std::size_t{ranks} + 1); }

  // `memory` is shared by the ranks, initially zero, and aligned to a cache line.
  void open(std::uint8_t* memory, std::uint32_t rank, std::uint32_t ranks) {
    words_ = reinterpret_cast<Word*>(memory);
    rank_ = rank;
    ranks_ = ranks;
  }

  // The ranks that a sleeper awaits: rank r is bit r modulo 30. The sleeper is woken when all of them have rung or,
  // with kAny, when one of them has. It can wait for all if it has nothing to post before it has received from all.
  // With kRoom it awaits, of one of them at least, that it takes messages.
  static constexpr std::uint32_t kAny = std::uint32_t{1} << 31U;
  static constexpr std::uint32_t kRoom = std::uint32_t{1} << 30U;
  static constexpr std::uint32_t kAnybody = ~std::uint32_t{0};
  static std::uint32_t bit(std::uint32_t rank) { return std::uint32_t{1} << rank % 30U; }

  // After posts: wakes the ranks that sleep and await this one. Relaxed: see above.
  void ring(std::uint32_t mark = 0) {
    if (std::atomic_ref(words_[ranks_].value).load(std::memory_order_relaxed) != 0) wake_sleepers(mark, false);
  }
  // After this rank has only taken messages: those of them that await room for others.
  void ring_for_room() { ring(kRoom); }
  // Wakes all sleeping ranks.
  void ring_all() { wake_sleepers(0, true); }

  // The order of calls: prepare(); check again; then cancel() or sleep(), after which this rank is prepared again, and
  // so on. What sleep() awaits is what the check has found missing.
  void prepare(std::uint32_t awaited);
  // False if the time is over. `rings`: rings first, for ranks that await what this one has posted since it rang.
  bool sleep(std::uint32_t awaited, std::chrono::nanoseconds at_most, bool rings = true);
  void cancel() { std::atomic_ref(words_[rank_].value).store(0, std::memory_order_relaxed); }
  // Whether all awaited ranks had set `rings` before prepare(). If not, only a short sleep is safe.
  bool is_sure() const { return sure_; }

 private:
  // The state of a rank: the ranks that it awaits while it sleeps, which is the word of the futex, and whether it
  // rings. One more word follows those of the ranks; it is not 0 once some rank has wanted to sleep.
  struct alignas(128) Word {
    std::uint32_t value;
    std::uint32_t rings;
  };

  // From now on this rank checks after each post whether a rank sleeps, and sleepers can see its posts so far.
  void start_to_ring();
  // Those that await this rank, and have the mark if there is one; or all.
  void wake_sleepers(std::uint32_t mark, bool all);

  static constexpr std::uint32_t kRanks = kRoom - 1;

  Word* words_ = nullptr;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 0;
  std::uint32_t prepared_ = 0;  // what was awaited in the last prepare()
  bool sure_ = false;
};

}  // namespace gc3::core
