// The collectives as methods of a communicator, from Python's arguments to a call of comm::Communicator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "arrays.h"
#include "communicator.h"
#include "gc3/base/errors/common.h"
#include "operand.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using comm::Call;
using comm::Signature;
using model::CollectiveKind;
using Self = nb::pointer_and_handle<Face>;

// The shape of a new result on n ranks, relative to the shape of the input.
enum class Result : std::uint8_t {
  same,     // the same
  joined,   // the first axis is n times as long
  divided,  // the first axis is an n-th
};

// The parameters of a method in addition to the input.
enum Takes : std::uint8_t { kOp = 1, kRoot = 2, kOut = 4 };

struct Method {
  const char* name;
  CollectiveKind kind;
  std::uint8_t takes;
  Result result;
  bool divides;           // whether the first axis of the input is divided among the ranks
  const char* signature;  // after "(self, "
  const char* returns;
  const char* doc;
};

constexpr const char* kReduces = "x: typing.Any, op: gc3.datatypes.Op = 'sum', out: typing.Any = None";
constexpr const char* kMoves = "x: typing.Any, out: typing.Any = None";
constexpr const char* kArray = "gc3.datatypes.Array";
constexpr const char* kMaybe = "gc3.datatypes.Array | None";

constexpr std::array<Method, 9> kMethods = {{
    {"all_reduce", CollectiveKind::allreduce, kOp | kOut, Result::same, false, kReduces, kArray,
     "Returns the reduction of all ranks' `x` on every rank; `out` may be `x`."},
    {"all_gather", CollectiveKind::allgather, kOut, Result::joined, false, kMoves, kArray,
     "Returns all ranks' `x`, joined along the first axis, on every rank; `x` may be this rank's part of `out`."},
    {"reduce_scatter", CollectiveKind::reducescatter, kOp | kOut, Result::divided, true, kReduces, kArray,
     "Returns part r of the reduction of all ranks' `x` on rank r, parts being equal along the first axis."},
    {"all_to_all", CollectiveKind::alltoall, kOut, Result::same, true, kMoves, kArray,
     "Returns, as part s along the first axis, part r of rank s's `x` on rank r; `out` may be `x`."},
    {"broadcast", CollectiveKind::broadcast, kRoot, Result::same, false, "x: typing.Any, root: int = 0", kArray,
     "Overwrites `x` with the root's `x` on every other rank, and returns it."},
    {"reduce", CollectiveKind::reduce, kOp | kRoot | kOut, Result::same, false,
     "x: typing.Any, op: gc3.datatypes.Op = 'sum', root: int = 0, out: typing.Any = None", kMaybe,
     "Returns the reduction of all ranks' `x` on the root, None elsewhere."},
    {"gather", CollectiveKind::gather, kRoot | kOut, Result::joined, false,
     "x: typing.Any, root: int = 0, out: typing.Any = None", kMaybe,
     "Returns all ranks' `x`, joined along the first axis, on the root, None elsewhere."},
    {"scatter", CollectiveKind::scatter, kRoot | kOut, Result::divided, true,
     "x: typing.Any, root: int = 0, out: typing.Any = None", kArray,
     "Returns part r along the first axis of the root's `x` on rank r; other ranks than the root need `out`."},
    {"all_to_next", CollectiveKind::alltonext, kOut, Result::same, false, kMoves, kMaybe,
     "Returns the `x` of the rank before this one; None on rank 0."},
}};

DiagnosticError bad_buffer(const std::string& why) { return DiagnosticError({ErrorCode::BadBuffer, why}); }

