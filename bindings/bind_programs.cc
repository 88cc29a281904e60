// Programs of the caller: the part of a communicator that prepares and runs them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "arrays.h"
#include "communicator.h"
#include "compute_call.h"
#include "gc3/runtime/direct/process_job.h"
#include "operand.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using RankEngine = comm::Communicator::RankEngine;

cpu::RankCall rank_call(const Joined& joined, const RankEngine& program, const std::optional<ConstBytes>& input,
                        const std::optional<Bytes>& output, std::size_t count, std::string_view dtype,
                        const Operation& op) {
  const model::Collective& collective = program.plan().collective;
  const Reduction reduction = parse_reduction(dtype, op);
  const std::size_t block = count * model::size_of(reduction.type);
  const std::uint32_t rank = joined.body().rank();
  check_size("input", rank, input.has_value() ? input->size() : 0, block * collective.input_blocks(rank));
  check_size("output", rank, output.has_value() ? output->size() : 0, block * collective.output_blocks(rank));
  return {input.has_value() ? input->data() : nullptr,
          output.has_value() ? output->data() : nullptr,
          count,
          reduction.type,
          reduction.op,
          reduction.factor()};
}

// Runs a prepared program on an input and an output of the host that it can use as they are, or after a copy of the
// input to its place in the output, and returns the output. A tuple of both, as read: the caller has to do more first.
nb::object run_plain(const Joined& joined, RankEngine* program, nb::handle x, nb::handle out, nb::handle op) {
  comm::Communicator& comm = joined.body();
  const Operand given = x.is_none() ? Operand() : source(x);
  Operand result = out.is_none() ? Operand() : target(out);
  const auto read = [&] {
    const auto array = [](const Operand& o) { return o.there() ? o.array : nb::object(nb::none()); };
    return nb::make_tuple(array(given), array(result));
  };
  const std::optional<model::ReduceOp> reduces = plain_reduction(op);
  if (program == nullptr || !given.there() || !reduces || *reduces == model::ReduceOp::premulsum) return read();
  const model::Collective& collective = program->plan().collective;
  const std::optional<std::size_t> count = comm::plain_count(collective, comm.rank(), given);
  if (!count) return read();
  if (!result.there()) {
    const std::size_t elements = *count * collective.output_blocks(comm.rank());
    result = like(given, elements == given.elements ? given.shape() : nb::make_tuple(elements));
  }
  const std::optional<comm::PlainRun> run = comm::plain_run(collective, comm.rank(), given, result, *reduces);
  if (!run) return nb::make_tuple(given.array, out.is_none() ? nb::object(nb::none()) : result.array);
  without_gil([&] {
    if (run->copy_to != nullptr) std::memcpy(run->copy_to, given.address, given.bytes());
    return comm.run(*program, run->call, interrupted);
  });
  return result.array;
}

// This rank's part of a program that computes.
void compute_on_rank(const Joined& joined, cpu::ProcessProgram& program, const std::vector<ConstBytes>& inputs,
                     const std::vector<Bytes>& outputs, const std::vector<std::uint64_t>& counts,
                     std::string_view dtype, const Operation& op, const nb::callable& function,
                     std::optional<double> timeout) {
  const interp::Plan& plan = program.plan();
  const Reduction reduction = parse_reduction(dtype, op);
  if (!plan.collective.has_tensors() || counts.size() != plan.compute.lengths.size()) {
    unwrap(Status(Diagnostic(ErrorCode::BadArgument, "the length of each chunk of a program of named tensors")));
  }
  const std::size_t elem = model::size_of(reduction.type);
  const std::uint32_t rank = joined.body().rank();
  const auto given = chunks_of(plan.collective, rank, false, inputs, counts, elem);
  const auto made = chunks_of(plan.collective, rank, true, outputs, counts, elem);
  const cpu::VRankCall call{counts, given, made, reduction.type, reduction.op, {}, timeout};
  without_gil([&] { return joined.body().compute(program, call, caller_of(plan, function), interrupted); });
}

template <class Program>
std::shared_ptr<cpu::ProcessProgram> prepare_program(const Joined& joined, const Program& program, std::uint32_t slots,
                                                     std::uint64_t slot_bytes, const ThresholdList& thresholds) {
  const ThresholdChanges changes = changes_of(thresholds);
  return without_gil([&] { return joined.body().prepare(bindings::as_read(program), slots, slot_bytes, changes); });
}

}  // namespace

