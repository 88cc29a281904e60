// Kernels written by hand, each for one schedule, to measure the cost of interpretation. They have the threadblocks,
// messages, protocol and FIFOs of the programs in runtime/interp/test_programs.h, but decode no instructions and locate
// no operands. They are for kRanks ranks, sums, AllReduce in place and AllToAll out of place, and chunks of whole
// vectors.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/device_block.h"
#include "gc3/runtime/cuda/device/shared.h"

namespace gc3::cuda::hand {

inline constexpr uint32_t kRanks = 8;

enum class Schedule { ring, allpairs, alltoall };

template <class Protocol, class Element, class Platform>
class Threadblock {
 public:
  GC3_HOST_DEVICE Threadblock(Platform& platform, const Launch& launch, uint32_t index)
      : platform_(platform),
        launch_(launch),
        fixed_(launch.threadblocks[index].task),
        progress_(launch.progress[index]),
        block_(platform, launch),
        run_(launch.run) {
    run_.first_tile = progress_.tiles;
    send_ = {fixed_.send.arrivals, fixed_.send.head,    fixed_.send.slots,
             progress_.sent,       progress_.head_seen, progress_.send_slot};
    recv_ = {fixed_.recv.arrivals, fixed_.recv.head, fixed_.recv.slots, progress_.received, progress_.recv_slot};
    chunk_bytes_ = run_.chunk_elems * run_.elem_bytes;
  }

  GC3_HOST_DEVICE void execute(Schedule schedule) {
    // After a failed launch nothing may start.
    if (platform_.sync_or(platform_.thread() == 0 && platform_.load_stop(&launch_.halt->halted) != 0)) return;
    bool alive = true;
    for (uint64_t tile = 0; alive && tile < run_.tiles; ++tile) {
      const uint64_t first = tile * run_.tile_elems;
      skip_ = first * run_.elem_bytes;
      bytes_ =
          (run_.chunk_elems - first < run_.tile_elems ? run_.chunk_elems - first : run_.tile_elems) * run_.elem_bytes;
      if (schedule == Schedule::ring) alive = ring();
      if (schedule == Schedule::allpairs) alive = fixed_.tb == 0 ? sum(tile) : exchange(tile);
      if (schedule == Schedule::alltoall) alive = transfer();
    }
    if (platform_.thread() != 0) return;
    if (!alive) return platform_.store_stop(&launch_.halt->halted, 1);
    progress_ = {run_.first_tile + run_.tiles, send_.step, send_.head_seen, recv_.step, send_.slot, recv_.slot};
  }

 private:
  GC3_HOST_DEVICE uint8_t* at(uint8_t* base, uint32_t chunk) const { return base + chunk * chunk_bytes_ + skip_; }
  GC3_HOST_DEVICE uint8_t* output(uint32_t chunk) const { return at(launch_.buffers[fixed_.rank].output, chunk); }
  GC3_HOST_DEVICE uint8_t* scratch(uint32_t chunk) const { return at(launch_.buffers[fixed_.rank].scratch, chunk); }

  // Each channel of the ring has one threadblock.
  GC3_HOST_DEVICE bool ring() {
    const auto chunk = [&](uint32_t k) { return output(fixed_.tb * kRanks + (fixed_.rank + 2 * kRanks - k) % kRanks); };
    if (!message<false, true, true, false>(chunk(0), nullptr)) return false;
    for (uint32_t k = 1; k + 1 < kRanks; ++k) {
      if (!message<true, true, true, false>(chunk(k), nullptr)) return false;
    }
    if (!message<true, true, true, true>(chunk(kRanks - 1), chunk(kRanks - 1))) return false;
    for (uint32_t k = kRanks; k + 2 < 2 * kRanks; ++k) {
      if (!message<true, true, false, true>(nullptr, chunk(k))) return false;
    }
    return message<true, false, false, true>(nullptr, chunk(2 * kRanks - 2));
  }

  GC3_HOST_DEVICE bool sum(uint64_t tile) {
    const uint32_t own = fixed_.rank;
    if (!message<false, false, true, true>(output(own), scratch(own))) return false;
    for (uint32_t i = 0; i + 1 < kRanks; ++i) {
      if (!wait_for(1 + i, tile, kExchangeSteps, 2)) return false;
      if (!add(scratch(own), scratch((own + 1 + i) % kRanks))) return false;
    }
    if (!message<false, false, true, true>(scratch(own), output(own))) return false;
    publish(tile, kRanks + 1);
    return true;
  }
  GC3_HOST_DEVICE bool exchange(uint64_t tile) {
    const uint32_t own = fixed_.rank;
    const uint32_t peer = (own + fixed_.tb) % kRanks;
    if (!message<false, true, true, false>(output(peer), nullptr)) return false;
    if (!message<true, false, false, true>(nullptr, scratch(peer))) return false;
    publish(tile, 2);
    if (!wait_for(0, tile, kRanks + 1, kRanks + 1)) return false;
    return message<false, true, true, false>(output(own), nullptr) &&
           message<true, false, false, true>(nullptr, output(peer));
  }

