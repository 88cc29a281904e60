#include "operand.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "gc3/base/errors/common.h"

namespace nb = nanobind;

namespace gc3::bindings {
namespace {

// The first members of NumPy's array object (PyArrayObject in its C API), unchanged since NumPy 1.0. `Known` checks
// them against the attributes of an array.
struct NumpyArray {
  PyObject head;
  std::uint8_t* data;
  int dimensions;
  const Py_ssize_t* shape;
  const Py_ssize_t* strides;
  PyObject* base;
  PyObject* dtype;
  int flags;
};
constexpr int kContiguous = 0x1;
constexpr int kWritable = 0x400;

const NumpyArray& numpy_array(nb::handle array) { return *reinterpret_cast<const NumpyArray*>(array.ptr()); }

// Python objects that each call needs, looked up once.
struct Known {
  static constexpr std::size_t kTypes = model::kDataTypes.size();

  nb::object ndarray;
  nb::object empty;
  nb::object array;
  nb::object source;
  nb::object target;
  nb::object device_array;
  nb::object type_name;
  nb::object element;
  nb::object identity;
  nb::object op;
  nb::object operation;
  std::array<nb::object, kTypes> types;
  std::array<nb::object, model::kReduceOps.size()> ops;  // interned

  Known() {
    const nb::module_ numpy = nb::module_::import_("numpy");
    const nb::module_ datatypes = nb::module_::import_("gc3.datatypes");
    const nb::module_ arrays = nb::module_::import_("gc3.comm.arrays");
    ndarray = numpy.attr("ndarray");
    empty = numpy.attr("empty");
    array = numpy.attr("array");
    source = arrays.attr("source");
    target = arrays.attr("target");
    device_array = nb::module_::import_("gc3.cuda.arrays").attr("DeviceArray");
    type_name = datatypes.attr("name");
    element = datatypes.attr("element");
    identity = datatypes.attr("identity");
    op = datatypes.attr("op");
    operation = datatypes.attr("operation");
    const nb::object dtypes = datatypes.attr("DTYPES");
    for (std::size_t i = 0; i < kTypes; ++i) types[i] = dtypes[std::string(model::kDataTypes[i].name).c_str()];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ops[i] = nb::steal(PyUnicode_InternFromString(std::string(model::kReduceOps[i].name).c_str()));
    }
    check_layout();
  }

  // Refuses a NumPy with another layout of arrays, before memory is read wrongly.
  void check_layout() const {
    const nb::object made = empty(nb::make_tuple(2, 3), types[0]);
    const NumpyArray& a = numpy_array(made);
    const auto address = nb::cast<std::uintptr_t>(made.attr("ctypes").attr("data"));
    const bool same = reinterpret_cast<std::uintptr_t>(a.data) == address && a.dimensions == 2 && a.shape[0] == 2 &&
                      a.shape[1] == 3 && a.dtype == types[0].ptr() && (a.flags & kContiguous) != 0 &&
                      (a.flags & kWritable) != 0;
    if (!same) throw DiagnosticError({ErrorCode::Internal, "the array objects of this NumPy have an unknown layout"});
  }
};

// Made by the first call, and never deleted. Only the GIL guards it. The guard of a static initializer could deadlock:
// an import may release the GIL to another thread, which would wait for the guard while it holds the GIL.
const Known& known() {
  static const Known* found = nullptr;
  if (found == nullptr) {
    const Known* const made = new Known;
    if (found == nullptr) found = made;
  }
  return *found;
}

void set_type(Operand& operand, nb::handle dtype) {
  const Known& k = known();
  for (std::size_t i = 0; i < Known::kTypes; ++i) {
    if (k.types[i].ptr() != dtype.ptr()) continue;
    operand.type = static_cast<model::DataType>(i);
    return;
  }
  // For a type that equals a known one, or is moved as bytes; otherwise it raises.
  const auto [name, units, number] = nb::cast<std::tuple<std::string, std::size_t, std::int32_t>>(k.element(dtype));
  operand.type = *model::parse_data_type(name);
  operand.units = units;
  operand.known = number == 0;
  operand.number = static_cast<std::uint32_t>(number);
}

bool is_numpy(nb::handle x) {
  const auto* const type = reinterpret_cast<PyTypeObject*>(known().ndarray.ptr());
  return Py_TYPE(x.ptr()) == type || PyObject_TypeCheck(x.ptr(), const_cast<PyTypeObject*>(type)) != 0;
}

// Whether `x` is a NumPy array that can be used as it is. gc3.comm.arrays handles subclasses, and refuses masked
// arrays.
bool suits(nb::handle x, int flags) {
  return reinterpret_cast<PyObject*>(Py_TYPE(x.ptr())) == known().ndarray.ptr() &&
         (numpy_array(x).flags & flags) == flags;
}

Operand of_numpy(nb::object array) {
  const NumpyArray& a = numpy_array(array);
  Operand found;
  found.address = a.data;
  found.elements = 1;
  for (int i = 0; i < a.dimensions; ++i) found.elements *= static_cast<std::size_t>(a.shape[i]);
  set_type(found, a.dtype);
  found.writable = (a.flags & kWritable) != 0;
  found.array = std::move(array);
  return found;
}

Operand of_device(nb::object array) {
  Operand found;
  found.address = reinterpret_cast<std::uint8_t*>(nb::cast<std::uintptr_t>(array.attr("address")));
  found.elements = nb::cast<std::size_t>(array.attr("size"));
  set_type(found, array.attr("dtype"));
  found.writable = true;
  found.device = nb::cast<int>(array.attr("device"));
  found.stream = nb::cast<std::uintptr_t>(array.attr("stream"));
  found.array = std::move(array);
  return found;
}

// The operand of an array that gc3.comm.arrays has returned.
Operand of_made(nb::object array) { return is_numpy(array) ? of_numpy(std::move(array)) : of_device(std::move(array)); }

}  // namespace

