// The work of a threadblock of a one-sided program in one launch. Its steps are those of ir/direct/program.h.
//
// The threads themselves execute asynchronous moves, between two barriers: a schedule that a proxy may choose, too.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/elements.h"
#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/wait_limit.h"

namespace gc3::cuda {

template <class Platform, class Element>
class OneSidedBlock {
 public:
  using Stored = typename Element::Stored;

  // `call`: from 1 on.
  GC3_HOST_DEVICE OneSidedBlock(Platform& platform, const OneSidedLaunch& launch, uint64_t call)
      : platform_(platform), launch_(launch), call_(call) {}

  // False, on all threads alike: the launch was stopped.
  GC3_HOST_DEVICE bool execute(const OneSidedStep& step) {
    switch (static_cast<OneSidedOp>(step.op)) {
      case OneSidedOp::move:
        return move(step);
      case OneSidedOp::signal:
        each_object(step, [&](uint32_t k) { return give(2 * k); });
        return true;
      case OneSidedOp::release:
        each_object(step, [&](uint32_t k) { return give(launch_.semaphores_at + k); });
        return true;
      case OneSidedOp::wait:
        return !platform_.sync_or(!each_object(step, [&](uint32_t k) { return take_signal(k); }));
      case OneSidedOp::acquire:
        return !platform_.sync_or(!each_object(step, [&](uint32_t k) { return take_token(k); }));
      case OneSidedOp::barrier:
        return meet(launch_.objects[step.first]);
      case OneSidedOp::sync:
        platform_.sync();
        return true;
      case OneSidedOp::flush:
        return true;
    }
    return true;
  }

 private:
  // Thread k does it for the object k, which may return false: a wait was stopped.
  template <class Do>
  GC3_HOST_DEVICE bool each_object(const OneSidedStep& step, const Do& work) {
    bool alive = true;
    for (uint32_t k = platform_.thread(); alive && k < step.sources; k += platform_.threads()) {
      alive = work(launch_.objects[step.first + k]);
    }
    return alive;
  }
  template <class Ready>
  GC3_HOST_DEVICE bool until(const Ready& ready) {
    WaitLimit limit;
    while (!ready()) {
      if (limit.over(platform_, launch_)) return false;
    }
    return true;
  }

  GC3_HOST_DEVICE bool give(uint32_t counter) {
    platform_.add(&launch_.counters[counter]->value, 1, launch_.system != 0);
    return true;
  }
  GC3_HOST_DEVICE bool take_signal(uint32_t k) {
    const uint64_t* const signals = &launch_.counters[2 * k]->value;
    // One threadblock takes all signals of a channel, and one thread of it at a time.
    uint64_t* const waits = &launch_.counters[2 * k + 1]->value;
    const uint64_t ticket = platform_.load_word(waits) + 1;
    platform_.store_word(waits, ticket);
    return until([&] { return platform_.load_acquire(signals, launch_.system != 0) >= ticket; });
  }
  GC3_HOST_DEVICE bool take_token(uint32_t k) {
    uint64_t* const released = &launch_.counters[launch_.semaphores_at + k]->value;
    const uint64_t initial = launch_.initial[k];
    return until([&] {
      const uint64_t now = platform_.load_acquire(released, launch_.system != 0);
      // `released` is below zero by what was taken of the initial ones.
      if (static_cast<int64_t>(now + initial) <= 0) return false;
      return platform_.exchange(released, now, now - 1, launch_.system != 0);
    });
  }
  GC3_HOST_DEVICE bool meet(uint32_t k) {
    platform_.sync();
    bool alive = true;
    if (platform_.thread() == 0) {
      uint64_t* const arrivals = &launch_.counters[launch_.barriers_at + k]->value;
      const uint64_t all = launch_.parties[k];
      const uint64_t met = (platform_.add(arrivals, 1, launch_.system != 0) / all + 1) * all;
      alive = until([&] { return platform_.load_acquire(arrivals, launch_.system != 0) >= met; });
    }
    return !platform_.sync_or(!alive);
  }

