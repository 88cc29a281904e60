// How the lanes of a warp move 16-byte vectors of a message into and out of a slot, for each protocol.
//
// A message is a row of vectors; kTrip of them take kTripBytes of the slot. A warp moves kVecs of them per lane and
// trip: vector(base, k, lane) says which one, if the lane brings() one, get() reads them out of the slot (false: the
// wait was stopped, on all lanes alike) and put() writes them. `has` says whether a vector exists; nothing is read for
// those that do not, and what is written for them is never used.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/vec.h"
#include "gc3/runtime/cuda/device/wait_limit.h"
#include "gc3/runtime/interp/ll.h"
#include "gc3/runtime/interp/ll128.h"
#include "gc3/runtime/interp/simple.h"

namespace gc3::cuda {

template <class Protocol, uint32_t kVecsPerLane>
struct Lines;

// Vectors stand in the slot as they are; k selects a row of one vector per lane.
template <uint32_t kVecsPerLane>
struct Lines<interp::Simple, kVecsPerLane> {
  static constexpr uint32_t kVecs = kVecsPerLane;
  static constexpr uint32_t kTrip = 32 * kVecs;  // vectors of a warp's trip
  static constexpr uint32_t kTripBytes = kTrip * kVec;
  static constexpr bool kFlagged = false;  // arrival was waited for before
  // In a whole trip every lane has all vectors. Then the compiler issues its loads together.
  static constexpr bool kEven = true;

  GC3_HOST_DEVICE static uint64_t flag(const interp::Run&, uint64_t) { return 0; }
  GC3_HOST_DEVICE static bool brings(uint32_t, uint32_t) { return true; }
  GC3_HOST_DEVICE static uint32_t vector(uint32_t base, uint32_t k, uint32_t lane) { return base + k * 32 + lane; }

  template <class Platform, class Has, class Vecs>
  GC3_HOST_DEVICE static bool get(Platform& platform, const Launch&, const In& in, uint32_t base, const Has& has,
                                  Vecs& out) {
    platform.each([&](uint32_t lane) {
      GC3_UNROLL
      for (uint32_t k = 0; k < kVecs; ++k) {
        const uint32_t v = vector(base, k, lane);
        if (has(v)) out[k][lane] = platform.load(in.slot + v * kVec);
      }
    });
    return true;
  }
  template <class Platform, class Has, class Vecs>
  GC3_HOST_DEVICE static void put(Platform& platform, const Out& out, uint32_t base, const Has& has, const Vecs& in) {
    platform.each([&](uint32_t lane) {
      GC3_UNROLL
      for (uint32_t k = 0; k < kVecs; ++k) {
        const uint32_t v = vector(base, k, lane);
        if (has(v)) platform.store(out.slot + v * kVec, in[k][lane]);
      }
    });
  }
};

// Two 16-byte lines per vector: {data, flag, data, flag}.
template <uint32_t kVecsPerLane>
struct Lines<interp::LL, kVecsPerLane> {
  static constexpr uint32_t kVecs = kVecsPerLane;
  static constexpr bool kFlagged = true;
  static constexpr bool kEven = true;
  static constexpr uint64_t kBytes = 2 * interp::LL::kLineBytes;
  static constexpr uint32_t kTrip = 32 * kVecs;
  static constexpr uint32_t kTripBytes = kTrip * kBytes;

  GC3_HOST_DEVICE static uint64_t flag(const interp::Run& run, uint64_t step) { return interp::LL::flag(run, step); }
  GC3_HOST_DEVICE static bool brings(uint32_t, uint32_t) { return true; }
  GC3_HOST_DEVICE static uint32_t vector(uint32_t base, uint32_t k, uint32_t lane) { return base + k * 32 + lane; }

