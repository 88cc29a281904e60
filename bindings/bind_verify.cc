#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convert.h"
#include "gc3/ir/blocks.h"
#include "gc3/verify/direct/verify.h"
#include "gc3/verify/verify.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {

void bind_verify(nb::module_& m) {
  nb::class_<verify::Report>(m, "VerifyReport", "The findings of the verifier; a program without findings is proven.")
      .def_ro("diagnostics", &verify::Report::diagnostics,
              "The findings, the most basic first; empty if the program is proven.")
      .def_ro("slots", &verify::Report::slots,
              "The number of FIFO slots per connection for which the program was checked.")
      .def_ro("transfers", &verify::Report::transfers, "The number of messages between ranks.")
      .def_prop_ro("ok", &verify::Report::ok);
  m.def(
      "verify",
      [](const ir::Program& program, std::uint32_t slots, std::uint32_t max_threadblocks, std::uint32_t max_channels,
         std::size_t max_diagnostics, bool chunk_per_slot, bool properties) {
        return long_work([&] {
          return verify::verify(program,
                                {slots, max_threadblocks, max_channels, max_diagnostics, chunk_per_slot, properties});
        });
      },
      "program"_a, "slots"_a = 0, "max_threadblocks"_a = 0, "max_channels"_a = 0, "max_diagnostics"_a = 10,
      "chunk_per_slot"_a = false, "properties"_a = true,
      "Proves that `program` implements its collective without races and deadlocks. `slots`: FIFO slots per "
      "connection; "
      "0: the number in the program. `chunk_per_slot`: each chunk of a message takes a FIFO slot. `properties`: "
      "whether "
      "the proof may use what is declared of compute operations.");
  m.def(
      "verify",
      [](const ir::direct::Program& program, std::size_t max_diagnostics) {
        return long_work([&] { return verify::direct::verify(program, {.max_diagnostics = max_diagnostics}); });
      },
      "program"_a, "max_diagnostics"_a = 10,
      "Proves that a one-sided program implements its collective, call after call, without races and deadlocks.");
  m.def(
      "check_v_form", [](const ir::Program& program) { unwrap(long_work([&] { return ir::trace_v_form(program); })); },
      "program"_a, "Raises GC3-V012, with the step, if calls whose blocks differ in length cannot run `program`.");
}

}  // namespace gc3::bindings