  GC3_HOST_DEVICE bool move(const OneSidedStep& step) {
    // Whether its chunks are one piece.
    const bool whole = step.packets == 0 && (step.scratch == 0 || launch_.stride == launch_.chunk_bytes);
    const uint32_t at_once = whole ? step.count : 1;
    for (uint32_t chunk = 0; chunk < step.count; chunk += at_once) {
      platform_.sync();  // all have used the addresses of the chunk before; and see asynchronous moves
      for (uint32_t i = platform_.thread(); i < kStagedSteps && i < step.sources + step.targets;
           i += platform_.threads()) {
        platform_.shared().located[i].src = address(launch_.places[step.first + i], chunk);
      }
      chunk_ = chunk;
      platform_.sync();
      if (step.packets == 0) {
        // The same memory has two addresses: accesses by the one are ordered with those by the other.
        if (step.switched != 0) platform_.fence_aliases();
        plain(step, at_once * launch_.chunk_bytes);
        if (step.switched != 0) platform_.fence_aliases();
      } else if (platform_.sync_or(!packets(step))) {
        return false;
      }
    }
    if (step.through != 0) platform_.sync();
    return true;
  }

  GC3_HOST_DEVICE uint8_t* address(const OneSidedPlace& place, uint32_t chunk) const {
    return address(launch_.buffers[place.rank], place, chunk);
  }
  GC3_HOST_DEVICE uint8_t* address(const Buffers& rank, const OneSidedPlace& place, uint32_t chunk) const {
    const uint64_t at = place.chunk + chunk;
    if (place.buffer == 0) return rank.input + at * launch_.chunk_bytes;
    if (place.buffer == 1) return rank.output + at * launch_.chunk_bytes;
    const uint64_t half = call_ % launch_.halves * launch_.scratch_chunks[place.rank];
    return rank.scratch + (half + (place.packet != 0 ? 2 * at : at)) * launch_.stride;
  }
  GC3_HOST_DEVICE uint8_t* at(const OneSidedStep& step, uint32_t i) const {
    if (i < kStagedSteps) return platform_.shared().located[i].src;
    return address(launch_.places[step.first + i], chunk_);
  }
  // The place of the i-th operand and those after it, if they are the same of all ranks and there is a switch.
  GC3_HOST_DEVICE uint8_t* through_switch(const OneSidedStep& step, uint32_t kind, uint32_t i) const {
    if ((step.switched & kind) == 0 || launch_.has_switch == 0) return nullptr;
    return address(launch_.switched, launch_.places[step.first + i], chunk_);
  }
  GC3_HOST_DEVICE Vec folded(const Vec& a, const Vec& b) const {
    return fold_vec<Element>(static_cast<Fold>(launch_.fold), a, b);
  }

