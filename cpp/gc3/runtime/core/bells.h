// How a rank of a group sleeps until another rank has posted something for it, and how that rank wakes it.
//
// A rank that sleeps gives its core to the rank that has work, whatever else wants the core; sched_yield gives it to
// whoever is next. While no rank has ever slept, posting costs the load of a word that nobody writes.
//
// No wake-up is lost. Two orders of a store and a load matter, both between a poster P and a sleeper S:
// - P posts, then looks whether S sleeps; S says that it sleeps, then looks once more for the post. A sequentially
//   consistent fence between the two steps on both sides guarantees that at least one of them sees the other.
// - P does that only after it has seen that somebody wants to be woken. Until P has said so (`rings`), S sleeps for a
//   bounded time only. P says so with release order after its earlier posts, S reads it with acquire order before it
//   looks once more: then S sees every post that came before, and every later post is followed by a look at S.
// A ring says that something was posted, not that it was what the sleeper awaits. Whoever is woken looks, and sleeps
// again until those ring from whom something is missing.
//
// A process that is killed while it posts may wake nobody, so all sleeps end after some time, and the sleeper checks
// its peers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gc3::core {

class Bells {
 public:
  static std::size_t bytes(std::uint32_t ranks) { return sizeof(Word) * (std::size_t{ranks} + 1); }

  // `memory`: zeroed at first and shared by the ranks, aligned to a cache line.
  void open(std::uint8_t* memory, std::uint32_t rank, std::uint32_t ranks) {
    words_ = reinterpret_cast<Word*>(memory);
    rank_ = rank;
    ranks_ = ranks;
  }

  // The ranks that a sleeper awaits: rank r is bit r modulo 31. It is woken when all of them have rung, or, with kAny,
  // one of them. To wait for all is right where a part of what is awaited does not let this rank post anything.
  static constexpr std::uint32_t kAny = std::uint32_t{1} << 31U;
  static constexpr std::uint32_t kAnybody = ~std::uint32_t{0};
  static std::uint32_t bit(std::uint32_t rank) { return std::uint32_t{1} << rank % 31U; }

  // After posts: wakes the ranks that sleep and await this one. Relaxed: see above.
  void ring() {
    if (std::atomic_ref(words_[ranks_].value).load(std::memory_order_relaxed) != 0) wake_sleepers(false);
  }
  // The same for news that concern all.
  void ring_all() { wake_sleepers(true); }

  // prepare(); look once more; then either cancel() or sleep(), after which this rank is prepared again.
  void prepare(std::uint32_t awaited);
  // False: the time was over.
  bool sleep(std::uint32_t awaited, std::chrono::nanoseconds at_most);
  void cancel() { std::atomic_ref(words_[rank_].value).store(0, std::memory_order_relaxed); }
  // Whether all awaited ranks have said, before prepare(), that they ring: else only a short sleep is safe.
  bool is_sure() const { return sure_; }

 private:
  // Of a rank: the ranks that it awaits while it sleeps, the word of the futex; and whether it rings. The last one: not
  // 0 once some rank has wanted to sleep.
  struct alignas(128) Word {
    std::uint32_t value;
    std::uint32_t rings;
  };

  void wake_sleepers(bool all);

  Word* words_ = nullptr;
  std::uint32_t rank_ = 0;
  std::uint32_t ranks_ = 0;
  bool sure_ = false;
};

}  // namespace gc3::core
