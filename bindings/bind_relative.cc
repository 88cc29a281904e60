#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "convert.h"
#include "gc3/base/ids.h"
#include "gc3/compiler/pipeline.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/image.h"
#include "gc3/ir/text.h"
#include "gc3/verify/classes.h"
#include "limited_api.h"
#include "relative.h"
#include "session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 31;  // of the numbers of an index

[[noreturn]] void refuse(const std::string& why) { fail(ErrorCode::BadArgument, why, caller()); }

[[noreturn]] void asks_for_number(const char* how) {
  refuse(
      std::string(how) +
      " asks for a rank's own number; a program from one rank's view is the same on all ranks: add to coordinates of "
      "me(), and loop over what is added");
}

std::int64_t checked(std::int64_t value) {
  if (value < -kMost || value > kMost) refuse(std::to_string(value) + " is too large for an index");
  return value;
}

Relative plus(const Relative& a, std::int64_t by) {
  Relative out = a;
  checked(by);
  if (a.is_coordinate()) {
    Relative::Term& term = out.terms.front();
    term.offset = ((term.offset + by) % term.values + term.values) % term.values;
  } else {
    out.constant = checked(out.constant + by);
  }
  return out;
}

Relative plus(const Relative& a, const Relative& b) {
  Relative out = a;
  out.terms.insert(out.terms.end(), b.terms.begin(), b.terms.end());
  out.constant = checked(a.constant + b.constant);
  return out;
}

Relative times(const Relative& a, std::int64_t factor) {
  if (factor < 1) refuse("a coordinate times " + std::to_string(factor) + ": expected 1 or more");
  Relative out = a;
  for (Relative::Term& term : out.terms) term.factor = checked(term.factor * checked(factor));
  out.constant = checked(out.constant * factor);
  return out;
}

Relative modulo(const Relative& a, std::int64_t by) {
  if (!a.is_coordinate() || a.terms.front().values != by) asks_for_number("%");
  return a;  // coordinates count modulo their number of values
}

nb::tuple me(nb::args shape) {
  // Ranks are numbers of 32 bits, and a coordinate of one value says nothing.
  if (shape.size() > 32) fail(ErrorCode::BadArgument, "me() of more than 32 coordinates", caller());
  nb::object owner = current();
  Session& s = open_session(owner);
  const LocationId where = s.here();
  std::vector<std::uint32_t> values;
  for (const nb::handle given : shape) {
    const std::int64_t n = s.number(given, "the number of values of a coordinate", where);
    if (n < 1 || n > model::kMaxBufferChunks) {
      s.fail(ErrorCode::BadArgument, "a coordinate of " + std::to_string(n) + " values", where);
    }
    values.push_back(static_cast<std::uint32_t>(n));
  }
  if (values.empty()) s.fail(ErrorCode::BadArgument, "me() without the shape of the machine", where);
  unwrap(s.tracer.see_from_one_rank(values, where));
  nb::list out;
  for (std::uint32_t k = 0; k < values.size(); ++k) {
    Relative coordinate;
    coordinate.terms.push_back({k, values[k], 0, 1});
    out.append(nb::cast(std::move(coordinate)));
  }
  return nb::tuple(out);
}

}  // namespace

Relative Session::relative(nb::handle value, const char* what, LocationId where) const {
  Relative out;
  if (nb::isinstance<Relative>(value)) {
    out = nb::cast<Relative>(value);
  } else if (PyTuple_Check(value.ptr())) {
    const std::vector<std::uint32_t>& shape = tracer.symmetry().shape();
    if (static_cast<std::size_t>(PyTuple_Size(value.ptr())) != shape.size()) {
      fail(ErrorCode::BadArgument, std::string(what) + ": expected one part for each coordinate of me()", where);
    }
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const Relative part = relative(PyTuple_GetItem(value.ptr(), static_cast<Py_ssize_t>(k)), what, where);
      out = plus(times(out, shape[k]), part);
    }
  } else {
    out.constant = number(value, what, where);
  }
  return out;
}

std::int64_t Session::translation(nb::handle value, LocationId where) const {
  const model::Symmetry& machine = tracer.symmetry();
  const Relative given = relative(value, "rank", where);
  const model::Axes axes = machine.of_ranks(1);
  std::int64_t translation = 0;
  std::size_t known = 0;
  for (const Relative::Term& term : given.terms) {
    translation += term.offset * term.factor;
    const bool fits = std::ranges::any_of(axes, [&](const model::Axis& a) {
      return a.coordinate == term.coordinate && a.factor == term.factor && term.values == machine.shape()[a.coordinate];
    });
    known += fits ? 1 : 0;
    if (!fits && term.values != 1) known = axes.size() + 1;
  }
  if (known != axes.size() || given.constant != 0) {
    fail(ErrorCode::BadArgument,
         "rank " + nb::cast<std::string>(nb::repr(value)) +
             " is not one from me(): in a program from one rank's view, a rank is (node + a, gpu + b) with the "
             "coordinates that me() gave, in their order",
         where);
  }
  return translation;
}

