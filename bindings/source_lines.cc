#include "source_lines.h"

#include <nanobind/stl/string.h>

#include <utility>

#include "limited_api.h"

namespace nb = nanobind;

namespace gc3::bindings {
namespace {

// Bounds the table of lines where functions call themselves.
constexpr int kMostCallers = 8;

nb::object code_of(PyFrameObject* frame) { return nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame))); }

nb::object caller_of(PyFrameObject* frame) { return nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame))); }

PyFrameObject* as_frame(const nb::object& object) { return reinterpret_cast<PyFrameObject*>(object.ptr()); }

std::string file_of(const nb::object& code) { return nb::cast<std::string>(code.attr("co_filename")); }

// Changes with the instruction that the frame executes. The code's address is unique while somebody keeps the code.
std::uint64_t position(PyFrameObject* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  const auto address = reinterpret_cast<std::uintptr_t>(code);
  Py_DECREF(code);  // the frame keeps it
#if PY_VERSION_HEX >= 0x030b0000
  const int at = PyFrame_GetLasti(frame);
#else
  const int at = PyFrame_GetLineNumber(frame);
#endif
  return (static_cast<std::uint64_t>(address) << 16U) ^ static_cast<std::uint64_t>(at);
}

}  // namespace

void SourceLines::enter() {
  PyFrameObject* frame = PyEval_GetFrame();  // of __enter__
  leave();
  if (frame == nullptr) return;
  const std::string file = file_of(code_of(frame));
  language_ = file.substr(0, file.find_last_of("/\\") + 1);
  first_ = caller_of(frame);
  while (!helpers_.empty() && first_.is_valid() && file_of(code_of(as_frame(first_))).starts_with(helpers_)) {
    first_ = caller_of(as_frame(first_));
  }
}

void SourceLines::leave() {
  first_.reset();
  base_.reset();
}

// Called for every operation, so the result is kept by the positions of the frames: a loop needs the same few often.
LocationId SourceLines::here(compiler::Tracer& tracer) {
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return LocationId::none();
  std::uint64_t key = position(frame);
  nb::object caller;  // keeps its frame in use
  PyFrameObject* at = frame;
  const auto is = [&](const nb::object& end) { return reinterpret_cast<PyObject*>(at) == end.ptr(); };
  for (int depth = 0; depth < kMostCallers && !is(base_) && !is(first_); ++depth) {
    caller = caller_of(at);
    if (!caller.is_valid()) break;
    at = as_frame(caller);
    key = key * 0x9e3779b97f4a7c15U + position(at);
  }
  if (key == last_key_) return last_id_;
  const auto found = seen_.find(key);
  last_id_ = found != seen_.end() ? found->second.id : add(tracer, frame, key);
  last_key_ = key;
  return last_id_;
}

LocationId SourceLines::add(compiler::Tracer& tracer, PyFrameObject* frame, std::uint64_t key) {
  Seen& seen = seen_[key];
  std::vector<SourceLocation> lines;  // from the operation outwards
  nb::object at = nb::borrow(reinterpret_cast<PyObject*>(frame));
  nb::object last;
  bool ended = false;
  for (int depth = 0; depth <= kMostCallers && !ended && at.is_valid(); ++depth) {
    const nb::object code = code_of(as_frame(at));
    const std::string file = file_of(code);
    const bool helps = !helpers_.empty() && file.starts_with(helpers_);
    ended = !helps && file.starts_with(language_);  // a list of steps has no lines
    if (ended) break;
    seen.codes.push_back(code);
    if (!helps) {
      lines.push_back({file, PyFrame_GetLineNumber(as_frame(at))});
      last = at;
    }
    ended = at.ptr() == first_.ptr() || nb::cast<std::string>(code.attr("co_name")) == "<module>";
    at = caller_of(as_frame(at));
  }
  // Frames that are not on the way to it would be mistaken for those of other calls, so it is kept only if the way is
  // complete.
  if (ended && last.is_valid()) base_ = last;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    seen.id = tracer.add_location(std::move(*line), seen.id);
  }
  return seen.id;
}

}  // namespace gc3::bindings
