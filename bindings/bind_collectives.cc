// The collectives as methods of a communicator, from Python's arguments to a call of comm::Communicator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "communicator.h"
#include "described.h"
#include "gc3/base/errors/common.h"
#include "operand.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using comm::Call;
using model::CollectiveKind;
using Self = nb::pointer_and_handle<Face>;

constexpr const char* kReduces = "x: typing.Any, op: gc3.datatypes.Op = 'sum', out: typing.Any = None";
constexpr const char* kMoves = "x: typing.Any, out: typing.Any = None";
constexpr const char* kArray = "gc3.datatypes.Array";
constexpr const char* kMaybe = "gc3.datatypes.Array | None";

constexpr std::array<Method, 9> kMethods = {{
    {"all_reduce", CollectiveKind::allreduce, kOp | kOut, NewShape::same, false, kReduces, kArray,
     "Returns the reduction of all ranks' `x` on every rank; `out` may be `x`."},
    {"all_gather", CollectiveKind::allgather, kOut, NewShape::joined, false, kMoves, kArray,
     "Returns all ranks' `x`, joined along the first axis, on every rank; `x` may be this rank's part of `out`."},
    {"reduce_scatter", CollectiveKind::reducescatter, kOp | kOut, NewShape::divided, true, kReduces, kArray,
     "Returns part r of the reduction of all ranks' `x` on rank r, parts being equal along the first axis."},
    {"all_to_all", CollectiveKind::alltoall, kOut, NewShape::same, true, kMoves, kArray,
     "Returns, as part s along the first axis, part r of rank s's `x` on rank r; `out` may be `x`."},
    {"broadcast", CollectiveKind::broadcast, kRoot, NewShape::same, false, "x: typing.Any, root: int = 0", kArray,
     "Overwrites `x` with the root's `x` on every other rank, and returns it."},
    {"reduce", CollectiveKind::reduce, kOp | kRoot | kOut, NewShape::same, false,
     "x: typing.Any, op: gc3.datatypes.Op = 'sum', root: int = 0, out: typing.Any = None", kMaybe,
     "Returns the reduction of all ranks' `x` on the root, None elsewhere."},
    {"gather", CollectiveKind::gather, kRoot | kOut, NewShape::joined, false,
     "x: typing.Any, root: int = 0, out: typing.Any = None", kMaybe,
     "Returns all ranks' `x`, joined along the first axis, on the root, None elsewhere."},
    {"scatter", CollectiveKind::scatter, kRoot | kOut, NewShape::divided, true,
     "x: typing.Any, root: int = 0, out: typing.Any = None", kArray,
     "Returns part r along the first axis of the root's `x` on rank r; other ranks than the root need `out`."},
    {"all_to_next", CollectiveKind::alltonext, kOut, NewShape::same, false, kMoves, kMaybe,
     "Returns the `x` of the rank before this one; None on rank 0."},
}};

using Timeout = std::optional<double>;

std::optional<std::string> untold_type(const Described& d) {
  return (d.given.there() ? d.given : d.result).untold_type();
}

// Reads the arguments of a call that is made next.
Described described(comm::Communicator& comm, const Method& method, nb::handle x, nb::handle op, nb::handle root,
                    nb::handle out, const Timeout& timeout, bool is_waited_for) {
  unwrap(core::check_timeout(timeout));
  Described d = describe(comm, method, x, op, root, out, lists_of(method, is_waited_for));
  if (timeout && is_on_device(d)) throw bad_buffer("an array on a device; timeout= is for calls on arrays of the host");
  d.call.timeout_s = timeout;
  if (const auto type = untold_type(d)) without_gil([&] { return comm.describe(*type, true); });
  return d;
}

// A call on arrays of a device is put on a stream at once, because only the caller's thread knows the current stream.
void run_on_device(Self self, const Described& d) {
  comm::Communicator& comm = self.p->body();
  const Operand& typed = d.given.there() ? d.given : d.result;
  const select::CallShape shape = unwrap(comm.shape(d.call));
  without_gil([&]() -> Status {
    GC3_CHECK(comm.settle(interrupted));
    return comm.usable();
  });
  const auto address = [](const Operand& operand) {
    return operand.bytes() == 0 ? 0 : reinterpret_cast<std::uintptr_t>(operand.address);
  };
  const Operation op = d.operation.factors.empty() ? Operation{std::string(name_of(d.call.op)), {}} : d.operation;
  self.h.attr("_run_on_device")(without_gil([&] { return comm.recipe(shape); }), typed.device, address(d.given),
                                address(d.result), d.call.count, name_of(d.call.type), op, typed.stream);
}

