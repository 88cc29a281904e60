// The interpreter's Block on a device: threads are in warps, waits spin, and whole warps move messages.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/elements.h"
#include "gc3/runtime/cuda/device/lines.h"
#include "gc3/runtime/cuda/device/operand_vecs.h"
#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/wait_limit.h"
#include "gc3/runtime/interp/interpreter.h"

namespace gc3::cuda {

// Vectors that a lane loads before it stores: enough to hide the latency of memory, and few enough for the registers.
template <class Protocol, class Element>
inline constexpr uint32_t kVecsPerLane = Protocol::kLineData != 1                ? 2
                                         : sizeof(typename Element::Stored) > 2  ? 4
                                         : sizeof(typename Element::Stored) == 2 ? 3
                                                                                 : 2;

template <class Platform, class Element>
class DeviceBlock {
 public:
  static constexpr bool kEndless = true;  // a wait spins, and ends early only if the launch is stopped

  GC3_HOST_DEVICE DeviceBlock(Platform& platform, const Launch& launch) : platform_(platform), launch_(launch) {}

  GC3_HOST_DEVICE uint64_t thread() const { return platform_.thread(); }
  GC3_HOST_DEVICE uint64_t threads() const { return platform_.threads(); }
  GC3_HOST_DEVICE uint64_t first_tile() const { return platform_.shared().first_tile; }

  // One thread polls. The barrier gives the value to all threads, and orders what this thread has acquired before them.
  GC3_HOST_DEVICE uint64_t await(const interp::Counter* counter, uint64_t value) {
    return look([&](uint64_t& seen) {
      seen = platform_.load_acquire(&counter->value, launch_.system != 0);
      return seen >= value;
    });
  }
  GC3_HOST_DEVICE bool await_flag(const uint64_t* flag, uint64_t value) {
    return look([&](uint64_t& seen) {
             seen = platform_.load_acquire(flag, launch_.system != 0);
             return seen == value;
           }) == value;
  }
  // To be called after a barrier, so that all accesses of the block's threads come before.
  GC3_HOST_DEVICE void post(interp::Counter* counter, uint64_t value) {
    if (thread() == 0) platform_.store_release(&counter->value, value, launch_.system != 0);
  }
  // To be called after a barrier. The data read from the slot has been used by then, to store it or to compare its
  // flag, so the reads are complete. A release would only wait for the stores of the block, which a credit does not
  // promise.
  GC3_HOST_DEVICE void give_back(interp::Counter* counter, uint64_t value) {
    if (thread() == 0) platform_.store_read(&counter->value, value, launch_.system != 0);
  }
  GC3_HOST_DEVICE void store_flag(uint64_t* flag, uint64_t value) {
    platform_.store_release(flag, value, launch_.system != 0);
  }
  GC3_HOST_DEVICE uint64_t load_word(const uint64_t* word) const { return platform_.load_word(word); }
  GC3_HOST_DEVICE void store_word(uint64_t* word, uint64_t value) { platform_.store_word(word, value); }