std::uint32_t root_rank(nb::handle root, std::uint32_t size) {
  if (PyIndex_Check(root.ptr()) != 0) {
    const Py_ssize_t given = PyNumber_AsSsize_t(root.ptr(), nullptr);  // clipped
    if (given >= 0 && given < static_cast<Py_ssize_t>(size)) return static_cast<std::uint32_t>(given);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  throw DiagnosticError({ErrorCode::RankOutOfRange,
                         "root " + std::string(nb::repr(root).c_str()) + " of " + std::to_string(size) + " ranks"});
}

// The shape of a new result.
nb::object new_shape(const nb::object& shape, Result how, std::uint32_t ranks) {
  if (how == Result::same) return shape;
  const auto sizes = nb::borrow<nb::tuple>(shape);
  if (how == Result::joined && sizes.size() == 0) return nb::make_tuple(ranks);
  nb::list made(sizes);
  const auto first = nb::cast<std::size_t>(sizes[0]);
  made[0] = how == Result::joined ? first * ranks : first / ranks;
  return nb::tuple(made);
}

void check_divides(const Operand& given, std::uint32_t ranks) {
  const nb::object shape = given.shape();
  const auto sizes = nb::borrow<nb::tuple>(shape);
  if (sizes.size() != 0 && nb::cast<std::size_t>(sizes[0]) % ranks == 0) return;
  throw bad_buffer("the first axis of the input, of " + std::string(nb::str(shape).c_str()) + ", does not divide by " +
                   std::to_string(ranks) + " ranks");
}

bool overlap(const Operand& a, const Operand& b) {
  const std::less<> before;  // of pointers into different buffers, too
  return a.bytes() != 0 && b.bytes() != 0 && before(a.address, b.address + b.bytes()) &&
         before(b.address, a.address + a.bytes());
}

// A call and the memory it works on.
struct Described {
  Call call;
  Operation operation;  // of premulsum
  Operand given;
  Operand result;
};

// The only place where the arguments of a call are inspected.
Described describe(const comm::Communicator& comm, const Method& method, nb::handle x, nb::handle op, nb::handle root,
                   nb::handle out) {
  Described d;
  d.call.kind = method.kind;
  if ((method.takes & kOp) != 0) d.call.op = reduction(op);
  if ((method.takes & kRoot) != 0) d.call.root = root_rank(root, comm.size());
  const Signature& asks = *unwrap(comm.signature(method.kind, d.call.root));
  Operand& given = d.given;
  Operand& result = d.result;
  if (method.kind == CollectiveKind::broadcast) {
    result = asks.input_blocks != 0 ? source(x) : target(x);
    if (!result.writable) result = copy(result);  // a program may write to its output even if nothing changes
    if (asks.input_blocks != 0) given = result;
  } else {
    if (asks.input_blocks != 0) {
      given = source(x);
      if (method.divides) check_divides(given, comm.size());
    }
    if (asks.output_blocks != 0) {
      if (!out.is_none()) {
        result = target(out);
      } else if (given.there()) {
        result = like(given, new_shape(given.shape(), method.result, comm.size()));
      } else {
        throw bad_buffer("this rank has no input to make an output from: give out=");
      }
    }
  }
  const Operand& known = given.there() ? given : result;
  d.call.count = known.elements / (given.there() ? asks.input_blocks : asks.output_blocks);
  d.call.type = known.type;
  if ((method.takes & kOp) != 0) {
    check_reducible(known);
    if (d.call.op == model::ReduceOp::premulsum) {
      d.operation = operation(op, known, comm.size(), comm.rank());
      d.call.factor = parse_reduction(name_of(known.type), d.operation).factor();
    }
  }
  if (given.there() && result.there()) {
    const bool same = given.known && result.known ? given.type == result.type : given.dtype().equal(result.dtype());
    if (!same) {
      throw bad_buffer("out is of " + std::string(nb::str(result.dtype()).c_str()) + ", the input of " +
                       nb::str(given.dtype()).c_str());
    }
    if (given.device != result.device) {
      const bool apart = given.device == kHost || result.device == kHost;
      throw bad_buffer(apart ? std::string("the input is on a device and out is not, or the reverse")
                             : "one array is on device " + std::to_string(given.device) + ", another on " +
                                   std::to_string(result.device));
    }
    if (result.elements != d.call.count * asks.output_blocks) {
      throw bad_buffer("out has " + std::to_string(result.elements) + " elements, not " +
                       std::to_string(d.call.count * asks.output_blocks));
    }
    // If the collective cannot be in place, because only the root would know it, the input is copied.
    if (!asks.alias && given.device == kHost && overlap(given, result)) given = copy(given);
  }
  d.call.count *= known.units;
  d.call.input = given.address;
  d.call.output = result.address;
  return d;
}

// A call on arrays of a device is put on a stream at once, because only the caller's thread knows the current stream.
void run_on_device(Self self, const Described& d) {
  comm::Communicator& comm = self.p->body();
  const Operand& typed = d.given.there() ? d.given : d.result;
  const select::CallShape shape = unwrap(comm.shape(d.call));
  without_gil([&] {
    comm.settle(interrupted);
    return comm.usable();
  });
  const auto address = [](const Operand& operand) {
    return operand.bytes() == 0 ? 0 : reinterpret_cast<std::uintptr_t>(operand.address);
  };
  const Operation op = d.operation.factors.empty() ? Operation{std::string(name_of(d.call.op)), {}} : d.operation;
  self.h.attr("_run_on_device")(unwrap(comm.recipe(shape)), typed.device, address(d.given), address(d.result),
                                d.call.count, name_of(d.call.type), op, typed.stream);
}

nb::object result_of(const Method& method, const comm::Communicator& comm, const Operand& result) {
  const bool nothing = method.kind == CollectiveKind::alltonext && comm.rank() == 0;
  return result.there() && !nothing ? result.result() : nb::none();
}

nb::object call(const Method& method, Self self, nb::handle x, nb::handle op, nb::handle root, nb::handle out) {
  comm::Communicator& comm = self.p->body();
  const Described d = describe(comm, method, x, op, root, out);
  if ((d.given.there() ? d.given : d.result).device != kHost) {
    run_on_device(self, d);
  } else {
    without_gil([&] { return comm.run(d.call, interrupted); });
  }
  return result_of(method, comm, d.result);
}

Handle start(const Method& method, Self self, nb::handle x, nb::handle op, nb::handle root, nb::handle out) {
  comm::Communicator& comm = self.p->body();
  const Described d = describe(comm, method, x, op, root, out);
  Handle handle{nb::borrow(self.h), {}, result_of(method, comm, d.result)};
  if ((d.given.there() ? d.given : d.result).device != kHost) {
    run_on_device(self, d);
    std::promise<Status> done;
    done.set_value({});
    handle.done = done.get_future().share();
  } else {
    handle.done = without_gil([&] { return comm.start(d.call); });
    self.p->keep(handle.done, nb::make_tuple(d.given.array.is_valid() ? d.given.array : nb::none(),
                                             d.result.array.is_valid() ? d.result.array : nb::none()));
  }
  return handle;
}

// Binds one method in its plain and asynchronous form, with the parameters that it takes.
template <class Function>
void add(nb::class_<Face>& to, const Method& method, const std::string& name, const std::string& returns,
         const std::string& doc, Function function) {
  const std::string text = "def " + name + "(self, " + method.signature + ") -> " + returns;
  const nb::sig signature(text.c_str());
  const Method* const m = &method;
  const nb::object sum = nb::steal(PyUnicode_InternFromString("sum"));
  const nb::object nothing = nb::none();
  const nb::object zero = nb::int_(0);
  const auto op = "op"_a.none() = sum;
  const auto root = "root"_a.none() = zero;
  const auto out = "out"_a.none() = nothing;
  const auto x = "x"_a.none();
  switch (method.takes) {
    case kOp | kOut:
      to.def(
          name.c_str(),
          [m, function](Self self, nb::handle array, nb::handle reduce, nb::handle into) {
            return function(*m, self, array, reduce, nb::handle(), into);
          },
          x, op, out, signature, doc.c_str());
      break;
    case kOut:
      to.def(
          name.c_str(),
          [m, function](Self self, nb::handle array, nb::handle into) {
            return function(*m, self, array, nb::handle(), nb::handle(), into);
          },
          x, out, signature, doc.c_str());
      break;
    case kRoot:
      to.def(
          name.c_str(),
          [m, function](Self self, nb::handle array, nb::handle at) {
            return function(*m, self, array, nb::handle(), at, nb::handle(Py_None));
          },
          x, root, signature, doc.c_str());
      break;
    case kRoot | kOut:
      to.def(
          name.c_str(),
          [m, function](Self self, nb::handle array, nb::handle at, nb::handle into) {
            return function(*m, self, array, nb::handle(), at, into);
          },
          x, root, out, signature, doc.c_str());
      break;
    default:
      to.def(
          name.c_str(),
          [m, function](Self self, nb::handle array, nb::handle reduce, nb::handle at, nb::handle into) {
            return function(*m, self, array, reduce, at, into);
          },
          x, op, root, out, signature, doc.c_str());
  }
}

}  // namespace

void bind_collectives(nb::class_<Face>& communicator) {
  for (const Method& method : kMethods) {
    const std::string name = method.name;
    add(communicator, method, name, method.returns, method.doc, call);
    add(communicator, method, name + "_async", "Handle[" + std::string(method.returns) + "]", "Starts `" + name + "`.",
        start);
  }
}

}  // namespace gc3::bindings
