#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "arrays.h"
#include "convert.h"
#include "gc3/base/launch.h"
#include "gc3/runtime/cpu/communicator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using cpu::Communicator;
using cpu::ProcessProgram;

cpu::RankCall rank_call(const Communicator& comm, const ProcessProgram& program, const std::optional<ConstBytes>& input,
                        const std::optional<Bytes>& output, std::size_t count, std::string_view dtype,
                        std::string_view op) {
  const model::Collective& collective = program.plan().collective;
  const Reduction reduction = parse_reduction(dtype, op);
  const std::size_t block = count * model::size_of(reduction.type);
  const std::uint32_t rank = comm.rank();
  check_size("input", rank, input.has_value() ? input->size() : 0, block * collective.input_blocks(rank));
  check_size("output", rank, output.has_value() ? output->size() : 0, block * collective.output_blocks(rank));
  return {input.has_value() ? input->data() : nullptr, output.has_value() ? output->data() : nullptr, count,
          reduction.type, reduction.op};
}

std::unique_ptr<Communicator> init(std::uint32_t rank, std::uint32_t size, std::string job, std::uint32_t ordinal,
                                   double join_timeout, double timeout, bool pin, bool single_copy) {
  core::Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.job = std::move(job);
  meeting.ordinal = ordinal;
  meeting.timeout_s = join_timeout;
  meeting.interrupted = interrupted;
  return without_gil([&] { return Communicator::init(meeting, {timeout, pin, single_copy}); });
}

}  // namespace

void bind_processes(nb::module_& m) {
  nb::class_<Launch>(m, "Launch", "Who this process is among those that a launcher started.")
      .def_ro("rank", &Launch::rank)
      .def_ro("size", &Launch::size)
      .def_ro("job", &Launch::job);
  m.def(
      "read_launch", [] { return unwrap(read_launch(process_environment())); },
      "Reads what torchrun, mpirun, srun or a script has said in the environment.");
  m.def(
      "die_with_parent", [] { unwrap(core::die_with_parent()); },
      "Has the system kill this process when the one that started it has ended.");
  nb::class_<ProcessProgram>(m, "ProcessProgram", "A program as one rank of a communicator runs it.")
      .def_prop_ro("slots", [](const ProcessProgram& p) { return p.geometry().slots; })
      .def_prop_ro("slot_bytes", [](const ProcessProgram& p) { return p.geometry().slot_bytes; });
  nb::class_<Communicator>(m, "Communicator", "Ranks that are processes of one host.")
      .def(nb::new_(&init), "rank"_a, "size"_a, "job"_a, "ordinal"_a, "join_timeout"_a, "timeout"_a, "pin"_a,
           "single_copy"_a)
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def(
          "prepare",
          [](Communicator& comm, const ir::Program& program, std::uint32_t slots, std::uint64_t slot_bytes) {
            // A call under way on another thread may hold the communicator, and want the interpreter meanwhile.
            return without_gil([&] { return comm.prepare(program, slots, slot_bytes); });
          },
          "program"_a, "slots"_a = 0, "slot_bytes"_a = 0, "Makes a program ready; no other rank takes part.")
      .def(
          "load",
          [](Communicator& comm, ProcessProgram& program) {
            without_gil([&] { return comm.load(program, interrupted); });
          },
          "program"_a, "Collective: gets the memory that the first run would get otherwise.")
      .def(
          "run",
          [](Communicator& comm, ProcessProgram& program, const std::optional<ConstBytes>& input,
             const std::optional<Bytes>& output, std::size_t count, std::string_view dtype, std::string_view op) {
            const cpu::RankCall call = rank_call(comm, program, input, output, count, dtype, op);
            without_gil([&] { return comm.run(program, call, interrupted); });
          },
          "program"_a, "input"_a.none(), "output"_a.none(), "count"_a, "dtype"_a, "op"_a,
          "Collective: runs the program on the bytes of this rank.")
      .def(
          "time",
          [](Communicator& comm, ProcessProgram& program, const std::optional<ConstBytes>& input,
             const std::optional<Bytes>& output, std::size_t count, std::string_view dtype, std::string_view op,
             std::uint32_t warmup, std::uint32_t iterations) {
            const cpu::RankCall call = rank_call(comm, program, input, output, count, dtype, op);
            return without_gil([&] { return comm.time(program, call, warmup, iterations, interrupted); });
          },
          "program"_a, "input"_a.none(), "output"_a.none(), "count"_a, "dtype"_a, "op"_a, "warmup"_a, "iterations"_a,
          "Collective: seconds of each of `iterations` runs on this rank, each after a barrier.")
      .def(
          "record",
          [](Communicator& comm, ProcessProgram& program, const std::optional<ConstBytes>& input,
             const std::optional<Bytes>& output, std::size_t count, std::string_view dtype, std::string_view op,
             std::size_t most) {
            const cpu::RankCall call = rank_call(comm, program, input, output, count, dtype, op);
            return without_gil([&] { return comm.record(program, call, most, interrupted); });
          },
          "program"_a, "input"_a.none(), "output"_a.none(), "count"_a, "dtype"_a, "op"_a, "most"_a,
          "Collective: one run after a barrier, and what this rank's threadblocks did, the first `most` steps.")
      .def("barrier", [](Communicator& comm) { without_gil([&] { return comm.barrier(interrupted); }); })
      .def(
          "split",
          [](Communicator& comm, std::optional<std::uint32_t> color, std::int64_t key) {
            return without_gil([&] { return comm.split(color, key, interrupted); });
          },
          nb::sig("def split(self, color: int | None, key: int) -> Communicator | None"), "color"_a.none(), "key"_a,
          "Collective: a communicator of the ranks of one color; None where that is None.")
      .def(
          "empty",
          [](Communicator& comm, std::uint64_t bytes) {
            auto memory = without_gil([&] { return comm.allocate(bytes); });
            std::uint8_t* const at = memory.get();
            const auto release = [](void* held) noexcept { delete static_cast<std::shared_ptr<std::uint8_t>*>(held); };
            const nb::capsule owner(new std::shared_ptr<std::uint8_t>(std::move(memory)), release);
            return nb::ndarray<std::uint8_t, nb::numpy, nb::ndim<1>>(at, {bytes}, owner);
          },
          nb::sig("def empty(self, bytes: int) -> gc3.datatypes.Array"), "bytes"_a, "Memory that all ranks can read.")
      .def(
          "abort", [](Communicator& comm) { comm.abort(); }, nb::call_guard<nb::gil_scoped_release>())
      .def("close", &Communicator::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace gc3::bindings