  GC3_HOST_DEVICE bool transfer() {
    uint8_t* const input = launch_.buffers[fixed_.rank].input;
    if (fixed_.tb == 0) return message<false, false, true, true>(at(input, fixed_.rank), output(fixed_.rank));
    const uint32_t i = (fixed_.tb + 1) / 2;
    if (fixed_.tb % 2 == 1) return message<false, true, true, false>(at(input, (fixed_.rank + i) % kRanks), nullptr);
    return message<true, false, false, true>(nullptr, output((fixed_.rank + kRanks - i) % kRanks));
  }

  static constexpr uint32_t kExchangeSteps = 5;  // steps of the program's exchanging threadblock; semaphores count them

  GC3_HOST_DEVICE bool wait_for(uint32_t tb, uint64_t tile, uint32_t step_count, uint32_t steps) {
    const uint64_t value = interp::semaphore_value(run_.first_tile, tile, step_count, steps);
    return block_.await(&fixed_.semaphores[tb], value) >= value;
  }
  GC3_HOST_DEVICE void publish(uint64_t tile, uint32_t steps) {
    platform_.sync();
    const uint32_t step_count = fixed_.tb == 0 ? kRanks + 1 : kExchangeSteps;
    block_.post(&fixed_.semaphores[fixed_.tb], interp::semaphore_value(run_.first_tile, tile, step_count, steps));
  }

  using L = Lines<Protocol, kVecsPerLane<Protocol, Element>>;
  using Vecs = typename Platform::template PerLane<Vec>[L::kVecs];

  // NVRTC takes a lambda with a parameter of type auto for a function of the host.
  struct Within {
    uint32_t vecs;
    GC3_HOST_DEVICE bool operator()(uint32_t v) const { return v < vecs; }
  };

  template <bool kReceives, bool kSends, bool kReads, bool kWrites>
  GC3_HOST_DEVICE bool message(const uint8_t* src, uint8_t* dst) {
    if constexpr (kReceives) {
      if (!Protocol::input_ready(block_, run_, recv_)) return false;
    }
    if constexpr (kSends) {
      if (!credit_ready(block_, run_, send_)) return false;
    }
    const In in = {kReceives ? slot_of(run_, recv_) : nullptr, L::flag(run_, recv_.step)};
    const Out out = {kSends ? slot_of(run_, send_) : nullptr, L::flag(run_, send_.step)};
    const bool alive = each_trip([&](uint32_t base, const Within& has) {
      Vecs a{};
      if constexpr (kReceives) {
        if (!L::get(platform_, launch_, in, base, has, a)) return false;
      }
      each_vec(base, has, [&](uint32_t k, uint32_t lane, uint32_t v) {
        Vec& x = a[k][lane];
        if constexpr (kReads && kReceives) x = fold_vec<Element, Fold::sum>(x, Platform::load(src + v * kVec));
        if constexpr (kReads && !kReceives) x = Platform::load(src + v * kVec);
        if constexpr (kWrites) Platform::store(dst + v * kVec, x);
      });
      if constexpr (kSends) L::put(platform_, out, base, has, a);
      return true;
    });
    if (platform_.sync_or(!alive)) return false;
    if constexpr (kSends) Protocol::post(block_, run_, send_);
    if constexpr (kReceives) release_slot(block_, run_, recv_);
    return true;
  }

  GC3_HOST_DEVICE bool add(uint8_t* dst, const uint8_t* src) {
    each_trip([&](uint32_t base, const Within& has) {
      each_vec(base, has, [&](uint32_t, uint32_t, uint32_t v) {
        const Vec sum = fold_vec<Element, Fold::sum>(Platform::load(dst + v * kVec), Platform::load(src + v * kVec));
        Platform::store(dst + v * kVec, sum);
      });
      return true;
    });
    return !platform_.sync_or(false);
  }

  template <class Trip>
  GC3_HOST_DEVICE bool each_trip(const Trip& trip) {
    const auto vecs = static_cast<uint32_t>(bytes_ / kVec);
    const Within has = {vecs};
    for (uint32_t base = platform_.warp() * L::kTrip; base < vecs; base += platform_.warps() * L::kTrip) {
      if (!trip(base, has)) return false;
    }
    return true;
  }
  template <class F>
  GC3_HOST_DEVICE void each_vec(uint32_t base, const Within& has, const F& f) {
    platform_.each([&](uint32_t lane) {
      GC3_UNROLL
      for (uint32_t k = 0; k < L::kVecs; ++k) {
        if (L::brings(k, lane) && has(L::vector(base, k, lane))) f(k, lane, L::vector(base, k, lane));
      }
    });
  }

  Platform& platform_;
  const Launch& launch_;
  const interp::Task& fixed_;
  Progress& progress_;
  DeviceBlock<Platform, Element> block_;
  interp::Run run_;
  interp::SendEnd send_;
  interp::RecvEnd recv_;
  uint64_t chunk_bytes_ = 0;
  uint64_t skip_ = 0;   // of the current tile, within a chunk
  uint64_t bytes_ = 0;  // of a message
};

// Replaces cuda::run_threadblock.
template <Schedule kSchedule, class Protocol, class Element, class Platform>
GC3_HOST_DEVICE void run_threadblock(Platform& platform, const Launch& launch, uint32_t index) {
  Threadblock<Protocol, Element, Platform>(platform, launch, index).execute(kSchedule);
}

}  // namespace gc3::cuda::hand