nb::object Operand::shape() const {
  if (device != kHost) return array.attr("shape");
  const NumpyArray& a = numpy_array(array);
  nb::object made = nb::steal(PyTuple_New(a.dimensions));
  for (int i = 0; i < a.dimensions; ++i) PyTuple_SetItem(made.ptr(), i, PyLong_FromSsize_t(a.shape[i]));
  return made;
}

std::optional<std::string> Operand::untold_type() const {
  if (known || device != kHost) return {};
  return nb::cast<std::string>(bindings::known().identity(dtype()));
}

nb::object Operand::result() const { return device == kHost ? array : nb::object(array.attr("array")); }

Operand source(nb::handle x) {
  if (suits(x, kContiguous)) return of_numpy(nb::borrow(x));
  return of_made(known().source(x));
}

Operand target(nb::handle out) {
  if (suits(out, kContiguous | kWritable)) return of_numpy(nb::borrow(out));
  return of_made(known().target(out));
}

Operand like(const Operand& other, const nb::object& shape, std::shared_ptr<std::uint8_t> memory) {
  if (other.device != kHost) return of_device(other.array.attr("new")(shape));
  if (memory != nullptr) {
    nb::dict given;
    given["shape"] = shape;
    given["dtype"] = other.dtype();
    std::size_t elements = 1;
    for (const nb::handle length : shape) elements *= nb::cast<std::size_t>(length);
    given["buffer"] = as_bytes(std::move(memory), elements * other.units * model::size_of(other.type));
    return of_numpy(known().ndarray(**given));
  }
  PyObject* const arguments[] = {shape.ptr(), numpy_array(other.array).dtype};
  PyObject* const made = PyObject_Vectorcall(known().empty.ptr(), arguments, 2, nullptr);
  if (made != nullptr) return of_numpy(nb::steal(made));
  nb::python_error problem;
  if (!problem.matches(PyExc_MemoryError) && !problem.matches(PyExc_ValueError))
    throw problem;  // ValueError: NumPy's own limit
  throw DiagnosticError({ErrorCode::OutOfMemory, nb::str(problem.value()).c_str()});
}

Operand copy(const Operand& other) { return of_numpy(known().array(other.array)); }

bool is_like(nb::handle x, nb::handle shape, nb::handle dtype) {
  if (!suits(x, kContiguous)) return false;
  const NumpyArray& a = numpy_array(x);
  if (PyTuple_Size(shape.ptr()) != a.dimensions) return false;
  for (int i = 0; i < a.dimensions; ++i) {
    if (PyLong_AsSsize_t(PyTuple_GetItem(shape.ptr(), i)) != a.shape[i]) return false;
  }
  return a.dtype == dtype.ptr() || nb::handle(a.dtype).equal(dtype);
}

nb::object array_of(const std::uint8_t* data, std::uint64_t bytes, bool writable, nb::handle shape, nb::handle dtype,
                    nb::handle before) {
  static std::uint8_t nothing = 0;  // an array of no bytes has an address, too
  auto* const at = bytes == 0 ? &nothing : const_cast<std::uint8_t*>(data);
  if (Py_REFCNT(before.ptr()) == 1 && is_like(before, shape, dtype)) {
    const NumpyArray& a = numpy_array(before);
    if (a.data == at && ((a.flags & kWritable) != 0) == writable) return nb::borrow(before);
  }
  constexpr int kRead = 0x100;  // PyBUF_READ, which some versions of the limited API do not define
  constexpr int kWrite = 0x200;
  const nb::object memory = nb::steal(
      PyMemoryView_FromMemory(reinterpret_cast<char*>(at), static_cast<Py_ssize_t>(bytes), writable ? kWrite : kRead));
  return known().ndarray(shape, dtype, memory);
}

bool same_type(const Operand& a, const Operand& b) {
  return a.known && b.known ? a.type == b.type : a.dtype().equal(b.dtype());
}

std::optional<model::ReduceOp> plain_reduction(nb::handle op) {
  const Known& k = known();
  for (std::size_t i = 0; i < k.ops.size(); ++i) {
    if (k.ops[i].ptr() == op.ptr()) return static_cast<model::ReduceOp>(i);
  }
  return {};
}

model::ReduceOp reduction(nb::handle op) {
  if (const std::optional<model::ReduceOp> plain = plain_reduction(op)) return *plain;
  const nb::object name = known().op(op);  // raises if it is not a name
  return *model::parse_reduce_op(nb::cast<std::string_view>(name));
}

Operation operation(nb::handle op, const Operand& operand, std::uint32_t size, std::uint32_t rank) {
  return nb::cast<Operation>(known().operation(op, name_of(operand.type), size, rank));
}

void check_reducible(const Operand& operand) {
  if (!operand.known) known().type_name(operand.dtype());  // the error that lists what there is
}

}  // namespace gc3::bindings
