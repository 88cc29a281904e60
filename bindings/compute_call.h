// Calls of programs that compute: the chunks of their tensors, and the calls of Python's functions.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/runtime/cpu/computing.h"
#include "gc3/runtime/interp/plan.h"
#include "operand.h"

namespace gc3::bindings {

// "rank 1 threadblock 0 step 3 (apply, ring.py:12)" of the k-th application.
inline std::string place_of(const interp::Plan& plan, std::uint32_t application) {
  for (std::uint32_t t = 0; t < plan.threadblocks.size(); ++t) {
    for (std::uint32_t s = 0; s < plan.threadblocks[t].step_count; ++s) {
      const interp::Step& step = plan.steps[plan.threadblocks[t].first_step + s];
      if (step.opcode == interp::Op::apply && step.src.chunk == application) return plan.place(t, s);
    }
  }
  return "";
}

// str(object) as UTF-8, whatever it holds; "" if it has none: classes of the user may raise there, too.
inline std::string text_of(nanobind::handle object) {
  const nanobind::object text = nanobind::steal(PyObject_Str(object.ptr()));
  const nanobind::object bytes =
      nanobind::steal(text.is_valid() ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace") : nullptr);
  if (bytes.is_valid()) return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
  PyErr_Clear();
  return "";
}

// What a function has raised, at its own line.
inline Diagnostic raised(const interp::Plan& plan, const cpu::Computation& done,
                         const nanobind::python_error& problem) {
  const ir::Application& a = plan.compute.applications[done.application];
  const std::string name = plan.collective.custom_data()->operations[a.operation];
  const std::string what = text_of(problem.type().attr("__name__")) + ": " + text_of(problem.value());
  Diagnostic told(ErrorCode::ComputeFailed, name + " of " + place_of(plan, done.application) + " has raised " + what);
  nanobind::object trace = nanobind::borrow(problem.traceback());
  for (; trace.is_valid() && !trace.is_none(); trace = trace.attr("tb_next")) {
    if (!trace.attr("tb_next").is_none()) continue;
    const std::string file = text_of(trace.attr("tb_frame").attr("f_code").attr("co_filename"));
    told.note("raised here", {file, nanobind::cast<int>(trace.attr("tb_lineno"))});
    break;
  }
  return told;
}

// An application, as Python keeps it: a tuple of the function, the shapes and the type of its operands, None or what
// takes the seconds of each call, and a list for the arrays, which later calls use again.
inline void call_function(const interp::Plan& plan, nanobind::handle application, const cpu::Computation& done) {
  const auto part = [&](Py_ssize_t k) { return nanobind::borrow(PyTuple_GetItem(application.ptr(), k)); };
  const nanobind::object function = part(0), shapes = part(1), dtype = part(2), times = part(3), arrays = part(4);
  const ir::Application& a = plan.compute.applications[done.application];
  const std::size_t results = done.operands.size() - a.reads;
  std::vector<nanobind::object> operands;
  std::vector<PyObject*> arguments;
  for (std::uint32_t k = 0; k < done.operands.size(); ++k) {
    const auto at = static_cast<Py_ssize_t>(k);
    const bool reads = k < a.reads;
    const interp::Extent& memory = done.operands[k];
    operands.push_back(array_of(reads ? memory.src : memory.dst, memory.bytes, !reads, PyList_GetItem(shapes.ptr(), at),
                                dtype, PyList_GetItem(arrays.ptr(), at)));
    if (reads) arguments.push_back(operands.back().ptr());
    PyList_SetItem(arrays.ptr(), at, nanobind::object(operands.back()).release().ptr());
  }
  nanobind::object out = operands.back();
  if (results != 1) {
    out = nanobind::steal(PyTuple_New(static_cast<Py_ssize_t>(results)));
    for (std::size_t k = 0; k < results; ++k) {
      PyTuple_SetItem(out.ptr(), static_cast<Py_ssize_t>(k), nanobind::object(operands[a.reads + k]).release().ptr());
    }
  }
  arguments.push_back(out.ptr());
  static PyObject* const names = nanobind::make_tuple("out").release().ptr();
  const auto begin = std::chrono::steady_clock::now();
  const nanobind::object made = nanobind::steal(PyObject_Vectorcall(function.ptr(), arguments.data(), a.reads, names));
  if (!made.is_valid()) throw nanobind::python_error();
  if (!times.is_none()) times(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  if (made.is_none() || made.is(out)) return;
  const std::string& name = plan.collective.custom_data()->operations[a.operation];
  const std::string what = name + " has returned " + text_of(made.type().attr("__name__")) + ": it has to fill out=";
  PyErr_SetString(PyExc_TypeError, what.c_str());
  throw nanobind::python_error();
}

// Runs a program that computes: `run` with what calls the functions, in the threads that execute the steps. What ends
// programs, as Ctrl-C does, is no error of a function where it was raised.
template <class Run>
void compute(const interp::Plan& plan, const nanobind::list& applications, const Run& run) {
  std::optional<nanobind::python_error> ended;
  const cpu::Computing::Function call = [&](const cpu::Computation& done) -> Status {
    const nanobind::gil_scoped_acquire acquire;
    try {
      const auto at = static_cast<Py_ssize_t>(done.application);
      call_function(plan, nanobind::borrow(PyList_GetItem(applications.ptr(), at)), done);
      return {};
    } catch (nanobind::python_error& problem) {
      Diagnostic told = raised(plan, done, problem);
      if (!problem.matches(PyExc_Exception)) ended.emplace(std::move(problem));
      return told;
    }
  };
  Status status;
  without_gil([&] {
    status = run(call);
    return Status();
  });
  if (!status.ok() && ended) throw std::move(*ended);
  unwrap(std::move(status));
}

// The addresses of the chunks of tensors, one after the other.
template <class Array>
std::vector<std::uint8_t*> chunks_of(const model::Collective& collective, std::uint32_t rank, bool outputs,
                                     const std::vector<Array>& arrays, const std::vector<std::uint64_t>& counts,
                                     std::size_t elem) {
  std::vector<std::uint8_t*> chunks;
  std::size_t next = 0;
  for (const model::Tensor& t : collective.custom_data()->tensors) {
    if ((t.buffer == model::Buffer::output) != outputs) continue;
    if (next == arrays.size() || t.length >= counts.size()) unwrap(Status(Diagnostic(ErrorCode::BadBuffer, t.name)));
    const Array& array = arrays[next++];
    const std::size_t bytes = counts[t.length] * elem;
    check_size(t.name.c_str(), rank, array.size(), bytes * t.chunks[rank]);
    for (std::uint32_t k = 0; k < t.chunks[rank]; ++k)
      chunks.push_back(const_cast<std::uint8_t*>(array.data()) + k * bytes);
  }
  return chunks;
}

}  // namespace gc3::bindings
