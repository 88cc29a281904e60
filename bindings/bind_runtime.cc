#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "call_buffers.h"
#include "compute_call.h"
#include "convert.h"
#include "gc3/runtime/core/sharing/available_memory.h"
#include "gc3/runtime/cpu/memory_bound.h"
#include "gc3/runtime/cpu/threads_engine.h"
#include "gc3/runtime/direct/job.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

// The engines that have all ranks of a program.
using Engine = interp::Engine<interp::Call>;

std::unique_ptr<cpu::ThreadsEngine> make_engine(const ir::Program& program, std::uint32_t slots,
                                                std::uint64_t slot_bytes, std::uint32_t workers, double timeout,
                                                std::optional<std::uint64_t> seed, bool pin) {
  return unwrap(cpu::ThreadsEngine::create(program, {slots, slot_bytes, workers, timeout, seed, pin}));
}

// By rank, the blocks that a run copies before and after its steps: in calls whose blocks are divided evenly into
// chunks, and in others.
std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>> blocks_copied(const ir::Program& program) {
  const interp::Plan plan = unwrap(interp::Plan::create(program));
  std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>> found;
  const std::uint64_t even = plan.collective.chunks();
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    const auto blocks = [&](std::uint64_t count) {
      std::uint32_t sum = 0;
      for (const interp::Copied& copy : plan.copies(r, count, false)) sum += copy.blocks + copy.results;
      return sum;
    };
    found.first.push_back(blocks(even));
    found.second.push_back(blocks(even + 1));
  }
  return found;
}

void compute_on_threads(cpu::ThreadsEngine& engine, const std::vector<std::vector<ConstBytes>>& inputs,
                        const std::vector<std::vector<Bytes>>& outputs, const std::vector<std::uint64_t>& counts,
                        std::string_view dtype, const Operation& op, const nb::list& applications) {
  const interp::Plan& plan = engine.plan();
  const model::Collective& collective = plan.collective;
  const Reduction reduction = parse_reduction(dtype, op);
  if (!collective.has_tensors() || counts.size() != plan.compute.lengths.size() ||
      inputs.size() != collective.ranks() || outputs.size() != collective.ranks()) {
    unwrap(Status(Diagnostic(ErrorCode::BadArgument, "the tensors of each rank, and the length of each chunk")));
  }
  std::vector<std::vector<std::uint8_t*>> chunks;
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    const std::size_t elem = model::size_of(reduction.type);
    chunks.push_back(chunks_of(collective, r, false, inputs[r], counts, elem));
    chunks.push_back(chunks_of(collective, r, true, outputs[r], counts, elem));
  }
  std::vector<cpu::VRankCall> calls;
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    calls.push_back({counts, chunks[2 * r], chunks[2 * r + 1], reduction.type, reduction.op});
  }
  compute(plan, applications, [&](const auto& call) { return engine.compute(calls, call, interrupted); });
}

}  // namespace

