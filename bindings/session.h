// A program while it is being traced, and references to its chunks, as Python holds them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/language.h"
#include "gc3/compiler/tracer.h"
#include "limited_api.h"
#include "relative.h"
#include "source_lines.h"

namespace gc3::bindings {

[[noreturn]] inline void fail(ErrorId code, std::string message, SourceLocation where = {}) {
  throw DiagnosticError(Diagnostic(code, std::move(message)).at(std::move(where)));
}

// A program while it is being traced, with the conversions from Python's arguments to those of the tracer.
struct Session {
  compiler::Tracer tracer;
  std::int64_t gpus_per_node;  // 0: ranks are plain numbers
  SourceLines lines;
  bool open = true;

  PyObject* last_buffer_name = nullptr;  // borrowed from last_buffer_object
  nanobind::object last_buffer_object;
  compiler::BufferIndex last_buffer = 0;

  LocationId here() { return lines.here(tracer); }

  [[noreturn]] void fail(ErrorId code, std::string message, LocationId where) const {
    throw DiagnosticError(tracer.at(Diagnostic(code, std::move(message)), where));
  }

  std::int64_t number(nanobind::handle value, const char* what, LocationId where) const {
    if (PyLong_Check(value.ptr())) {
      const long long n = PyLong_AsLongLong(value.ptr());
      if (n != -1 || !PyErr_Occurred()) return n;
      PyErr_Clear();
      fail(ErrorCode::BadArgument, std::string(what) + " is too large", where);
    }
    if (PyIndex_Check(value.ptr())) {
      const nanobind::object as_int = nanobind::steal(PyNumber_Index(value.ptr()));
      if (as_int.is_valid()) return number(as_int, what, where);
      PyErr_Clear();
    }
    fail(ErrorCode::BadArgument,
         std::string(what) + " must be a whole number, not " + nanobind::cast<std::string>(nanobind::repr(value)),
         where);
  }

  // An int, or a (node, gpu) pair that stands for node * G + gpu.
  std::int64_t flat(nanobind::handle value, const char* what, LocationId where) const {
    if (!PyTuple_Check(value.ptr())) return number(value, what, where);
    if (PyTuple_Size(value.ptr()) != 2)
      fail(ErrorCode::BadArgument, std::string(what) + " must be a number or a (node, gpu) pair", where);
    if (gpus_per_node == 0) {
      fail(ErrorCode::RankOutOfRange, std::string(what) + " given as a pair, but the program has no gpus per node",
           where);
    }
    const std::int64_t node = number(PyTuple_GetItem(value.ptr(), 0), what, where);
    const std::int64_t gpu = number(PyTuple_GetItem(value.ptr(), 1), what, where);
    if (gpu < 0 || gpu >= gpus_per_node || node < 0 || node > (std::int64_t{1} << 40) / gpus_per_node) {
      fail(ErrorCode::RankOutOfRange,
           std::string(what) + " (" + std::to_string(node) + ", " + std::to_string(gpu) + ") with " +
               std::to_string(gpus_per_node) + " gpus per node",
           where);
    }
    return node * gpus_per_node + gpu;
  }

  // A rank; in a program from one rank's view the translation that leads to it.
  std::int64_t rank(nanobind::handle value, LocationId where) const {
    return tracer.symmetry().exists() ? translation(value, where) : flat(value, "rank", where);
  }
  // An index of that rank; in such a program the one that this rank gives to its own place, and how it depends on it.
  std::int64_t index(nanobind::handle value, std::int64_t rank, LocationId where, Relative& depends) const {
    if (!tracer.symmetry().exists()) return flat(value, "index", where);
    depends = relative(value, "index", where);
    return index(depends, rank, where);
  }
  std::int64_t index(const Relative& value, std::int64_t rank, LocationId where) const;
  Relative relative(nanobind::handle value, const char* what, LocationId where) const;
  void depend(const compiler::Ref& ref, const Relative& index, LocationId where) {
    if (tracer.symmetry().exists()) keep(ref, index, where);
  }
  // Refuses what needs all ranks.
  void needs_all_ranks(const char* what, LocationId where) const {
    if (tracer.symmetry().exists())
      fail(ErrorCode::BadArgument, std::string(what) + " in a program from one rank's view", where);
  }

  // The same where there is such a view: of a rank, and of what a reference depends on.
  std::int64_t translation(nanobind::handle value, LocationId where) const;
  void keep(const compiler::Ref& ref, const Relative& index, LocationId where);

  compiler::BufferIndex buffer(nanobind::handle name, LocationId where) {
    if (name.ptr() == last_buffer_name) return last_buffer;
    if (!PyUnicode_Check(name.ptr())) {
      fail(ErrorCode::UnknownBuffer, nanobind::cast<std::string>(nanobind::repr(name)) + " is not a buffer name",
           where);
    }
    auto found = tracer.buffer(nanobind::cast<std::string>(name));
    if (!found.ok()) throw DiagnosticError(tracer.at(found.error(), where));
    last_buffer_object = nanobind::borrow(name);
    last_buffer_name = name.ptr();
    last_buffer = found.value();
    return last_buffer;
  }

  std::int32_t directive(nanobind::handle value, const char* what, LocationId where) const {
    if (value.is_none()) return compiler::kAuto;
    const std::int64_t n = number(value, what, where);
    if (n < 0 || n > 32767) {
      fail(std::string_view(what) == "ch" ? ErrorCode::BadChannel : ErrorCode::BadThreadblock,
           std::string(what) + "=" + std::to_string(n) + " is not in 0 to 32767", where);
    }
    return static_cast<std::int32_t>(n);
  }

  compiler::Directives directives(nanobind::handle ch, nanobind::handle sendtb, nanobind::handle recvtb,
                                  LocationId where) const {
    return {directive(ch, "ch", where), directive(sendtb, "sendtb", where), directive(recvtb, "recvtb", where)};
  }
};

struct PyRef {
  compiler::Ref ref;
  Session* session;
  nanobind::object owner;  // keeps the session alive
  Relative index = {};     // in a program from one rank's view
};

// The program being traced by this context: `with program:` sets it.
inline PyObject* current_variable() {
  static PyObject* variable = PyContextVar_New("gc3_program", nullptr);
  return variable;
}

inline nanobind::object current() {
  PyObject* value = nullptr;
  if (PyContextVar_Get(current_variable(), Py_None, &value) < 0) throw nanobind::python_error();
  return nanobind::steal(value);
}

// The caller's line if there is no session that caches it.
inline SourceLocation caller() {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return {};
  const nanobind::object code = nanobind::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  return {nanobind::cast<std::string>(code.attr("co_filename")), PyFrame_GetLineNumber(frame)};
}

inline Session& open_session(const nanobind::object& owner) {
  if (owner.is_none()) fail(ErrorCode::NoProgram, "", caller());
  Session& s = *nanobind::inst_ptr<Session>(owner);
  if (!s.open) fail(ErrorCode::NoProgram, "this program is already finished", caller());
  return s;
}

inline Session& session_of(const PyRef& ref, LocationId& where) {
  Session& s = open_session(ref.owner);
  where = s.here();
  const nanobind::object now = current();
  if (now.ptr() != ref.owner.ptr()) {
    s.fail(now.is_none() ? ErrorCode::NoProgram : ErrorCode::WrongProgram, "", where);
  }
  return s;
}

}  // namespace gc3::bindings
