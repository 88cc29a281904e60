// The kernel of one-sided programs over weak memory: with the orders that the proof assumes, and without them.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "gc3/ir/direct/test_direct.h"
#include "gc3/runtime/cuda/device/one_sided.h"
#include "gc3/runtime/cuda/one_sided_tables.h"
#include "gc3/runtime/cuda/test_weak_platform.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::cuda::weak {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSkipped = true;  // as in weak_memory_test.cc
#else
constexpr bool kSkipped = false;
#endif

struct alignas(64) Line {
  std::uint8_t zeros[64]{};
};

class OneSidedRanks {
 public:
  OneSidedRanks(const direct::Program& program, std::size_t count)
      : decoded_(direct::Decoded::create(program).value()),
        tables_(decoded_),
        plan_(direct::plan_of(decoded_)),
        count_(count) {
    const std::uint32_t chunks = plan_.collective.chunks();
    chunk_bytes_ = (count + chunks - 1) / chunks * 4;
    for (std::uint32_t t = 0; t < program.threadblocks.size(); ++t) {
      const ir::direct::Threadblock& tb = program.threadblocks[t];
      if (tb.step_count != 0) blocks_.push_back({tb.first_step, tb.step_count, t});
    }
    for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
      for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) rank_of_.push_back(r);
    }
  }

  // Each rank launches several times, and waits for no other between them. Returns the first error.
  std::optional<std::string> run(std::uint64_t seed, const Mutation& mutation) {
    Machine machine(seed, {8, false, false}, mutation);
    const std::uint32_t ranks = plan_.collective.ranks();
    const std::uint64_t stride = interp::round_up(chunk_bytes_, 64);
    std::vector<std::vector<Line>> scratch;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      scratch.emplace_back(decoded_.scratch_bytes(r, stride) / sizeof(Line) + 1);
      machine.memory.add(scratch[r].data(), scratch[r].size() * sizeof(Line), true);
    }
    std::vector<interp::Counter> counters(direct::Counters::bytes(decoded_.program) / sizeof(interp::Counter));
    machine.memory.add(counters.data(), counters.size() * sizeof(interp::Counter), false);
    std::vector<interp::Counter*> counters_at;
    for (interp::Counter& counter : counters) counters_at.push_back(&counter);
    std::vector<std::uint64_t> calls(blocks_.size());
    Halt halt;
    Control control;
    std::vector<Stand> stands(decoded_.program.threadblocks.size());
    std::vector<testing::Buffers> buffers;
    std::vector<OneSidedLaunch> launches;
    for (const auto op : {model::ReduceOp::sum, model::ReduceOp::max}) {
      buffers.emplace_back(plan_.collective, count_, model::DataType::int32, op);
    }
    for (testing::Buffers& b : buffers) {
      OneSidedLaunch& launch = launches.emplace_back();
      launch = {tables_.steps.data(),
                tables_.places.data(),
                decoded_.program.objects.data(),
                tables_.initial.data(),
                tables_.parties.data(),
                blocks_.data(),
                calls.data(),
                tables_.scratch_chunks.data(),
                counters_at.data(),
                nullptr,
                0,
                0,
                &halt,
                stands.data(),
                &control,
                ~std::uint64_t{0},
                chunk_bytes_,
                stride,
                static_cast<std::uint32_t>(2 * decoded_.program.channels.size()),
                static_cast<std::uint32_t>(2 * decoded_.program.channels.size() + decoded_.program.semaphores.size()),
                decoded_.program.halves,
                0,
                0,
                0,
                {},
                {}};
      launch.fold = static_cast<std::uint32_t>(launches.size() == 2 ? Fold::max : Fold::sum);
      const interp::Call call = b.call();
      for (std::uint32_t r = 0; r < ranks; ++r) {
        const interp::PlanRank& rank = plan_.ranks[r];
        auto* const input = static_cast<std::uint8_t*>(const_cast<void*>(call.inputs[r]));
        auto* const output = static_cast<std::uint8_t*>(call.outputs[r]);
        launch.buffers[r] = {rank.input_aliased ? nullptr : input, rank.output_aliased ? nullptr : output,
                             reinterpret_cast<std::uint8_t*>(scratch[r].data())};
        if (!rank.input_aliased) machine.memory.add(input, count_ * rank.input_blocks * 4, false);
        if (!rank.output_aliased) machine.memory.add(output, count_ * rank.output_blocks * 4, !rank.input_aliased);
      }
    }
    // Once more on the same buffers, and in the same half of scratch. In place the result would be another one.
    if (!plan_.collective.in_place()) launches.push_back(launches.front());
    std::vector<Machine::Meeting> ends(ranks);
    machine.run(static_cast<std::uint32_t>(blocks_.size()), control.stop, [&](std::uint32_t block) {
      const std::uint32_t rank = rank_of_[block];
      const ir::direct::RankProgram& of = decoded_.program.ranks[rank];
      for (const OneSidedLaunch& launch : launches) {
        WeakPlatform platform;
        run_one_sided<int32_element>(platform, launch, block);
        machine.meet(ends[rank], of.first_tb * Machine::kWarps, of.tb_count * Machine::kWarps, false, true);
      }
    });
    for (const Stand& stand : stands) {
      if (stand.stopped != 0) return "step " + std::to_string(stand.step) + " waits for ever";
    }
    if (!machine.memory.report().empty()) return machine.memory.report();
    for (const testing::Buffers& b : buffers) {
      if (auto difference = b.difference()) return difference;
    }
    return std::nullopt;
  }

 private:
  direct::Decoded decoded_;
  OneSidedTables tables_;
  interp::Plan plan_;
  std::size_t count_;
  std::uint64_t chunk_bytes_ = 0;
  std::vector<OneSidedThreadblock> blocks_;  // all have steps in these programs
  std::vector<std::uint32_t> rank_of_;
};

// The error of the first seed with an error, or nothing.
std::optional<std::string> first_wrong(const direct::Program& program, const Mutation& mutation, std::uint64_t seeds) {
  for (const std::size_t elements : {3, 20}) {  // of a chunk
    OneSidedRanks ranks(program, elements * program.collective.chunks());
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      if (auto wrong = ranks.run(seed, mutation)) return "seed " + std::to_string(seed) + ": " + *wrong;
    }
  }
  return std::nullopt;
}

TEST_CASE("one-sided programs are exact over weak memory" * doctest::skip(kSkipped)) {
  for (const std::uint32_t ranks : {2U, 3U}) {
    for (const direct::Program& program : ir::direct::test::all_programs(ranks)) {
      const auto wrong = first_wrong(program, {}, testing::kSanitized ? 4 : 40);
      CHECK_MESSAGE(!wrong, program.name, " on ", ranks, ": ", wrong.value_or(""));
    }
  }
}

TEST_CASE("each order that one-sided programs rely on is needed" * doctest::skip(kSkipped)) {
  // In others no rank of a test loads what another one has stored before a signal.
  for (const direct::Program& program : {ir::direct::test::two_shot(2), ir::direct::test::passed_on(2)}) {
    CAPTURE(program.name);
    const auto found = [&](const Mutation& mutation) { return first_wrong(program, mutation, 200).has_value(); };
    CHECK(!found({}));
    CHECK(found({.releases = false}));
    CHECK(found({.acquires = false}));
    CHECK(found({.barriers = false}));
  }
}

}  // namespace
}  // namespace gc3::cuda::weak