void bind_programs(nb::class_<Joined>& joined) {
  joined
      .def("prepare", &prepare_program<ir::Program>, "program"_a, "slots"_a = 0, "slot_bytes"_a = 0,
           "thresholds"_a = ThresholdList(), "Local: prepares a program.")
      .def("prepare", &prepare_program<ir::ClassProgram>, "program"_a, "slots"_a = 0, "slot_bytes"_a = 0,
           "thresholds"_a = ThresholdList(), "The same of one of which a rank stands for all.")
      .def(
          "prepare_direct",
          [](Joined& j, const ir::direct::Program& program, std::shared_ptr<cpu::ProcessProgram> messages) {
            return without_gil([&] { return j.body().prepare(program, messages); });
          },
          "program"_a, "messages"_a.none(),
          "Local: prepares a proven one-sided program; `messages`: of the same algorithm, for memory that is not "
          "registered.")
      .def(
          "is_registered",
          [](Joined& j, const ConstBytes& bytes) { return unwrap(j.body().is_registered(bytes.data())); }, "bytes"_a,
          "Whether other ranks can reach the memory.")
      .def("run_plain", &run_plain, "program"_a.none(), "x"_a.none(), "out"_a.none(), "op"_a.none(),
           nb::sig("def run_plain(self, program: RankEngine | None, x: object, out: object, op: object) -> "
                   "gc3.datatypes.Array | tuple[typing.Any, typing.Any]"),
           "Collective: runs the program on arrays that it can use as they are; else a tuple of them.")
      .def("compute", &compute_on_rank, "program"_a, "inputs"_a, "outputs"_a, "counts"_a, "dtype"_a, "op"_a,
           "function"_a, "timeout"_a.none() = nb::none(),
           nb::sig("def compute(self, program: ProcessProgram, inputs: Sequence[gc3.datatypes.Array], outputs: "
                   "Sequence[gc3.datatypes.Array], counts: Sequence[int], dtype: str, op: Operation, function: "
                   "Callable[[int, list[memoryview]], None], timeout: float | None = None) -> None"),
           "Collective: runs a program of named tensors on those of this rank; see ThreadsEngine.compute.")
      .def(
          "run_ready",
          [](Joined& j, RankEngine& program, const std::optional<ConstBytes>& input, const std::optional<Bytes>& output,
             std::size_t count, std::string_view dtype, const Operation& op) {
            const cpu::RankCall call = rank_call(j, program, input, output, count, dtype, op);
            without_gil([&] { return j.body().run(program, call, interrupted); });
          },
          "program"_a, "input"_a.none(), "output"_a.none(), "count"_a, "dtype"_a, "op"_a,
          "Collective: runs the program on the bytes of this rank.")
      .def(
          "time_ready",
          [](Joined& j, RankEngine& program, const std::optional<ConstBytes>& input, const std::optional<Bytes>& output,
             std::size_t count, std::string_view dtype, const Operation& op, std::uint32_t warmup,
             std::uint32_t iterations) {
            const cpu::RankCall call = rank_call(j, program, input, output, count, dtype, op);
            return without_gil([&] { return j.body().time(program, call, warmup, iterations, interrupted); });
          },
          "program"_a, "input"_a.none(), "output"_a.none(), "count"_a, "dtype"_a, "op"_a, "warmup"_a, "iterations"_a,
          "Collective: the seconds of each of `iterations` runs on this rank, each after a barrier.")
      .def(
          "record_ready",
          [](Joined& j, RankEngine& program, const std::optional<ConstBytes>& input, const std::optional<Bytes>& output,
             std::size_t count, std::string_view dtype, const Operation& op, std::size_t most) {
            const cpu::RankCall call = rank_call(j, program, input, output, count, dtype, op);
            return without_gil([&] { return j.body().record(program, call, most, interrupted); });
          },
          "program"_a, "input"_a.none(), "output"_a.none(), "count"_a, "dtype"_a, "op"_a, "most"_a,
          "Collective: one run after a barrier, with a recording of the first `most` steps of this rank's "
          "threadblocks.");
}

}  // namespace gc3::bindings
