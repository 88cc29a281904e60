#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "convert.h"
#include "gc3/compiler/direct/lower.h"
#include "gc3/ir/direct/program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {

void bind_direct(nb::module_& m) {
  using ir::direct::Program;
  nb::class_<Program>(m, "DirectProgram",
                      "A one-sided program: ranks load from and store into each other's registered buffers.")
      .def_ro("name", &Program::name)
      .def_ro("collective", &Program::collective)
      .def_prop_ro(
          "protocol", [](const Program&) { return "Direct"; },
          "By which the simulator finds the rates of such programs.")
      .def_prop_ro("rank_count", [](const Program& p) { return p.ranks.size(); })
      .def_prop_ro("threadblock_count", [](const Program& p) { return p.threadblocks.size(); })
      .def_prop_ro("step_count", [](const Program& p) { return p.steps.size(); })
      .def_prop_ro("operand_count", [](const Program& p) { return p.operands.size(); })
      .def_prop_ro("threadblocks_per_rank",
                   [](const Program& p) {
                     std::vector<std::uint32_t> counts;
                     for (const ir::direct::RankProgram& r : p.ranks) counts.push_back(r.tb_count);
                     return counts;
                   })
      .def("to_text", nb::overload_cast<const Program&>(&ir::direct::to_text), "The text form.")
      .def_static(
          "from_text",
          [](std::string_view text, const std::string& origin) {
            return unwrap(long_work([&] { return ir::direct::parse_text(text, origin); }));
          },
          "text"_a, "origin"_a = "<text>", "Reads the text form; `origin` names the file in errors.")
      .def(
          "__eq__", [](const Program& a, const Program& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def(
      "lower",
      [](const ir::Program& program, bool pushing) {
        return unwrap(long_work([&] { return compiler::direct::lower(program, pushing); }));
      },
      "program"_a, "pushing"_a = false,
      "A program of messages as one-sided moves: whoever keeps a value loads its terms; `pushing`: what is only moved "
      "is stored by the rank that has it.");
  m.def(
      "lower_to_packets",
      [](const ir::Program& program) {
        return unwrap(long_work([&] { return compiler::direct::lower_to_packets(program); }));
      },
      "program"_a, "The same as packets in the scratch of the ranks that would load, without signals.");
}

}  // namespace gc3::bindings
