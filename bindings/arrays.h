// What the bindings of the engines share: arrays as bytes, names of types, and running without the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "convert.h"
#include "gc3/model/types.h"

namespace gc3::bindings {

using Bytes = nanobind::ndarray<std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using ConstBytes = nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

struct Reduction {
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
};

inline Reduction parse_reduction(std::string_view type, std::string_view op) {
  const auto data_type = model::parse_data_type(type);
  if (!data_type) throw DiagnosticError({ErrorCode::BadDataType, "'" + std::string(type) + "'"});
  const auto reduce_op = model::parse_reduce_op(op);
  if (!reduce_op) throw DiagnosticError({ErrorCode::BadReduceOp, "'" + std::string(op) + "'"});
  return {*data_type, *reduce_op};
}

inline void check_size(const char* which, std::uint32_t rank, std::size_t given, std::size_t wanted) {
  if (given == wanted) return;
  throw DiagnosticError({ErrorCode::BadBuffer, "the " + std::string(which) + " of rank " + std::to_string(rank) +
                                                   " has " + std::to_string(given) + " bytes, not " +
                                                   std::to_string(wanted)});
}

// Whether Python wants the calling thread to stop; called without the GIL. The exception is raised after the run.
inline bool interrupted() {
  const nanobind::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

// Unwraps what `work` returns. Work that a signal ended has its exception set already; anything else that ended it is a
// diagnostic.
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
