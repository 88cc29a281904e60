// Calls of programs that compute: the chunks of their tensors, and the calls of Python's functions.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arrays.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/runtime/cpu/computing.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::bindings {

inline nanobind::object view_of(const std::uint8_t* data, std::uint64_t bytes, bool writable) {
  static std::uint8_t nothing = 0;  // a view of no bytes has an address, too
  auto* const at = bytes == 0 ? &nothing : const_cast<std::uint8_t*>(data);
  constexpr int kRead = 0x100;  // PyBUF_READ, which some versions of the limited API do not define
  constexpr int kWrite = 0x200;
  return nanobind::steal(
      PyMemoryView_FromMemory(reinterpret_cast<char*>(at), static_cast<Py_ssize_t>(bytes), writable ? kWrite : kRead));
}

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

// Calls `function(application, operands)` in the thread that executes the step.
inline cpu::Computing::Function caller_of(const interp::Plan& plan, const nanobind::callable& function) {
  return [&plan, &function](const cpu::Computation& computation) -> Status {
    const nanobind::gil_scoped_acquire acquire;
    const std::uint32_t reads = plan.compute.applications[computation.application].reads;
    try {
      nanobind::list operands;
      for (std::uint32_t k = 0; k < computation.operands.size(); ++k) {
        const interp::Extent& at = computation.operands[k];
        operands.append(view_of(k < reads ? at.src : at.dst, at.bytes, k >= reads));
      }
      function(computation.application, operands);
      return {};
    } catch (const nanobind::python_error& problem) {
      return raised(plan, computation, problem);
    }
  };
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
