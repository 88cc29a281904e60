#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

struct ComputeOperation {
  std::string name;
};

compiler::Tracer::OutPlace out_place(Session& s, nb::handle place, LocationId where) {
  if (!PyTuple_Check(place.ptr()) || PyTuple_Size(place.ptr()) != 3) {
    s.fail(ErrorCode::BadOperands, "out= is a place (rank, buffer, index), or a list of them for several results",
           where);
  }
  return {s.flat(PyTuple_GetItem(place.ptr(), 0), "rank", where), s.buffer(PyTuple_GetItem(place.ptr(), 1), where),
          s.flat(PyTuple_GetItem(place.ptr(), 2), "index", where)};
}

// On references, an operation of the program that is being traced; on values, a term of a postcondition.
nb::object call(nb::handle self, const nb::args& args, nb::handle out) {
  const ComputeOperation& operation = *nb::inst_ptr<ComputeOperation>(self);
  std::vector<const PyRef*> refs;
  for (const nb::handle arg : args) {
    if (nb::isinstance<PyRef>(arg)) refs.push_back(nb::inst_ptr<PyRef>(arg));
  }
  if (refs.empty()) return self.attr("term")(*args);
  LocationId where;
  Session& s = session_of(*refs.front(), where);
  if (refs.size() != args.size()) {
    s.fail(ErrorCode::BadOperands, operation.name + ": each operand is a reference to a chunk", where);
  }
  std::vector<compiler::Ref> operands;
  for (const PyRef* ref : refs) {
    if (ref->session != &s) s.fail(ErrorCode::WrongProgram, "", where);
    operands.push_back(ref->ref);
  }
  std::vector<compiler::Tracer::OutPlace> places;
  const bool several = PyList_Check(out.ptr());
  if (several) {
    for (const nb::handle place : nb::borrow<nb::list>(out)) places.push_back(out_place(s, place, where));
  } else {
    places.push_back(out_place(s, out, where));
  }
  std::vector<compiler::Ref> made = unwrap(s.tracer.apply(operation.name, operands, places, where));
  nb::list results;
  for (compiler::Ref& ref : made) results.append(nb::cast(PyRef{std::move(ref), &s, refs.front()->owner}));
  return several ? nb::object(results) : nb::object(results[0]);
}

}  // namespace

void bind_compute(nb::module_& m) {
  nb::class_<ComputeOperation>(m, "ComputeOperation", "A compute operation: an uninterpreted function of chunks.")
      .def(
          "__init__", [](ComputeOperation* made, std::string name) { new (made) ComputeOperation{std::move(name)}; },
          "name"_a)
      .def_ro("name", &ComputeOperation::name)
      .def(
          "__call__",
          [](nb::handle_t<ComputeOperation> self, const nb::args& args, nb::handle out) {
            return call(self, args, out);
          },
          "args"_a, nb::kw_only(), "out"_a = nb::none(),
          nb::sig("def __call__(self, *args: Any, out: Any = None) -> Any"),
          "Applies it to chunks of one rank: the results are at the places `out` of that rank. In expect= of custom(), "
          "to values.");
}

}  // namespace gc3::bindings