// Without memory for its program, the error says which call it is.
template <class Work>
auto within_memory(const Method& method, const Described& d, Work work) {
  try {
    return without_gil(work);
  } catch (const std::bad_alloc&) {
    throw DiagnosticError({ErrorCode::OutOfMemory, std::string(method.name) + " of " + std::to_string(d.call.count) +
                                                       " " + std::string(name_of(d.call.type)) +
                                                       " per block: an allocation has failed"});
  }
}

nb::object call_now(const Method& method, Self self, nb::handle x, nb::handle op, nb::handle root, nb::handle out,
                    const Timeout& timeout) {
  comm::Communicator& comm = self.p->body();
  const Described d = described(comm, method, x, op, root, out, timeout, true);
  if (is_on_device(d)) {
    run_on_device(self, d);
  } else {
    within_memory(method, d, [&] { return comm.run(d.call, interrupted); });
  }
  d.copy_out();
  return result_of(method, comm, d);
}

nb::object call(const Method& method, Self self, nb::handle x, nb::handle op, nb::handle root, nb::handle out,
                const Timeout& timeout) {
  return told(self.p->body(), [&] { return call_now(method, self, x, op, root, out, timeout); });
}

Handle start_now(const Method& method, Self self, nb::handle x, nb::handle op, nb::handle root, nb::handle out,
                 nb::handle done, const Timeout& timeout) {
  comm::Communicator& comm = self.p->body();
  const Described d = described(comm, method, x, op, root, out, timeout, false);
  Handle handle{nb::borrow(self.h), {}, result_of(method, comm, d)};
  if (is_on_device(d)) {
    if (!done.is_none()) throw bad_buffer("an array on a device; done= is for calls on arrays of the host");
    run_on_device(self, d);
    std::promise<Status> ended;
    ended.set_value({});
    handle.done = ended.get_future().share();
  } else {
    comm::Communicator::Done notify = when_done(done);
    handle.done = within_memory(method, d, [&] { return comm.start(d.call, std::move(notify)); });
    nb::list arrays;
    d.keep_in(arrays);
    self.p->keep(handle.done, arrays);
  }
  return handle;
}

Handle start(const Method& method, Self self, nb::handle x, nb::handle op, nb::handle root, nb::handle out,
             nb::handle done, const Timeout& timeout) {
  return told(self.p->body(), [&] { return start_now(method, self, x, op, root, out, done, timeout); });
}

// Calls that are made at once: each method notes one.
class Coalesced {
 public:
  Coalesced(nb::handle communicator, const Timeout& timeout) : owner_(nb::borrow(communicator)), timeout_(timeout) {
    unwrap(core::check_timeout(timeout));
  }

  nb::object add(const Method& method, nb::handle x, nb::handle op, nb::handle root, nb::handle out) {
    const comm::Communicator& comm = face().body();
    const Described d = describe(comm, method, x, op, root, out, Lists::used);
    if (is_on_device(d)) throw bad_buffer("an array on a device; calls made at once take arrays of the host");
    unwrap(comm.usable());
    calls_.push_back(d.call);
    calls_.back().timeout_s = timeout_;
    if (auto type = untold_type(d)) types_[calls_.size() - 1] = std::move(*type);
    d.keep_in(arrays_);
    nb::object result = result_of(method, comm, d);
    results_.append(result);
    return result;
  }
  nb::list run() {
    const auto [calls, arrays, results] = told_and_taken();
    without_gil([&] { return face().body().run(std::span<const Call>(calls), interrupted); });
    return results;
  }
  Handle start(nb::handle done) {
    comm::Communicator::Done notify = when_done(done);
    const auto [calls, arrays, results] = told_and_taken();
    Handle handle{owner_, {}, results};
    handle.done = without_gil([&] { return face().body().start(std::span<const Call>(calls), std::move(notify)); });
    face().keep(handle.done, arrays);
    return handle;
  }
  void forget() { static_cast<void>(taken()); }
  Face& face() const { return *nb::inst_ptr<Face>(owner_); }

 private:
  struct Taken {
    std::vector<Call> calls;
    nb::list arrays;
    nb::list results;
  };
  Taken told_and_taken() {
    std::string text;
    for (std::size_t i = 0; i < calls_.size() && !types_.empty(); ++i) {
      const auto type = types_.find(i);
      text += (i == 0 ? "" : ", ") + (type != types_.end() ? type->second : std::string(name_of(calls_[i].type)));
    }
    if (!text.empty()) without_gil([&] { return face().body().describe(text, true); });
    return taken();
  }
  Taken taken() {
    types_.clear();
    Taken all{std::exchange(calls_, {}), std::move(arrays_), std::move(results_)};
    arrays_ = nb::list();
    results_ = nb::list();
    return all;
  }

  nb::object owner_;
  Timeout timeout_;
  std::vector<Call> calls_;
  std::map<std::size_t, std::string> types_;  // of those whose elements are moved as bytes
  nb::list arrays_;
  nb::list results_;
};