  GC3_HOST_DEVICE void plain(const OneSidedStep& step, uint64_t bytes) {
    const uint32_t operands = step.sources + step.targets;
    uintptr_t bits = 0;
    for (uint32_t i = 0; i < operands; ++i) bits |= reinterpret_cast<uintptr_t>(at(step, i));
    const uint64_t whole = bits % kVec == 0 ? bytes / kVec : 0;
    constexpr uint32_t kAtOnce = 2;  // loads of a thread under way
    const uint64_t threads = platform_.threads();
    const uint8_t* sums = nullptr;
    uint8_t* copies = nullptr;
    if constexpr (Platform::kHasSwitch) {
      const bool adds = kSums && static_cast<Fold>(launch_.fold) == Fold::sum;
      if (adds) sums = through_switch(step, kSwitchLoads, 0);
      copies = through_switch(step, kSwitchStores, step.sources);
    }
    for (uint64_t v = platform_.thread(); v < whole; v += kAtOnce * threads) {
      Vec sum[kAtOnce];
      if constexpr (kSums) {
        GC3_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          if (sums == nullptr || v + k * threads >= whole) continue;
          sum[k] = platform_.template load_sum<Element>(sums + (v + k * threads) * kVec);
        }
      }
      for (uint32_t i = 0; sums == nullptr && i < step.sources; ++i) {
        const uint8_t* const from = at(step, i);
        Vec next[kAtOnce];
        GC3_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          if (v + k * threads < whole) next[k] = platform_.load(from + (v + k * threads) * kVec);
        }
        GC3_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) sum[k] = i == 0 ? next[k] : folded(sum[k], next[k]);
      }
      if constexpr (Platform::kHasSwitch) {
        GC3_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          if (copies == nullptr || v + k * threads >= whole) continue;
          platform_.store_all(copies + (v + k * threads) * kVec, sum[k]);
        }
      }
      for (uint32_t i = step.sources; copies == nullptr && i < operands; ++i) {
        uint8_t* const to = at(step, i);
        GC3_UNROLL
        for (uint32_t k = 0; k < kAtOnce; ++k) {
          if (v + k * threads < whole) platform_.store(to + (v + k * threads) * kVec, sum[k]);
        }
      }
    }
    for (uint64_t v = whole + platform_.thread(); v * kVec < bytes; v += threads) {
      const uint64_t live = bytes - v * kVec;
      Vec sum;
      for (uint32_t i = 0; i < step.sources; ++i) {
        const Vec next = load_some(at(step, i) + v * kVec, live);
        sum = i == 0 ? next : folded(sum, next);
      }
      for (uint32_t i = step.sources; i < operands; ++i) store_some(at(step, i) + v * kVec, sum, live);
    }
  }

  // A vector of a packet has two lines, as those of LL in lines.h. False: a wait was stopped.
  GC3_HOST_DEVICE bool packets(const OneSidedStep& step) {
    constexpr uint64_t kFlags = 0xffffffffU;  // 0 is that of empty scratch
    const uint64_t flag = (call_ - 1) % kFlags + 1;
    const OneSidedPlace* const places = launch_.places + step.first;
    for (uint64_t v = platform_.thread(); v * kVec < launch_.chunk_bytes; v += platform_.threads()) {
      const uint64_t live = launch_.chunk_bytes - v * kVec;
      Vec sum;
      for (uint32_t i = 0; i < step.sources; ++i) {
        Vec next;
        if (places[i].packet == 0) {
          next = load_any(at(step, i) + v * kVec, live);
        } else if (!until([&] { return take(at(step, i) + 2 * v * kVec, flag, next); })) {
          return false;
        }
        sum = i == 0 ? next : folded(sum, next);
      }
      for (uint32_t i = step.sources; i < step.sources + step.targets; ++i) {
        if (places[i].packet == 0) {
          store_any(at(step, i) + v * kVec, sum, live);
          continue;
        }
        uint8_t* const to = at(step, i) + 2 * v * kVec;
        const uint64_t mark = flag << 32U;
        platform_.store_line(to, {(sum.low & 0xffffffffU) | mark, sum.low >> 32U | mark});
        platform_.store_line(to + kVec, {(sum.high & 0xffffffffU) | mark, sum.high >> 32U | mark});
      }
    }
    return true;
  }
  GC3_HOST_DEVICE bool take(const uint8_t* from, uint64_t flag, Vec& data) const {
    const Vec first = platform_.load_line(from);
    const Vec second = platform_.load_line(from + kVec);
    data = {(first.low & 0xffffffffU) | first.high << 32U, (second.low & 0xffffffffU) | second.high << 32U};
    return first.low >> 32U == flag && first.high >> 32U == flag && second.low >> 32U == flag &&
           second.high >> 32U == flag;
  }

  // The first `live` bytes of a vector, at once where that can be.
  GC3_HOST_DEVICE static bool is_vector(const uint8_t* at, uint64_t live) {
    return live >= kVec && reinterpret_cast<uintptr_t>(at) % kVec == 0;
  }
  GC3_HOST_DEVICE Vec load_any(const uint8_t* from, uint64_t live) const {
    return is_vector(from, live) ? platform_.load(from) : load_some(from, live);
  }
  GC3_HOST_DEVICE void store_any(uint8_t* to, const Vec& v, uint64_t live) const {
    if (is_vector(to, live)) {
      platform_.store(to, v);
    } else {
      store_some(to, v, live);
    }
  }
  // Element by element.
  static constexpr uint32_t kElems = kVec / sizeof(Stored);
  GC3_HOST_DEVICE static Vec load_some(const uint8_t* from, uint64_t live) {
    Stored x[kElems];
    GC3_UNROLL
    for (uint32_t i = 0; i < kElems; ++i) {
      x[i] = (i + 1) * sizeof(Stored) <= live ? Platform::template load_element<Stored>(from + i * sizeof(Stored))
                                              : Stored{};
    }
    Vec v;
    memcpy(&v, x, sizeof v);
    return v;
  }
  GC3_HOST_DEVICE static void store_some(uint8_t* to, const Vec& v, uint64_t live) {
    Stored x[kElems];
    memcpy(x, &v, sizeof v);
    GC3_UNROLL
    for (uint32_t i = 0; i < kElems; ++i) {
      if ((i + 1) * sizeof(Stored) <= live) Platform::store_element(to + i * sizeof(Stored), x[i]);
    }
  }

  static constexpr bool kSums = Platform::kHasSwitch && Element::kSwitchSum != SwitchSum::none;
  Platform& platform_;
  const OneSidedLaunch& launch_;
  uint64_t call_;
  uint32_t chunk_ = 0;  // of a move's
};