std::int64_t Session::index(const Relative& value, std::int64_t rank, LocationId where) const {
  const model::Symmetry& machine = tracer.symmetry();
  std::int64_t at = value.constant;
  for (const Relative::Term& term : value.terms) {
    if (term.coordinate >= machine.shape().size() || term.values != machine.shape()[term.coordinate]) {
      fail(ErrorCode::WrongProgram, "a coordinate of another machine", where);
    }
    // Else a number that is added would carry into this digit.
    if (value.constant < 0 || (term.values > 1 && value.constant / term.factor % term.values != 0)) {
      fail(ErrorCode::BadArgument,
           "an index with " + std::to_string(value.constant) + " added, which reaches what moves by " +
               std::to_string(term.factor) + " with the rank: add to the coordinate",
           where);
    }
    const auto mine = static_cast<std::int64_t>(machine.coordinate(static_cast<std::uint32_t>(rank), term.coordinate));
    at += (term.offset - mine + term.values) % term.values * term.factor;
  }
  return at;
}

void Session::keep(const compiler::Ref& ref, const Relative& index, LocationId where) {
  model::Axes axes;
  for (const Relative::Term& term : index.terms) {
    if (term.values > 1) axes.push_back({term.coordinate, static_cast<std::uint32_t>(term.factor)});
  }
  unwrap(tracer.depend(ref, axes, where));
}

