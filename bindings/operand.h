// The description of an argument of a collective call: address, number of elements, type and device. It is made once
// for each call.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "arrays.h"
#include "gc3/model/types.h"

namespace gc3::bindings {

inline constexpr int kHost = -1;

// Contiguous memory. Elements of a type that the runtime does not know are moved as bytes.
struct Operand {
  nanobind::object array;  // a NumPy array, or a gc3.cuda.DeviceArray; null: this rank has no such buffer
  std::uint8_t* address = nullptr;
  std::size_t elements = 0;
  model::DataType type = model::DataType::float32;  // of what is moved
  std::size_t units = 1;                            // of `type`, in an element
  bool known = true;                                // whether `type` is the type of the elements
  bool writable = false;
  int device = kHost;
  std::uintptr_t stream = 0;  // of a device: the current stream of the array's library

  bool there() const { return array.is_valid(); }
  std::size_t bytes() const { return elements * units * model::size_of(type); }
  nanobind::object dtype() const { return array.attr("dtype"); }
  // Its shape, as a tuple.
  nanobind::object shape() const;
  // The object that the caller gets as the result.
  nanobind::object result() const;
};

// The array of an argument `x` to read from. Contiguous NumPy arrays are used as they are. gc3.comm.arrays converts all
// other objects, or raises an error.
Operand source(nanobind::handle x);
// The same for an argument `out` to write to.
Operand target(nanobind::handle out);
// A new array of the same type, on the same device.
Operand like(const Operand& other, const nanobind::object& shape);
// A copy of a NumPy array.
Operand copy(const Operand& other);

// Whether their memory overlaps.
bool overlap(const Operand& a, const Operand& b);

// The reduction of which `op` is the name, as the same object; none: it may still name one, or be a premulsum.
std::optional<model::ReduceOp> plain_reduction(nanobind::handle op);
// The reduction that `op` names.
model::ReduceOp reduction(nanobind::handle op);
// The same with the factor of `rank` among `size`, for premulsum of elements like those of `operand`.
Operation operation(nanobind::handle op, const Operand& operand, std::uint32_t size, std::uint32_t rank);
// What can be reduced; anything else is an error.
void check_reducible(const Operand& operand);

}  // namespace gc3::bindings