// Ranks in different processes cannot compare their calls before they launch them. Each tells all others at the
// beginning of a call which one it makes, and looks at the end at what they have told: by then they have begun it, and
// not the one after the next, which would need a word of this rank's next one.
template <class Platform>
GC3_HOST_DEVICE void tell_call(Platform& platform, const OneSidedLaunch& launch, uint64_t call) {
  for (uint32_t k = platform.thread(); k < launch.peer_count; k += platform.threads()) {
    platform.store_word(launch.peers[k].tells + call % 2, call << kTagBits | launch.tag);
  }
}
// False: a rank makes another call, or the wait was stopped.
template <class Platform>
GC3_HOST_DEVICE bool same_call(Platform& platform, const OneSidedLaunch& launch, uint64_t call) {
  for (uint32_t k = platform.thread(); k < launch.peer_count; k += platform.threads()) {
    WaitLimit limit;
    const uint64_t* const told = launch.peers[k].told + call % 2;
    while (((platform.load_word(told) ^ call << kTagBits) >> kTagBits) != 0) {
      if (limit.over(platform, launch)) return false;
    }
    if (platform.load_word(told) == (call << kTagBits | launch.tag)) continue;
    platform.store_stop(&launch.control->stop, static_cast<uint32_t>(Stop::differs));
    return false;
  }
  return true;
}

// Executes threadblock `index` of the launch. All threads of the block call it.
template <class Element, class Platform>
GC3_HOST_DEVICE void run_one_sided(Platform& platform, const OneSidedLaunch& launch, uint32_t index) {
  const bool halted = platform.thread() == 0 && platform.load_stop(&launch.halt->halted) != 0;
  if (platform.sync_or(halted)) return;  // its counters would be those of the launch that failed
  const OneSidedThreadblock tb = launch.threadblocks[index];
  const uint64_t call = launch.calls[index] + 1;
  if (index == 0) tell_call(platform, launch, call);
  OneSidedBlock<Platform, Element> block(platform, launch, call);
  uint32_t s = 0;
  for (; s < tb.step_count; ++s) {
    const OneSidedStep step = launch.steps[tb.first_step + s];
    if (!block.execute(step)) break;
  }
  const bool differs = s == tb.step_count && index == 0 && !same_call(platform, launch, call);
  if (platform.sync_or(differs) || s != tb.step_count) {
    if (platform.thread() == 0) {
      platform.store_stop(&launch.halt->halted, 1);
      // For the host, which may have enqueued other calls since: which one it was.
      launch.stands[tb.stand] = {call, s, static_cast<uint32_t>(launch.tag), static_cast<uint32_t>(launch.tag >> 32U),
                                 1};
    }
    return;
  }
  if (platform.thread() == 0) launch.calls[index] = call;
}

}  // namespace gc3::cuda
