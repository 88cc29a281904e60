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
                     std::string_view dtype, const Operation& op, const nb::list& applications,
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
  compute(plan, applications,
          [&](const auto& function) { return joined.body().compute(program, call, function, interrupted); });
}

// The value of a key of a dict; none: there is none.
nb::object value_of(nb::handle dict, nb::handle key) {
  nb::object found = nb::borrow(PyDict_GetItemWithError(dict.ptr(), key.ptr()));
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return found;
}

bool same_lengths(nb::handle shape, nb::handle other) {
  const Py_ssize_t size = PyTuple_Check(shape.ptr()) != 0 ? PyTuple_Size(shape.ptr()) : -1;
  if (size != PyTuple_Size(other.ptr())) return false;
  for (Py_ssize_t k = 0; k < size; ++k) {
    PyObject* const length = PyTuple_GetItem(shape.ptr(), k);
    if (PyLong_CheckExact(length) == 0) return false;  // 4.0 is equal to 4, and no length
    if (!nb::handle(length).equal(nb::handle(PyTuple_GetItem(other.ptr(), k)))) return false;
  }
  return true;
}

// Of the calls that are kept, tuples of what is kept, the reduction, shape and type of each input or None, and names
// with shapes: the first part of that with the same others, and the inputs. None: there is none such.
nb::object kept_call(const nb::list& kept, const nb::list& names, nb::handle op, nb::handle tensors,
                     nb::handle shapes) {
  const auto is_dict = [](nb::handle x) { return PyDict_CheckExact(x.ptr()) != 0; };
  const auto size_of = [](nb::handle dict) { return static_cast<std::size_t>(PyDict_Size(dict.ptr())); };
  if (PyUnicode_CheckExact(op.ptr()) == 0 || !is_dict(tensors) || !(shapes.is_none() || is_dict(shapes))) {
    return nb::none();
  }
  if (size_of(tensors) != names.size()) return nb::none();
  nb::list inputs;
  for (const nb::handle name : names) {
    const nb::object input = value_of(tensors, name);
    if (!input.is_valid()) return nb::none();
    inputs.append(input);
  }
  const auto suits = [&](const nb::tuple& of) {
    const nb::tuple looks = of[2];
    const nb::tuple known = of[3];
    if (!op.equal(of[1]) || known.size() != (shapes.is_none() ? 0 : size_of(shapes))) return false;
    for (std::size_t k = 0; k < looks.size(); ++k) {
      const nb::object look = looks[k];
      const nb::object input = inputs[k];
      if (look.is_none() != input.is_none()) return false;
      if (!look.is_none() && !is_like(input, look[0], look[1])) return false;
    }
    for (const nb::handle pair : known) {
      const nb::object shape = value_of(shapes, pair[0]);
      if (!shape.is_valid() || !same_lengths(shape, nb::object(pair[1]))) return false;
    }
    return true;
  };
  for (std::size_t k = 0; k < kept.size(); ++k) {
    const nb::tuple of = kept[k];
    if (suits(of)) return nb::make_tuple(of[0], inputs);
  }
  return nb::none();
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
           "applications"_a, "timeout"_a.none() = nb::none(),
           nb::sig("def compute(self, program: ProcessProgram, inputs: Sequence[gc3.datatypes.Array], outputs: "
                   "Sequence[gc3.datatypes.Array], counts: Sequence[int], dtype: str, op: Operation, applications: "
                   "list[tuple[typing.Any, ...]], timeout: float | None = None) -> None"),
           "Collective: runs a program of named tensors on those of this rank; see ThreadsEngine.compute.")
      .def_static(
          "kept_call", &kept_call, "kept"_a, "names"_a, "op"_a, "tensors"_a, "shapes"_a.none(),
          nb::sig("def kept_call(kept: list[typing.Any], names: list[str], op: object, tensors: object, shapes: "
                  "object) -> tuple[typing.Any, list[typing.Any]] | None"),
          "Of the calls of a bound program that are kept, that with the same reduction, shapes and types.")
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
