#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "convert.h"
#include "gc3/base/diagnostic.h"
#include "gc3/base/knobs.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

void make_diagnostic(Diagnostic* self, std::string_view name, std::string message, std::string file, int line,
                     const std::vector<std::string>& notes) {
  for (const ErrorInfo& info : all_errors()) {
    if (info.name != name) continue;
    new (self) Diagnostic(info.id, std::move(message));
    self->at({std::move(file), line});
    for (const std::string& text : notes) self->note(text);
    return;
  }
  throw nb::key_error(("no error is named " + std::string(name)).c_str());
}

// The state of a diagnostic for pickle and copy: its name, then text, file and line of itself and of each note.
using PickledDiagnostic = std::tuple<std::string, std::vector<std::tuple<std::string, std::string, int>>>;

PickledDiagnostic pickle_diagnostic(const Diagnostic& d) {
  PickledDiagnostic state;
  std::get<0>(state) = d.info().name;
  std::get<1>(state).emplace_back(d.message, d.where.file, d.where.line);
  for (const Note& note : d.notes) std::get<1>(state).emplace_back(note.text, note.where.file, note.where.line);
  return state;
}

void unpickle_diagnostic(Diagnostic& self, PickledDiagnostic state) {
  bool is_note = false;
  for (auto& [text, file, line] : std::get<1>(state)) {
    if (is_note) {
      self.note(std::move(text), {std::move(file), line});
    } else {
      make_diagnostic(&self, std::get<0>(state), std::move(text), std::move(file), line, {});
    }
    is_note = true;
  }
}

}  // namespace

void bind_base(nb::module_& m) {
  nb::enum_<ErrorKind>(m, "ErrorKind", "Who has caused an error.")
      .value("User", ErrorKind::User)
      .value("Internal", ErrorKind::Internal)
      .value("Comm", ErrorKind::Comm);
  nb::class_<Stop>(m, "Stop", "Ends the long work of threads, those in which it is entered: see gc3.support.at_once.")
      .def(nb::init<>())
      .def("set", &Stop::set, "Ends their work with KeyboardInterrupt.")
      .def("__enter__", &Stop::enter, nb::sig("def __enter__(self) -> None"))
      .def(
          "__exit__", [](Stop& /*self*/, const nb::args& /*raised*/) { Stop::exit(); },
          nb::sig("def __exit__(self, *raised: object) -> None"));
  nb::class_<SourceLocation>(m, "SourceLocation", "A line of a user's file; empty file: unknown.")
      .def_ro("file", &SourceLocation::file)
      .def_ro("line", &SourceLocation::line);
  nb::class_<Note>(m, "Note", "A remark that belongs to a diagnostic.")
      .def_ro("text", &Note::text)
      .def_ro("where", &Note::where);
  nb::class_<Diagnostic>(m, "Diagnostic", "An error as data.")
      .def("__init__", &make_diagnostic, "name"_a, "message"_a = "", "file"_a = "", "line"_a = 0,
           "notes"_a = std::vector<std::string>(), "An error made in Python; `name` as in the error table.")
      .def_prop_ro("code", [](const Diagnostic& d) { return d.info().code; })
      .def_prop_ro("name", [](const Diagnostic& d) { return d.info().name; })
      .def_prop_ro("kind", [](const Diagnostic& d) { return d.info().kind; })
      .def_prop_ro("title", [](const Diagnostic& d) { return d.info().title; })
      .def_prop_ro("hint", [](const Diagnostic& d) { return d.info().hint; })
      .def_ro("message", &Diagnostic::message)
      .def_ro("where", &Diagnostic::where)
      .def_ro("notes", &Diagnostic::notes)
      .def("__str__", &Diagnostic::str)
      .def("__getstate__", &pickle_diagnostic)
      .def("__setstate__", &unpickle_diagnostic);
  nb::class_<ErrorInfo>(m, "ErrorInfo", "A row of the error table.")
      .def_ro("name", &ErrorInfo::name)
      .def_ro("code", &ErrorInfo::code)
      .def_ro("kind", &ErrorInfo::kind)
      .def_ro("title", &ErrorInfo::title)
      .def_ro("hint", &ErrorInfo::hint);
  m.def("shown", &shown, "text"_a, "The text for a terminal, with escapes in the place of invisible characters.");
  m.def("all_errors", &all_errors, "The table of all errors that a user can get.");
  nb::class_<Knobs>(m, "Knobs", "The values of the environment variables.")
#define GC3_KNOB(field, type, initial, variable, unit, doc) .def_ro(#field, &Knobs::field, doc)
#include "gc3/base/knobs.def"
#undef GC3_KNOB
      ;
  nb::class_<KnobInfo>(m, "KnobInfo", "A row of the table of environment variables.")
      .def_ro("field", &KnobInfo::field)
      .def_ro("variable", &KnobInfo::variable)
      .def_ro("initial", &KnobInfo::initial)
      .def_ro("unit", &KnobInfo::unit)
      .def_ro("doc", &KnobInfo::doc);
  m.def("all_knobs", &all_knobs, "The table of environment variables.");
  m.def(
      "environment_names",
      [] {
        nb::list names;
        for (const std::string& name : environment_names()) {
          names.append(nb::steal(PyUnicode_DecodeFSDefaultAndSize(name.data(), static_cast<Py_ssize_t>(name.size()))));
        }
        return nb::typed<nb::list, nb::str>(names);
      },
      "The names of all environment variables of this process.");
  m.def("read_knobs", [] { return unwrap(read_knobs()); }, "Reads the environment of this process.");
}

}  // namespace gc3::bindings