  // See interp::carry_message.
  template <class Protocol>
  GC3_HOST_DEVICE bool carry(const interp::Run& run, interp::Task& task, const interp::Step& step,
                             const interp::Does& does) {
    Shared& shared = platform_.shared();
    park(task);
    using L = Lines<Protocol, kVecsPerLane<Protocol, Element>>;
    const Located at = shared.staged != 0 ? shared.located[task.step] : locate_step(run, task.regions, step);
    const uint64_t first = task.tile * run.tile_elems;
    const uint64_t skip = first * run.elem_bytes;
    const uint64_t total = step.count * interp::least(run.tile_elems, run.chunk_elems - first) * run.elem_bytes;
    const bool aligned =
        skip + total <= at.room &&
        ((reinterpret_cast<uintptr_t>(at.src) | reinterpret_cast<uintptr_t>(at.dst) | skip) % kVec) == 0;
    In in = {does.receives ? interp::slot_of(run, task.recv) : nullptr, L::flag(run, task.recv.step)};
    Out out = {does.sends ? interp::slot_of(run, task.send) : nullptr, L::flag(run, task.send.step)};
    // If messages order memory, earlier accesses of this block are ordered before the first line, see ordering.h. If
    // the block sends on what it receives, accesses of other blocks before they sent it are ordered as well, see trip.
    const bool fences = L::kFlagged && launch_.fences != 0 && does.receives != does.sends;
    if (fences && does.sends) platform_.fence(launch_.system != 0);
    if (fences && does.receives) bits_ |= kFence;

    const auto vecs = static_cast<uint32_t>((total + kVec - 1) / kVec);
    // What is aligned moves in vectors: all of a message that consists of them, else its whole trips. The rest is moved
    // element by element.
    const auto all = static_cast<uint32_t>(total / kVec);
    const uint32_t whole = !aligned ? 0 : total % kVec == 0 ? all : all / L::kTrip * L::kTrip;
    const bool remains = whole < vecs;
    if (remains && thread() == 0) {
      shared.remainder = {interp::message_of(run, task.tile, step), &step, total, in, out, whole, vecs};
    }
    if constexpr (!L::kFlagged) {
      // What a proxy sends to another host. The flag, which this thread stores later with release, orders it.
      uint64_t* const lengths = shared.task.lengths;
      if (does.sends && lengths != nullptr && thread() == 0) platform_.store_word(lengths + task.send.slot, total);
    }
    // The pointers are advanced with the warp, which needs fewer registers than offsets.
    SomePieces pieces = {{at.src, at.dst}, static_cast<int32_t>(whole)};
    advance_by(pieces.src, skip);
    advance_by(pieces.dst, skip);
    const auto step_by = [&](uint32_t trips) {
      pieces.vecs -= static_cast<int32_t>(trips * L::kTrip);
      advance_by(pieces.src, trips * (L::kTrip * kVec));
      advance_by(pieces.dst, trips * (L::kTrip * kVec));
      advance_by(in.slot, trips * L::kTripBytes);
      advance_by(out.slot, trips * L::kTripBytes);
    };
    step_by(platform_.warp());
    bool alive = true;
    if constexpr (L::kEven) {
      for (; alive && pieces.vecs >= static_cast<int32_t>(L::kTrip); step_by(platform_.warps())) {
        alive = trip<L>(does, in, out, 0, static_cast<const Pieces&>(pieces));
      }
      if (alive && pieces.vecs > 0) alive = trip<L>(does, in, out, 0, pieces);
    } else {
      for (; alive && pieces.vecs > 0; step_by(platform_.warps())) alive = trip<L>(does, in, out, 0, pieces);
    }
    if (remains) {
      platform_.sync();
      if (alive) alive = move_rest<Protocol>();
    }
    if ((bits_ & kFence) != 0) platform_.fence(launch_.system != 0);
    const bool stopped = platform_.sync_or(!alive);
    unpark(task);
    return !stopped;
  }

 private:
  GC3_HOST_DEVICE void park(const interp::Task& task) {
    if (thread() == 0) {
      platform_.shared().parked[(bits_ & kParked) >> 1U] = {
          task.tile, task.send.step, task.send.head_seen, task.recv.step, task.send.slot, task.recv.slot, task.step};
    }
  }
  GC3_HOST_DEVICE void unpark(interp::Task& task) {
    const Parked& parked = platform_.shared().parked[(bits_ & kParked) >> 1U];
    bits_ = (bits_ ^ kParked) & ~kFence;
    task = platform_.shared().task;
    task.offset = 0;
    task.tile = parked.tile;
    task.step = parked.step;
    task.send.step = parked.sent;
    task.send.head_seen = parked.head_seen;
    task.send.slot = parked.send_slot;
    task.recv.step = parked.received;
    task.recv.slot = parked.recv_slot;
  }

  // Moves the part of a message that is not in whole aligned vectors; one vector per lane at a time, if the protocol
  // allows it.
  template <class Protocol>
  GC3_HOST_DEVICE bool move_rest() {
    using L = Lines<Protocol, Protocol::kLineData == interp::LL128::kLineData ? 2 : 1>;
    const Remainder& rest = platform_.shared().remainder;
    const interp::Does does = interp::does_of(rest.step->opcode);
    for (uint32_t base = rest.first + platform_.warp() * L::kTrip; base < rest.vecs;
         base += platform_.warps() * L::kTrip) {
      if (!trip<L>(does, rest.in, rest.out, base, Remaining{launch_.run, platform_.shared()})) return false;
    }
    return true;
  }