void bind_runtime(nb::module_& m) {
  m.def("blocks_copied", &blocks_copied, "program"_a,
        "By rank, the blocks that a run on the CPU engines copies before and after its steps: where blocks are divided "
        "evenly into chunks, and elsewhere.");
  nb::class_<interp::Recording>(m, "Recording",
                                "The steps of the threadblocks in a run; times in ns of the steady clock.")
      .def_ro("begin", &interp::Recording::begin)
      .def_ro("end", &interp::Recording::end)
      .def_ro("dropped", &interp::Recording::dropped, "The number of steps that did not fit.")
      .def_prop_ro(
          "step_bytes",
          [](const interp::Recording& r) {
            return nb::bytes(reinterpret_cast<const char*>(r.steps.data()),
                             r.steps.size() * sizeof(interp::StepRecord));
          },
          "The steps as they lie in memory: see gc3/runtime/interp/engine.h.");
  nb::class_<Engine>(m, "Engine", "Runs a program whose ranks are all in this process.")
      .def(
          "run",
          [](Engine& engine, const std::vector<std::optional<ConstBytes>>& inputs,
             const std::vector<std::optional<Bytes>>& outputs, std::size_t count, std::string_view dtype,
             const Operation& op) {
            const CallBuffers buffers(engine.plan().collective, inputs, outputs, count, dtype, op);
            without_gil([&] { return engine.run(buffers.call(), interrupted); });
          },
          "inputs"_a, "outputs"_a, "count"_a, "dtype"_a, "op"_a,
          "Runs the collective once on one byte array per rank (None if the rank has no such buffer).")
      .def(
          "time",
          [](Engine& engine, const std::vector<std::optional<ConstBytes>>& inputs,
             const std::vector<std::optional<Bytes>>& outputs, std::size_t count, std::string_view dtype,
             const Operation& op, std::uint32_t warmup, std::uint32_t iterations) {
            const CallBuffers buffers(engine.plan().collective, inputs, outputs, count, dtype, op);
            return without_gil([&] { return engine.time(buffers.call(), warmup, iterations, interrupted); });
          },
          "inputs"_a, "outputs"_a, "count"_a, "dtype"_a, "op"_a, "warmup"_a, "iterations"_a,
          "The seconds of each of `iterations` runs on the same buffers.")
      .def(
          "record",
          [](Engine& engine, const std::vector<std::optional<ConstBytes>>& inputs,
             const std::vector<std::optional<Bytes>>& outputs, std::size_t count, std::string_view dtype,
             const Operation& op, std::size_t most) {
            const CallBuffers buffers(engine.plan().collective, inputs, outputs, count, dtype, op);
            return without_gil([&] { return engine.record(buffers.call(), most, interrupted); });
          },
          "inputs"_a, "outputs"_a, "count"_a, "dtype"_a, "op"_a, "most"_a,
          "Runs the collective once and records the first `most` steps of its threadblocks.")
      .def("abort", &Engine::abort, "Aborts running calls.");
  nb::class_<cpu::ThreadsEngine, Engine>(m, "ThreadsEngine", "Runs all ranks of a program on threads of this process.")
      .def(nb::new_(&make_engine), "program"_a, "slots"_a = 0, "slot_bytes"_a = 0, "workers"_a = 0, "timeout"_a = 30.0,
           "seed"_a = nb::none(), "pin"_a = true)
      .def("compute", &compute_on_threads, "inputs"_a, "outputs"_a, "counts"_a, "dtype"_a, "op"_a, "applications"_a,
           nb::sig("def compute(self, inputs: Sequence[Sequence[gc3.datatypes.Array]], outputs: "
                   "Sequence[Sequence[gc3.datatypes.Array]], counts: Sequence[int], dtype: str, op: Operation, "
                   "applications: list[tuple[typing.Any, ...]]) -> None"),
           "Runs a program of named tensors: arrays by rank and tensor, the elements of a chunk of each length, and of "
           "each application its function, the shapes and the type of its operands, what takes the seconds of a call "
           "or None, and a list with a None for each operand.")
      .def_prop_ro("usable", &cpu::ThreadsEngine::usable,
                   "False in a process that was forked after the engine was made.")
      .def_prop_ro("slots", &cpu::ThreadsEngine::slots)
      .def_prop_ro("slot_bytes", &cpu::ThreadsEngine::slot_bytes)
      .def_prop_ro("workers", &cpu::ThreadsEngine::workers);
  nb::class_<direct::Job, Engine>(m, "DirectEngine",
                                  "Runs all ranks of a one-sided program on threads of this process.")
      .def(nb::new_([](const ir::direct::Program& program, std::uint32_t workers, double timeout, bool pin) {
             return unwrap(direct::Job::create(program, {workers, timeout, pin}));
           }),
           "program"_a, "workers"_a = 0, "timeout"_a = 30.0, "pin"_a = true)
      .def_prop_ro("usable", &direct::Job::usable, "False in a process that was forked after the engine was made.");
  m.def(
      "available_memory", [] { return core::available_memory(); },
      "The bytes that this process can still get before the system would have to kill a process.");
  nb::class_<cpu::MemoryBound>(m, "MemoryBound", "The reads and writes of a collective, by threads that never wait.")
      .def(nb::new_([](std::uint32_t sources, std::uint32_t targets, std::size_t bytes, std::uint32_t threads) {
             return unwrap(cpu::MemoryBound::create({sources, targets, bytes}, threads));
           }),
           "sources"_a, "targets"_a, "bytes"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "seconds",
          [](const cpu::MemoryBound& bound, std::uint32_t n) { return without_gil([&] { return bound.seconds(n); }); },
          "repetitions"_a, "The seconds of the fastest of `repetitions` runs.");
}

}  // namespace gc3::bindings