nb::object note(const Method& method, Coalesced& self, nb::handle x, nb::handle op, nb::handle root, nb::handle out) {
  return told(self.face().body(), [&] { return self.add(method, x, op, root, out); });
}

// Binds one method in one form, with the parameters that it takes, and `rest`.
template <class Who, class... Rest, class Class, class Function, class... Extra>
void add(Class& to, const Method& method, const std::string& name, const std::string& takes, const std::string& doc,
         Function function, const Extra&... rest) {
  const std::string text = "def " + name + takes;
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
          [m, function](Who self, nb::handle array, nb::handle reduce, nb::handle into, Rest... more) {
            return function(*m, self, array, reduce, nb::handle(), into, more...);
          },
          x, op, out, rest..., signature, doc.c_str());
      break;
    case kOut:
      to.def(
          name.c_str(),
          [m, function](Who self, nb::handle array, nb::handle into, Rest... more) {
            return function(*m, self, array, nb::handle(), nb::handle(), into, more...);
          },
          x, out, rest..., signature, doc.c_str());
      break;
    case kRoot:
      to.def(
          name.c_str(),
          [m, function](Who self, nb::handle array, nb::handle at, Rest... more) {
            return function(*m, self, array, nb::handle(), at, nb::handle(Py_None), more...);
          },
          x, root, rest..., signature, doc.c_str());
      break;
    case kRoot | kOut:
      to.def(
          name.c_str(),
          [m, function](Who self, nb::handle array, nb::handle at, nb::handle into, Rest... more) {
            return function(*m, self, array, nb::handle(), at, into, more...);
          },
          x, root, out, rest..., signature, doc.c_str());
      break;
    default:
      to.def(
          name.c_str(),
          [m, function](Who self, nb::handle array, nb::handle reduce, nb::handle at, nb::handle into, Rest... more) {
            return function(*m, self, array, reduce, at, into, more...);
          },
          x, op, root, out, rest..., signature, doc.c_str());
  }
}

}  // namespace

void bind_collectives(nb::module_& m, nb::class_<Face>& communicator) {
  nb::class_<Coalesced> coalesced(
      m, "Coalesced",
      "Calls that are made at once. Each method notes a call and returns the array of its result, which it has when\n"
      "the ``with`` block has ended.");
  const nb::object nothing = nb::none();
  const auto done = "done"_a.none() = nothing;
  const auto timeout = "timeout"_a.none() = nothing;
  const std::string limited = ", timeout: float | None = None) -> ";
  const std::string notifies = ", done: collections.abc.Callable[[], object] | None = None";
  const std::string later = notifies + limited + "Handle[";
  const char* const notified = "; another thread calls `done` when it has ended, successfully or not.";
  for (const Method& method : kMethods) {
    const std::string name = method.name;
    const std::string takes = "(self, " + std::string(method.signature);
    const std::string returns = method.returns;
    add<Self, const Timeout&>(communicator, method, name, takes + limited + returns, method.doc, call, timeout);
    add<Self, nb::handle, const Timeout&>(communicator, method, name + "_async", takes + later + returns + "]",
                                          "Starts `" + name + "`" + notified, start, done, timeout);
    add<Coalesced&>(coalesced, method, name, takes + ") -> " + returns, method.doc, note);
  }
  coalesced
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Coalesced"))
      .def(
          "__exit__",
          [](Coalesced& self, nb::handle kind, nb::handle, nb::handle) {
            if (kind.is_none()) {
              told(self.face().body(), [&] { return self.run(); });
            } else {
              self.forget();
            }
          },
          "kind"_a.none(), "problem"_a.none(), "trace"_a.none(),
          nb::sig("def __exit__(self, kind: object, problem: object, trace: object) -> None"),
          "Makes the calls; after an exception none of them.")
      .def(
          "start",
          [](Coalesced& self, nb::handle when) { return told(self.face().body(), [&] { return self.start(when); }); },
          done, nb::sig(("def start(self" + notifies + ") -> Handle[list[typing.Any]]").c_str()),
          "Starts the calls noted so far, instead of a ``with`` block; their results are a list.");
  coalesced.def(
      "_refuse", [](Coalesced& self, const Diagnostic& problem) { refuse(self.face().body(), problem); }, "problem"_a,
      "As `Joined.refuse`.");
  communicator.def(
      "coalesce", [](Self self, const Timeout& most) { return Coalesced(self.h, most); }, timeout,
      nb::sig("def coalesce(self, timeout: float | None = None) -> Coalesced"),
      "Returns an object with the methods of collectives, which makes the calls at once at the end of its ``with``.\n\n"
      "Calls of one collective, type, reduction and root are one run of one program, without a copy into a joint\n"
      "buffer. All ranks make them in the same order. None of them may use what another writes.");
}

}  // namespace gc3::bindings