  // The access of a trip to the operands: in whole vectors, or element by element. The call operator returns whether a
  // vector exists.
  struct Pieces {
    // All loads of a lane are issued before the first result is used, except for small elements, which need the
    // registers.
    static constexpr bool kTogether = sizeof(typename Element::Stored) > 1;
    const uint8_t* src;
    uint8_t* dst;
    GC3_HOST_DEVICE bool operator()(uint32_t) const { return true; }
    GC3_HOST_DEVICE Vec load_src(uint32_t v) const { return Platform::load(src + v * kVec); }
    GC3_HOST_DEVICE Vec load_dst(uint32_t v) const { return Platform::load(dst + v * kVec); }
    GC3_HOST_DEVICE void store_dst(uint32_t v, const Vec& x) const { Platform::store(dst + v * kVec, x); }
  };
  struct SomePieces : Pieces {
    int32_t vecs;  // from there on, if positive
    GC3_HOST_DEVICE bool operator()(uint32_t v) const { return static_cast<int32_t>(v) < vecs; }
  };
  struct Remaining {
    static constexpr bool kTogether = false;
    const interp::Run& run;
    const Shared& shared;
    GC3_HOST_DEVICE bool operator()(uint32_t v) const { return v < shared.remainder.vecs; }
    GC3_HOST_DEVICE Vec load_src(uint32_t v) const { return at(shared.remainder.step->src).load(v); }
    GC3_HOST_DEVICE Vec load_dst(uint32_t v) const { return at(shared.remainder.step->dst).load(v); }
    GC3_HOST_DEVICE void store_dst(uint32_t v, const Vec& x) const { at(shared.remainder.step->dst).store(v, x); }
    GC3_HOST_DEVICE ElementWise<Platform, Element> at(const interp::Operand& operand) const {
      return {run, shared, operand};
    }
  };

  // One trip of a warp through the message.
  template <class L, class Operands>
  GC3_HOST_DEVICE bool trip(const interp::Does& does, const In& in, const Out& out, uint32_t base,
                            const Operands& operands) {
    using Vecs = typename Platform::template PerLane<Vec>[L::kVecs];
    Vecs a{};
    if (does.receives && !L::get(platform_, launch_, in, base, operands, a)) return false;
    platform_.each([&](uint32_t lane) {
      Vec b[L::kVecs];
      const auto fetch = [&](uint32_t k, uint32_t v) {
        if (does.reads) b[k] = operands.load_src(v);
        if (does.reduces && !does.receives) a[k][lane] = operands.load_dst(v);  // reduce: dst = dst op src
      };
      const auto finish = [&](uint32_t k, uint32_t v) {
        if (does.reduces) {
          a[k][lane] = fold_vec<Element>(static_cast<Fold>(launch_.fold), a[k][lane], b[k]);
        } else if (does.reads) {
          a[k][lane] = b[k];
        }
        if (does.writes) operands.store_dst(v, a[k][lane]);
      };
      const auto has = [&](uint32_t k) { return L::brings(k, lane) && operands(L::vector(base, k, lane)); };
      GC3_UNROLL
      for (uint32_t k = 0; k < L::kVecs; ++k) {
        if (has(k)) fetch(k, L::vector(base, k, lane));
        if constexpr (!Operands::kTogether) {
          if (has(k)) finish(k, L::vector(base, k, lane));
        }
      }
      if constexpr (Operands::kTogether) {
        GC3_UNROLL
        for (uint32_t k = 0; k < L::kVecs; ++k) {
          if (has(k)) finish(k, L::vector(base, k, lane));
        }
      }
    });
    if (does.sends) {
      if (L::kFlagged && does.receives && launch_.fences != 0) platform_.fence(launch_.system != 0);
      L::put(platform_, out, base, operands, a);
    }
    return true;
  }

  // One thread polls, and stores the value in shared memory for all.
  template <class Look>
  GC3_HOST_DEVICE uint64_t look(const Look& once) {
    uint64_t& place = platform_.shared().seen[bits_ & kSeen];
    bits_ ^= kSeen;
    if (thread() == 0) {
      WaitLimit limit;
      uint64_t seen = 0;
      while (!once(seen) && !limit.over(platform_, launch_)) {
      }
      place = seen;
    }
    platform_.sync();
    return place;
  }

  Platform& platform_;
  const Launch& launch_;
  // In one register: the next of the pairs in Shared, and whether a fence follows the message.
  static constexpr uint32_t kSeen = 1;
  static constexpr uint32_t kParked = 2;
  static constexpr uint32_t kFence = 4;
  uint32_t bits_ = 0;
};

}  // namespace gc3::cuda
