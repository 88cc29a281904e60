// An argument of a call, read once: what comm::Operand says of its memory, and the array that Python has.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "arrays.h"
#include "gc3/comm/operand.h"
#include "gc3/model/types.h"

namespace gc3::bindings {

using comm::kHost;

struct Operand : comm::Operand {
  nanobind::object array;     // a NumPy array, or a gc3.cuda.DeviceArray; null: this rank has no such buffer
  std::uintptr_t stream = 0;  // of a device: the current stream of the array's library

  bool there() const { return array.is_valid(); }
  nanobind::object dtype() const { return array.attr("dtype"); }
  // Its shape, as a tuple.
  nanobind::object shape() const;
  // The type of elements that are moved as bytes, which the other ranks are told before the call; none: any other.
  std::optional<std::string> untold_type() const;
  // The object that the caller gets as the result.
  nanobind::object result() const;
};

// The array of an argument `x` to read from. Contiguous NumPy arrays are used as they are. gc3.comm.arrays converts all
// other objects, or raises an error.
Operand source(nanobind::handle x);
// The same for an argument `out` to write to.
Operand target(nanobind::handle out);
// A new array of the same type, on the same device; in `memory`, if there is some.
Operand like(const Operand& other, const nanobind::object& shape, std::shared_ptr<std::uint8_t> memory = {});
// A copy of a NumPy array.
Operand copy(const Operand& other);

// Whether it is a contiguous NumPy array of a shape, which is a tuple, and of a type.
bool is_like(nanobind::handle x, nanobind::handle shape, nanobind::handle dtype);
// A NumPy array of memory that others own. `before`: None, or one that was made for an earlier call. It is used again
// if it is the same, and nobody else has it.
nanobind::object array_of(const std::uint8_t* data, std::uint64_t bytes, bool writable, nanobind::handle shape,
                          nanobind::handle dtype, nanobind::handle before);

// Whether their elements are of one type.
bool same_type(const Operand& a, const Operand& b);

// The reduction of which `op` is the name, as the same object; none: it may still name one, or be a premulsum.
std::optional<model::ReduceOp> plain_reduction(nanobind::handle op);
// The reduction that `op` names.
model::ReduceOp reduction(nanobind::handle op);
// The same with the factor of `rank` among `size`, for premulsum of elements like those of `operand`.
Operation operation(nanobind::handle op, const Operand& operand, std::uint32_t size, std::uint32_t rank);
// What can be reduced; anything else is an error.
void check_reducible(const Operand& operand);

}  // namespace gc3::bindings
