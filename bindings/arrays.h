// Helpers for the bindings of engines: arrays as bytes, names of types, and running without the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/thresholds.h"
#include "gc3/model/types.h"

namespace gc3::bindings {

// The memory of a contiguous array of any type and shape. The array is kept, and its length cannot change, as long as
// this object exists. Requesting plain bytes also works for types without a buffer format in NumPy, such as bfloat16.
template <bool kWritable>
class Memory {
 public:
  using Byte = std::conditional_t<kWritable, std::uint8_t, const std::uint8_t>;

  Memory() = default;
  Memory(Memory&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() { PyBuffer_Release(&view_); }

  bool hold(nanobind::handle array) noexcept {
    if (PyObject_GetBuffer(array.ptr(), &view_, kWritable ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0) return true;
    PyErr_Clear();  // nanobind raises an error with the signature of the function
    return false;
  }
  Byte* data() const { return static_cast<Byte*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

using Bytes = Memory<true>;
using ConstBytes = Memory<false>;

// Memory as an array of NumPy, which owns it.
inline nanobind::object as_bytes(std::shared_ptr<std::uint8_t> memory, std::size_t bytes) {
  std::uint8_t* const at = memory.get();
  const auto release = [](void* held) noexcept { delete static_cast<std::shared_ptr<std::uint8_t>*>(held); };
  const nanobind::capsule owner(new std::shared_ptr<std::uint8_t>(std::move(memory)), release);
  using Array = nanobind::ndarray<std::uint8_t, nanobind::numpy, nanobind::ndim<1>>;
  return nanobind::cast(Array(at, {bytes}, owner));
}

// An operation by name, and for premulsum the factors of the ranks that a call is for, one after the other.
struct Operation {
  std::string name = "sum";
  std::string factors = {};
};

// Thresholds by name; none is never.
using ThresholdList = std::vector<std::pair<std::string, std::optional<std::uint64_t>>>;
inline ThresholdChanges changes_of(const ThresholdList& thresholds) {
  ThresholdChanges changes;
  for (const auto& [name, value] : thresholds) {
    const std::string why = changes.set(name, value.value_or(Thresholds::kNever));
    if (!why.empty()) unwrap(Status(Diagnostic(ErrorCode::BadArgument, why)));
  }
  return changes;
}

struct Reduction {
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::vector<model::Factor> factors = {};

  model::Factor factor() const { return factors.empty() ? model::Factor() : factors.front(); }
};

inline Reduction parse_reduction(std::string_view type, const Operation& asked = {}) {
  const auto data_type = model::parse_data_type(type);
  if (!data_type) throw DiagnosticError({ErrorCode::BadDataType, "'" + std::string(type) + "'"});
  const auto reduce_op = model::parse_reduce_op(asked.name);
  if (!reduce_op) throw DiagnosticError({ErrorCode::BadReduceOp, "'" + asked.name + "'"});
  Reduction made{*data_type, *reduce_op};
  const std::size_t elem = model::size_of(*data_type);
  for (std::size_t at = 0; at + elem <= asked.factors.size(); at += elem) {
    made.factors.push_back(model::Factor::of(asked.factors.data() + at, *data_type));
  }
  return made;
}

// A whole number; -1, which none is, for anything else. An array has __index__ too, which raises.
inline std::int64_t whole_number(nanobind::handle given) {
  const Py_ssize_t found = PyIndex_Check(given.ptr()) != 0 ? PyNumber_AsSsize_t(given.ptr(), nullptr) : -1;  // clipped
  if (found == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
  return found;
}

inline void check_size(const char* which, std::uint32_t rank, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw DiagnosticError({ErrorCode::BadBuffer, "the " + std::string(which) + " of rank " + std::to_string(rank) +
                                                   " has " + std::to_string(given) + " bytes; expected " +
                                                   std::to_string(wanted)});
}

// Whether a signal handler of Python has raised an exception; called without the GIL. The exception is raised after the
// run.
inline bool interrupted() {
  const nanobind::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

// Runs `work` without the GIL and returns its value. Whoever holds a lock may need the GIL for `interrupted` or for a
// function of Python, so whatever may wait for one belongs here. If a signal has ended the work, the exception is set
// already and is raised; other failures are diagnostics.
template <class Work>
auto without_gil(Work work) {
  auto outcome = [&] {
    const nanobind::gil_scoped_release release;
    return std::optional(work());
  }();
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
  return unwrap(std::move(*outcome));
}

}  // namespace gc3::bindings

template <bool kWritable>
struct nanobind::detail::type_caster<gc3::bindings::Memory<kWritable>> {
  NB_TYPE_CASTER(gc3::bindings::Memory<kWritable>, const_name("gc3.datatypes.Array"))

  bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept { return value.hold(source); }
};