  template <class Platform, class Has, class Vecs>
  GC3_HOST_DEVICE static bool get(Platform& platform, const Launch& launch, const In& in, uint32_t base, const Has& has,
                                  Vecs& out) {
    typename Platform::template PerLane<bool> arrived;
    WaitLimit limit;
    for (;;) {
      platform.each([&](uint32_t lane) {
        bool all = true;
        GC3_UNROLL
        for (uint32_t k = 0; k < kVecs; ++k) {
          const uint32_t v = vector(base, k, lane);
          if (!has(v)) continue;
          const uint8_t* const at = in.slot + v * kBytes;
          const Vec first = platform.load_line(at);
          const Vec second = platform.load_line(at + interp::LL::kLineBytes);
          all = all && first.low >> 32U == in.flag && first.high >> 32U == in.flag && second.low >> 32U == in.flag &&
                second.high >> 32U == in.flag;
          out[k][lane] = {(first.low & 0xffffffffU) | first.high << 32U,
                          (second.low & 0xffffffffU) | second.high << 32U};
        }
        arrived[lane] = all;
      });
      if (platform.all(arrived)) return true;
      if (platform.first(platform.leads() && limit.over(platform, launch))) return false;
    }
  }
  template <class Platform, class Has, class Vecs>
  GC3_HOST_DEVICE static void put(Platform& platform, const Out& out, uint32_t base, const Has& has, const Vecs& in) {
    const uint64_t mark = out.flag << 32U;
    platform.each([&](uint32_t lane) {
      GC3_UNROLL
      for (uint32_t k = 0; k < kVecs; ++k) {
        const uint32_t v = vector(base, k, lane);
        if (!has(v)) continue;
        const Vec& data = in[k][lane];
        uint8_t* const at = out.slot + v * kBytes;
        platform.store_line(at, {(data.low & 0xffffffffU) | mark, data.low >> 32U | mark});
        platform.store_line(at + interp::LL::kLineBytes, {(data.high & 0xffffffffU) | mark, data.high >> 32U | mark});
      }
    });
  }
};

// Eight 128-byte lines per trip, in two rows of four: lane l has the 16-byte piece l % 8 of line l / 8 of both rows.
// Piece 7 ends in the flag, so a lane that has it brings one vector for both of its lines: its first half goes into the
// line of the first row, its second half into that of the second. Thus 28 + 28 + 4 vectors fill 8 lines, every vector
// is a whole one for the loads and stores of the buffers, and nothing need be passed between lanes.
//
// A line is complete when its flag is there only if the 8 lanes' pieces become visible together: this is so on one
// device and over NVLink, and the engine uses LL128 nowhere else.
template <uint32_t kVecsPerLane>
struct Lines<interp::LL128, kVecsPerLane> {
  static_assert(kVecsPerLane == 2);
  static constexpr uint32_t kVecs = 2;
  static constexpr uint32_t kTrip = 60;
  static constexpr bool kFlagged = true;
  static constexpr bool kEven = false;
  static constexpr uint32_t kRowBytes = 4 * interp::LL128::kLineBytes;
  static constexpr uint32_t kTripBytes = 2 * kRowBytes;

  GC3_HOST_DEVICE static uint64_t flag(const interp::Run& run, uint64_t step) { return interp::flag_of(run, step); }
  GC3_HOST_DEVICE static bool has_flag(uint32_t lane) { return lane % 8 == 7; }
  GC3_HOST_DEVICE static bool brings(uint32_t k, uint32_t lane) { return k == 0 || !has_flag(lane); }
  GC3_HOST_DEVICE static uint32_t vector(uint32_t base, uint32_t k, uint32_t lane) {
    return base + (has_flag(lane) ? 56 + lane / 8 : k * 28 + lane / 8 * 7 + lane % 8);
  }
  GC3_HOST_DEVICE static uint64_t offset(uint32_t base, uint32_t lane) {
    return base / kTrip * kTripBytes + lane * kVec;
  }

  template <class Platform, class Has, class Vecs>
  GC3_HOST_DEVICE static bool get(Platform& platform, const Launch& launch, const In& in, uint32_t base, const Has&,
                                  Vecs& out) {
    typename Platform::template PerLane<bool> arrived;
    WaitLimit limit;
    for (;;) {
      platform.each([&](uint32_t lane) {
        const uint8_t* const at = in.slot + offset(base, lane);
        out[0][lane] = platform.load_line(at);
        out[1][lane] = platform.load_line(at + kRowBytes);
        arrived[lane] = !has_flag(lane) || (out[0][lane].high == in.flag && out[1][lane].high == in.flag);
      });
      if (platform.all(arrived)) break;
      if (platform.first(platform.leads() && limit.over(platform, launch))) return false;
    }
    // Other lanes may have looked before their line's flag was there; now all of it is.
    platform.each([&](uint32_t lane) {
      const uint8_t* const at = in.slot + offset(base, lane);
      const Vec first = platform.load_line(at);
      const Vec second = platform.load_line(at + kRowBytes);
      out[0][lane] = has_flag(lane) ? Vec{first.low, second.low} : first;
      out[1][lane] = second;
    });
    return true;
  }
  template <class Platform, class Has, class Vecs>
  GC3_HOST_DEVICE static void put(Platform& platform, const Out& out, uint32_t base, const Has&, const Vecs& in) {
    // Lanes that have a flag bring fewer vectors than others and may come here before or after them; a flag that was
    // stored ahead of its line would announce what is not there.
    platform.converge();
    platform.each([&](uint32_t lane) {
      uint8_t* const at = out.slot + offset(base, lane);
      const Vec& first = in[0][lane];
      platform.store_line(at, has_flag(lane) ? Vec{first.low, out.flag} : first);
      platform.store_line(at + kRowBytes, has_flag(lane) ? Vec{first.high, out.flag} : in[1][lane]);
    });
  }
};

}  // namespace gc3::cuda
