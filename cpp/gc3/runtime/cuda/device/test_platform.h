// The functions of cuda_platform.h on a host, for tests. A host thread is a warp; its lanes take turns at each
// statement that the device code wraps in `each`. A block is one or more of such threads. Memory is accessed by
// std::atomic_ref.
//
// A race that ThreadSanitizer finds here is a race of the device code. Three things cannot be tested on a host. Lines
// are ordered by acquire and release here, while a device relies on accesses that move as one. Credits are released
// here, while a device relies on having used the data that it has read. The fences of ordering.h are not needed here.
// ../test_weak_platform.h tests the first and the last.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/runtime/cuda/device/elements.h"
#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/vec.h"

namespace gc3::cuda {

// A switch: addresses that stand for the same place of several ranks. Nothing is there.
class HostSwitch {
 public:
  static HostSwitch& get() {
    static HostSwitch one;
    return one;
  }
  void add(std::uint64_t base, std::size_t bytes, std::vector<std::uint64_t> parts) {
    const std::lock_guard lock(mutex_);
    parts_[base] = {bytes, std::move(parts)};
  }
  template <class Visit>
  void each(const std::uint8_t* at, const Visit& visit) {
    const std::lock_guard lock(mutex_);
    const auto wanted = reinterpret_cast<std::uint64_t>(at);
    const auto& [base, part] = *std::prev(parts_.upper_bound(wanted));
    if (wanted + kVec > base + part.first) std::abort();
    for (const std::uint64_t to : part.second) visit(reinterpret_cast<std::uint8_t*>(to + (wanted - base)));
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::pair<std::size_t, std::vector<std::uint64_t>>> parts_;
};

// The state that the warps of a block share.
struct HostBlock {
  explicit HostBlock(std::uint32_t warp_count) : warps(warp_count), barrier(warp_count) {}
  std::uint32_t warps;
  std::barrier<> barrier;
  std::atomic<std::uint32_t> votes[2] = {0, 0};
  Shared shared{};
};

class HostPlatform {
 public:
  static constexpr std::uint32_t kLanes = 32;
  template <class T>
  struct PerLane {
    T values[kLanes]{};
    T& operator[](std::uint32_t lane) { return values[lane]; }
    const T& operator[](std::uint32_t lane) const { return values[lane]; }
  };

  HostPlatform(HostBlock& block, std::uint32_t warp) : block_(block), warp_(warp) {}

  std::uint32_t thread() const { return warp_; }
  std::uint32_t threads() const { return block_.warps; }
  std::uint32_t warp() const { return warp_; }
  std::uint32_t warps() const { return block_.warps; }
  Shared& shared() { return block_.shared; }

  void sync() { block_.barrier.arrive_and_wait(); }
  bool sync_or(bool mine) {
    std::atomic<std::uint32_t>& votes = block_.votes[turn_];
    turn_ ^= 1U;
    if (mine) votes.fetch_add(1, std::memory_order_relaxed);
    sync();
    const bool any = votes.load(std::memory_order_relaxed) != 0;
    sync();
    votes.store(0, std::memory_order_relaxed);
    return any;
  }
  template <class F>
  static void each(F f) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) f(lane);
  }
  static bool all(const PerLane<bool>& mine) {
    bool every = true;
    for (const bool one : mine.values) every = every && one;
    return every;
  }
  static bool first(bool mine) { return mine; }
  static void converge() {}
  static bool leads() { return true; }

  static std::uint64_t load_acquire(const std::uint64_t* at, bool) {
    return atomic(*at).load(std::memory_order_acquire);
  }
  static void store_release(std::uint64_t* at, std::uint64_t value, bool) {
    atomic(*at).store(value, std::memory_order_release);
  }
  static std::uint64_t add(std::uint64_t* at, std::uint64_t value, bool) {
    return atomic(*at).fetch_add(value, std::memory_order_acq_rel);
  }
  static bool exchange(std::uint64_t* at, std::uint64_t expected, std::uint64_t value, bool) {
    return atomic(*at).compare_exchange_strong(expected, value, std::memory_order_acquire);
  }
  static void store_read(std::uint64_t* at, std::uint64_t value, bool system) { store_release(at, value, system); }
  static void fence(bool) {}

  // The flags are last in a line. They are loaded first and stored last, so they order the rest.
  static Vec load_line(const std::uint8_t* at) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(at);
    Vec v;
    v.high = atomic(words[1]).load(std::memory_order_acquire);
    v.low = atomic(words[0]).load(std::memory_order_acquire);
    return v;
  }
  static void store_line(std::uint8_t* at, const Vec& v) {
    auto* words = reinterpret_cast<std::uint64_t*>(at);
    atomic(words[0]).store(v.low, std::memory_order_release);
    atomic(words[1]).store(v.high, std::memory_order_release);
  }
  static std::uint64_t load_word(const std::uint64_t* at) { return atomic(*at).load(std::memory_order_relaxed); }
  static void store_word(std::uint64_t* at, std::uint64_t value) {
    atomic(*at).store(value, std::memory_order_relaxed);
  }

  static Vec load(const std::uint8_t* at) {
    Vec v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
  static void store(std::uint8_t* at, const Vec& v) { std::memcpy(at, &v, sizeof v); }
  template <class T>
  static T load_element(const std::uint8_t* at) {
    return *reinterpret_cast<const T*>(at);
  }
  template <class T>
  static void store_element(std::uint8_t* at, T x) {
    *reinterpret_cast<T*>(at) = x;
  }

  static constexpr bool kHasSwitch = true;
  static void fence_aliases() {}
  template <class Element>
  static Vec load_sum(const std::uint8_t* at) {
    Vec sum;
    HostSwitch::get().each(at, [&](const std::uint8_t* from) {
      sum = fold_vec<Element, Fold::sum>(sum, load(from));  // begins with zeros
    });
    return sum;
  }
  static void store_all(std::uint8_t* at, const Vec& v) {
    HostSwitch::get().each(at, [&](std::uint8_t* to) { store(to, v); });
  }

  static std::uint32_t load_stop(const std::uint32_t* at) {
    return std::atomic_ref(const_cast<std::uint32_t&>(*at)).load(std::memory_order_relaxed);
  }
  static void store_stop(std::uint32_t* at, std::uint32_t value) {
    std::atomic_ref(*at).store(value, std::memory_order_relaxed);
  }
  static std::uint64_t nanoseconds() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  static void relax() { std::this_thread::yield(); }

 private:
  static std::atomic_ref<std::uint64_t> atomic(const std::uint64_t& word) {
    return std::atomic_ref(const_cast<std::uint64_t&>(word));
  }

  HostBlock& block_;
  std::uint32_t warp_;
  std::uint32_t turn_ = 0;
};

}  // namespace gc3::cuda
