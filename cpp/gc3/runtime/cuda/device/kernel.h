// The work of one threadblock in one launch.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/device_block.h"
#include "gc3/runtime/cuda/device/shared.h"

namespace gc3::cuda {

// Copies records with all threads, a word each. One thread alone would wait for memory again and again.
template <class Platform, class T>
GC3_HOST_DEVICE void copy_together(const Platform& platform, T* to, const T* from, uint32_t count) {
  using Word [[gnu::may_alias]] = uint32_t;
  static_assert(sizeof(T) % sizeof(Word) == 0);
  const uint32_t words = count * static_cast<uint32_t>(sizeof(T) / sizeof(Word));
  for (uint32_t i = platform.thread(); i < words; i += platform.threads()) {
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
  }
}

// Gets what does not change during the launch into shared memory. False, on all threads alike: an earlier launch
// failed, and no later one may start, because its counters would be those of the failed one.
template <class Platform>
GC3_HOST_DEVICE bool prepare(Platform& platform, const Launch& launch, uint32_t index) {
  const Threadblock& record = launch.threadblocks[index];
  const uint32_t steps = record.task.step_count;
  const uint32_t waits = record.wait_count;
  auto& shared = platform.shared();
  interp::Task& task = shared.task;
  bool halted = false;
  Progress before;
  if (platform.thread() == 0) {
    halted = platform.load_stop(&launch.halt->halted) != 0;
    before = launch.progress[index];
    const Buffers& buffers = launch.buffers[record.task.rank];
    shared.regions[0] = {buffers.input, launch.count, launch.chunks, launch.regular, 0};
    shared.regions[1] = {buffers.output, launch.count, launch.chunks, launch.regular, 0};
    shared.regions[2] = {buffers.scratch, 0, 0xffffffffU, 1, 0};
    shared.index = index;
  }
  const bool staged = steps <= kStagedSteps && waits <= kStagedWaits;
  copy_together(platform, &task, &record.task, 1);
  if (staged) {
    copy_together(platform, shared.steps, record.task.steps, steps);
    copy_together(platform, shared.waits, record.task.waits + record.first_wait, waits);
  }
  platform.sync();
  if (staged) {
    for (uint32_t i = platform.thread(); i < steps; i += platform.threads()) {
      shared.located[i] = locate_step(launch.run, shared.regions, shared.steps[i]);
    }
  }
  if (platform.thread() == 0) {
    shared.first_tile = before.tiles;
    shared.staged = staged ? 1 : 0;
    if (staged) {
      task.steps = shared.steps;
      // Steps count from the first wait of the program.
      task.waits = reinterpret_cast<const interp::Wait*>(reinterpret_cast<uintptr_t>(shared.waits) -
                                                         record.first_wait * sizeof(interp::Wait));
    }
    task.regions = shared.regions;
    task.send.step = before.sent;
    task.send.head_seen = before.head_seen;
    task.send.slot = before.send_slot;
    task.recv.step = before.received;
    task.recv.slot = before.recv_slot;
  }
  return !platform.sync_or(halted);
}

// Executes threadblock `index` of the launch. All threads of the block call it.
template <class Protocol, class Element, class Platform>
GC3_HOST_DEVICE void run_threadblock(Platform& platform, const Launch& launch, uint32_t index) {
  if (!prepare(platform, launch, index)) return;
  auto& shared = platform.shared();
  const interp::Run& run = launch.run;  // of constant memory
  interp::Task task = shared.task;
  task.offset = 0;
  DeviceBlock<Platform, Element> block(platform, launch);
  const bool alive = interp::advance<Protocol>(block, run, task, 1) == interp::Outcome::finished;
  if (platform.thread() != 0) return;
  // Read again, so that it needs no register while the steps are executed.
  const uint32_t own = shared.index;
  if (!alive) {
    platform.store_stop(&launch.halt->halted, 1);
    launch.stands[launch.threadblocks[own].stand] = {task.tile, task.step, task.wait,
                                                     static_cast<uint32_t>(task.waiting), 1};
    return;
  }
  Progress& progress = launch.progress[own];
  progress.tiles = shared.first_tile + run.tiles;
  progress.sent = task.send.step;
  progress.head_seen = task.send.head_seen;
  progress.received = task.recv.step;
  progress.send_slot = task.send.slot;
  progress.recv_slot = task.recv.slot;
}

// Divides every `stride`-th element of a rank's output from `first` on, see Division.
template <class Element>
GC3_HOST_DEVICE void divide_row(const Division& division, uint32_t row, uint64_t first, uint64_t stride) {
  using Stored = typename Element::Stored;
  const Division::Rank& rank = division.ranks[row];
  constexpr uint64_t kParts = Element::kComplex ? 2 : 1;  // of an element; each part is divided
  for (uint64_t i = first; i < rank.elems * kParts; i += stride) {
    const uint64_t element = i / kParts;
    const uint64_t block = element / division.count;
    const uint64_t divisor =
        rank.divisors[block * division.chunks + (element - block * division.count) / division.chunk_elems];
    auto* const at = reinterpret_cast<Stored*>(rank.output) + i;
    if (divisor > 1) *at = Element::divide(*at, divisor);
  }
}

// Multiplies every `stride`-th element of a rank's input from `first` on, see Scaling.
template <class Element>
GC3_HOST_DEVICE void scale_row(const Scaling& scaling, uint32_t row, uint64_t first, uint64_t stride) {
  using Stored = typename Element::Stored;
  const Scaling::Rank& rank = scaling.ranks[row];
  auto* const input = reinterpret_cast<Stored*>(rank.input);
  const auto* const factor = reinterpret_cast<const Stored*>(rank.factor);
  for (uint64_t i = first; i < rank.elems; i += stride) {
    if constexpr (Element::kComplex) {
      Element::template apply<Fold::prod>(input + 2 * i, factor);
    } else {
      input[i] = Element::template apply<Fold::prod>(input[i], *factor);
    }
  }
}

}  // namespace gc3::cuda
