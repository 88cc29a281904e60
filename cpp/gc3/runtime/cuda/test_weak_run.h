// A program and its arenas, launched over weak memory as local_ranks.cc launches it on a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gc3/runtime/cuda/arena_layout.h"
#include "gc3/runtime/cuda/device/kernel.h"
#include "gc3/runtime/cuda/ordering.h"
#include "gc3/runtime/cuda/test_weak_platform.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::cuda::weak {

struct Setting {
  std::uint32_t slots = 2;
  std::uint64_t slot_bytes = 4096;
  std::size_t count = 1;  // elements of 4 bytes in a block
  Assumptions assumptions;
  Mutation mutation;
  bool fences = true;            // if the program needs them
  std::uint64_t first_step = 0;  // the number of messages that the connections have carried before
};

class Ranks {
 public:
  Ranks(const ir::Program& program, const Setting& setting)
      : setting_(setting),
        plan_(interp::Plan::create(program).value()),
        geometry_(choose_geometry(plan_, setting.slots, setting.slot_bytes).value()),
        layout_(ArenaLayout::create(plan_, geometry_).value()) {}

  // Each rank launches twice, with different inputs. As on separate devices, no rank waits for the end of another's
  // launch. Returns the first error, or nothing.
  template <class Protocol>
  std::optional<std::string> run(std::uint64_t seed) {
    Machine machine(seed, setting_.assumptions, setting_.mutation);
    reset(machine.memory);
    testing::Buffers buffers[] = {{plan_.collective, setting_.count, model::DataType::int32, model::ReduceOp::sum},
                                  {plan_.collective, setting_.count, model::DataType::int32, model::ReduceOp::max}};
    Halt halt;
    Control control;
    std::vector<Stand> stands(records_.size());
    Launch launches[] = {launch_of(buffers[0].call(), Fold::sum, machine.memory),
                         launch_of(buffers[1].call(), Fold::max, machine.memory)};
    for (Launch& launch : launches) {
      launch.halt = &halt;
      launch.control = &control;
      launch.stands = stands.data();
    }
    std::vector<Machine::Meeting> ends(plan_.ranks.size());
    machine.run(static_cast<std::uint32_t>(records_.size()), control.stop, [&](std::uint32_t block) {
      const std::uint32_t rank = records_[block].task.rank;
      const interp::PlanRank& of = plan_.ranks[rank];
      for (const Launch& launch : launches) {
        WeakPlatform platform;
        run_threadblock<Protocol, int32_element>(platform, launch, block);
        machine.meet(ends[rank], of.first_tb * Machine::kWarps, of.tb_count * Machine::kWarps, false, true);
      }
    });
    for (std::uint32_t i = 0; i < stands.size(); ++i) {
      const Stand& stand = stands[i];
      if (stand.stopped != 0)
        return plan_.place(i, stand.step) + " waits for ever in tile " + std::to_string(stand.tile);
    }
    if (!machine.memory.report().empty()) return machine.memory.report();
    for (const testing::Buffers& b : buffers) {
      auto difference = b.difference();
      if (difference.has_value()) return difference;
    }
    return std::nullopt;
  }

 private:
  // Zeroed memory with the alignment of device memory.
  struct alignas(interp::kCacheLine) Line {
    std::uint8_t bytes[interp::kCacheLine]{};
  };
  using Lines = std::vector<Line>;
  static std::uint8_t* bytes_of(Lines& lines) { return lines.data()->bytes; }

  void reset(Memory& memory) {
    arenas_.clear();
    scratch_.clear();
    progress_.assign(plan_.threadblocks.size(), {});
    for (const std::uint64_t bytes : layout_.bytes) arenas_.emplace_back(bytes / sizeof(Line) + 1);
    const std::uint64_t chunk = (setting_.count + plan_.collective.chunks() - 1) / plan_.collective.chunks() * 4;
    for (const interp::PlanRank& rank : plan_.ranks) {
      scratch_.emplace_back(rank.scratch_chunks * chunk / sizeof(Line) + 1);
    }
    for (auto* const lines : {&arenas_, &scratch_}) {
      for (Lines& of_rank : *lines) memory.add(of_rank.data(), of_rank.size() * sizeof(Line), true);
    }
    records_.clear();
    std::vector<std::uint8_t*> arenas;
    for (Lines& of_rank : arenas_) arenas.push_back(bytes_of(of_rank));
    for (std::uint32_t i = 0; i < plan_.threadblocks.size(); ++i) {
      const interp::PlanThreadblock& tb = plan_.threadblocks[i];
      Threadblock& record = records_.emplace_back();
      record.task = plan_.task(i, nullptr, reinterpret_cast<interp::Counter*>(arenas[tb.rank]));
      layout_.connect(tb, arenas, record.task);
      record.stand = i;
      record.first_wait = tb.first_wait;
      record.wait_count = tb.wait_count;
      start_at(setting_.first_step, tb, arenas, progress_[i]);
    }
  }

  // Sets the connections of a threadblock to where `step` messages before leave them.
  void start_at(std::uint64_t step, const interp::PlanThreadblock& tb, const std::vector<std::uint8_t*>& arenas,
                Progress& progress) const {
    const auto slot = static_cast<std::uint32_t>(step % geometry_.slots);
    if (tb.send_connection != kNone) {
      std::uint8_t* const head = arenas[tb.rank] + layout_.connections[tb.send_connection].head;
      reinterpret_cast<interp::Counter*>(head)->value = progress.sent = progress.head_seen = step;
      progress.send_slot = slot;
    }
    if (tb.recv_connection != kNone) {
      progress.received = step;
      progress.recv_slot = slot;
    }
  }

  Launch launch_of(const interp::Call& call, Fold fold, Memory& memory) {
    Launch launch{};
    launch.run = make_run(plan_, geometry_, call.count, 4).value();
    launch.threadblocks = records_.data();
    launch.progress = progress_.data();
    launch.timeout_ns = ~std::uint64_t{0};
    launch.count = call.count;
    launch.chunks = plan_.collective.chunks();
    launch.regular = launch.run.regular;
    launch.fold = static_cast<std::uint32_t>(fold);
    launch.fences = setting_.fences && messages_order_memory(plan_) ? 1 : 0;
    for (std::uint32_t r = 0; r < plan_.ranks.size(); ++r) {
      const interp::PlanRank& rank = plan_.ranks[r];
      auto* const input = static_cast<std::uint8_t*>(const_cast<void*>(call.inputs[r]));
      auto* const output = static_cast<std::uint8_t*>(call.outputs[r]);
      launch.buffers[r] = {rank.input_aliased ? nullptr : input, rank.output_aliased ? nullptr : output,
                           bytes_of(scratch_[r])};
      // If input and output overlap, the larger buffer contains both. A separate output is blank.
      if (!rank.input_aliased) memory.add(input, call.count * rank.input_blocks * 4, false);
      if (!rank.output_aliased) memory.add(output, call.count * rank.output_blocks * 4, !rank.input_aliased);
    }
    return launch;
  }

  Setting setting_;
  interp::Plan plan_;
  interp::FifoGeometry geometry_;
  ArenaLayout layout_;
  std::vector<Lines> arenas_;
  std::vector<Lines> scratch_;
  std::vector<Threadblock> records_;
  std::vector<Progress> progress_;
};

}  // namespace gc3::cuda::weak