void bind_relative(nb::module_& m) {
  nb::class_<Relative> c(m, "Coordinate",
                         "A coordinate of the rank that a program is written for, or an index made of coordinates.");
  c.def(
       "__add__", [](const Relative& a, std::int64_t by) { return plus(a, by); }, "other"_a, nb::is_operator())
      .def(
          "__add__", [](const Relative& a, const Relative& b) { return plus(a, b); }, "other"_a, nb::is_operator())
      .def(
          "__radd__", [](const Relative& a, std::int64_t by) { return plus(a, by); }, "other"_a, nb::is_operator())
      .def(
          "__sub__", [](const Relative& a, std::int64_t by) { return plus(a, -checked(by)); }, "other"_a,
          nb::is_operator())
      .def(
          "__mul__", [](const Relative& a, std::int64_t factor) { return times(a, factor); }, "factor"_a,
          nb::is_operator())
      .def(
          "__rmul__", [](const Relative& a, std::int64_t factor) { return times(a, factor); }, "factor"_a,
          nb::is_operator())
      .def(
          "__mod__", [](const Relative& a, std::int64_t values) { return modulo(a, values); }, "values"_a,
          nb::is_operator())
      .def("__repr__", [](const Relative& a) {
        std::string out;
        for (const Relative::Term& t : a.terms) {
          out += (out.empty() ? "" : " + ") + std::string("(coordinate ") + std::to_string(t.coordinate) + " + " +
                 std::to_string(t.offset) + ") % " + std::to_string(t.values) + " * " + std::to_string(t.factor);
        }
        return "<" + out + (a.constant != 0 ? " + " + std::to_string(a.constant) : "") + ">";
      });
  struct Asking {
    const char* name;
    const char* signature;
    const char* told;
  };
  static constexpr Asking kAsking[] = {
      {"__index__", "def __index__(self) -> int", "use as a number"},
      {"__int__", "def __int__(self) -> int", "int()"},
      {"__bool__", "def __bool__(self) -> bool", "use as a condition"},
      {"__hash__", "def __hash__(self) -> int", "use as a key"},
      {"__neg__", "def __neg__(self) -> int", "-"},
      {"__eq__", "def __eq__(self, other: object) -> bool", "=="},
      {"__ne__", "def __ne__(self, other: object) -> bool", "!="},
      {"__lt__", "def __lt__(self, other: object) -> bool", "<"},
      {"__le__", "def __le__(self, other: object) -> bool", "<="},
      {"__gt__", "def __gt__(self, other: object) -> bool", ">"},
      {"__ge__", "def __ge__(self, other: object) -> bool", ">="},
      {"__rsub__", "def __rsub__(self, other: object) -> int", "-"},
      {"__rmod__", "def __rmod__(self, other: object) -> int", "%"},
      {"__and__", "def __and__(self, other: object) -> int", "&"},
      {"__or__", "def __or__(self, other: object) -> int", "|"},
      {"__xor__", "def __xor__(self, other: object) -> int", "^"},
      {"__lshift__", "def __lshift__(self, other: object) -> int", "<<"},
      {"__rshift__", "def __rshift__(self, other: object) -> int", ">>"},
      {"__truediv__", "def __truediv__(self, other: object) -> int", "/"},
      {"__floordiv__", "def __floordiv__(self, other: object) -> int", "//"},
  };
  for (const Asking& asking : kAsking) {
    c.def(
        asking.name, [how = asking.told](const Relative&, nb::args) -> nb::object { asks_for_number(how); },
        nb::sig(asking.signature));
  }
  m.def("me", &me, "shape"_a, nb::sig("def me(*shape: int) -> tuple[Coordinate, ...]"),
        "The coordinates of the rank that the program is written for, on a machine of this shape: from here on the "
        "program is written from the view of one rank, and the same on all of them.");
  nb::class_<ir::ClassProgram>(m, "ClassProgram", "A program of which rank 0 stands for all ranks.")
      .def_ro("representative", &ir::ClassProgram::representative, "The steps of rank 0 alone.")
      .def_prop_ro(
          "stands_for_all", [](const ir::ClassProgram& p) { return p.symmetry.exists(); },
          "Whether rank 0 does; else it was read from an image with the steps of all ranks.")
      .def(
          "expand", [](const ir::ClassProgram& p) { return unwrap(long_work([&] { return ir::expand(p); })); },
          "The program of all ranks.")
      .def(
          "expand_rank",
          [](const ir::ClassProgram& p, std::uint32_t rank) {
            if (rank >= p.ranks()) {
              throw DiagnosticError(
                  {ErrorCode::RankOutOfRange, "rank " + std::to_string(rank) + " of " + std::to_string(p.ranks())});
            }
            return unwrap(ir::expand(p, std::array{rank}));
          },
          "rank"_a, "The steps of this rank alone.")
      .def(
          "to_text", [](const ir::ClassProgram& p) { return ir::to_text(p); }, "The text form.")
      .def(
          "to_bytes",
          [](const ir::ClassProgram& p, bool source) {
            const std::vector<std::byte> image = ir::write_image(p, source);
            return nb::bytes(image.data(), image.size());
          },
          "source"_a = true, "The binary image, with the lines of the user's code or without.")
      .def_static(
          "from_bytes",
          [](const nb::bytes& image) {
            return unwrap(ir::read_classes({static_cast<const std::byte*>(image.data()), image.size()}));
          },
          "image"_a, "The program of an image.")
      .def(
          "save", [](const ir::ClassProgram& p, const std::string& path) { unwrap(ir::save(p, path)); }, "path"_a,
          "Writes the binary image.")
      .def(
          "save_text",
          [](const ir::ClassProgram& p, const std::string& path) {
            const std::string text = ir::to_text(p);
            unwrap(ir::write_file(path, std::as_bytes(std::span(text))));
          },
          "path"_a, "Writes the text form.");
  m.def(
      "compile_classes",
      [](const compiler::Trace& trace, std::uint32_t instances, std::uint32_t slots, std::uint32_t max_threadblocks,
         bool fuse, std::vector<std::uint32_t> order, std::uint32_t window, std::optional<std::uint32_t> scratch) {
        const compiler::Options asked{
            instances, slots, max_threadblocks, fuse, std::move(order), window, scratch.value_or(gc3::kNone)};
        return unwrap(long_work([&] { return compiler::compile_classes(trace, asked); }));
      },
      "trace"_a, "instances"_a = 1, "slots"_a = 2, "max_threadblocks"_a = 0, "fuse"_a = true,
      "order"_a = std::vector<std::uint32_t>(), "window"_a = 0, "scratch"_a = nb::none(),
      "The program of a trace from the view of one rank; None if the trace or an option treats ranks differently.");
  m.def(
      "verify_classes",
      [](const ir::ClassProgram& program, std::uint32_t slots, std::uint32_t max_threadblocks,
         std::uint32_t max_channels, std::size_t max_diagnostics, bool chunk_per_slot) {
        return long_work([&] {
          return verify::verify(program, {slots, max_threadblocks, max_channels, max_diagnostics, chunk_per_slot});
        });
      },
      "program"_a, "slots"_a = 0, "max_threadblocks"_a = 0, "max_channels"_a = 0, "max_diagnostics"_a = 10,
      "chunk_per_slot"_a = false, "Proves a program on the rank that stands for all.");
}

}  // namespace gc3::bindings
