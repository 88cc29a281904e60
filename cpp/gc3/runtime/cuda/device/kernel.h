// The work of one threadblock in one launch.
#pragma once

#include <stdint.h>

#include "gc3/runtime/cuda/device/device_block.h"
#include "gc3/runtime/cuda/device/shared.h"

namespace gc3::cuda {

// Executes threadblock `index` of the launch. All threads of the block call it.
template <class Protocol, class Element, class Platform>
GC3_HOST_DEVICE void run_threadblock(Platform& platform, const Launch& launch, uint32_t index) {
  const interp::Task& fixed = launch.threadblocks[index].task;
  const Progress& before = launch.progress[index];
  auto& shared = platform.shared();
  const bool staged = fixed.step_count <= kStagedSteps;
  if (staged) {
    for (uint32_t i = platform.thread(); i < fixed.step_count; i += platform.threads())
      shared.steps[i] = fixed.steps[i];
  }
  if (platform.thread() == 0) {
    const Buffers& buffers = launch.buffers[fixed.rank];
    shared.regions[0] = {buffers.input, launch.count, launch.chunks, launch.regular, 0};
    shared.regions[1] = {buffers.output, launch.count, launch.chunks, launch.regular, 0};
    shared.regions[2] = {buffers.scratch, 0, 0xffffffffU, 1, 0};
    shared.run = launch.run;
    shared.run.first_tile = before.tiles;
    shared.index = index;
    interp::Task& task = shared.task;
    task = fixed;
    if (staged) task.steps = shared.steps;
    task.regions = shared.regions;
    task.send.step = before.sent;
    task.send.head_seen = before.head_seen;
    task.send.slot = before.send_slot;
    task.recv.step = before.received;
    task.recv.slot = before.recv_slot;
  }
  // After a failed launch no later one may start, because its counters would be those of the failed one.
  if (platform.sync_or(platform.thread() == 0 && platform.load_stop(&launch.halt->halted) != 0)) return;
  const interp::Run& run = shared.run;
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
  progress.tiles = run.first_tile + run.tiles;
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
