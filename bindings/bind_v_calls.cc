// Calls whose blocks have lengths of their own: from what the caller passes to a comm::VCall. comm/v_form.h checks it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "communicator.h"
#include "described.h"
#include "gc3/base/errors/common.h"
#include "operand.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using Rows = std::vector<std::uint64_t>;

// The arrays of a buffer: one with all of its blocks, or one for each.
struct Blocks {
  std::vector<Operand> parts;
  comm::VBuffer memory;
  nb::object row_shape;   // of a row, as a tuple
  std::uint64_t row = 1;  // elements of a row

  bool there() const { return !parts.empty(); }
  const Operand& first() const { return parts.front(); }
  std::uint64_t row_units() const { return row * first().units; }
  const comm::VBuffer* place() const { return there() ? &memory : nullptr; }

  void add(Operand part) {
    if (part.device != kHost) {
      throw bad_buffer("an array on a device: blocks of lengths of their own are moved on the host");
    }
    nb::tuple shape(part.shape());
    if (shape.size() == 0) {  // a number is a row
      shape = nb::make_tuple(1);
      part.array = part.array.attr("reshape")(shape);
    }
    memory.at.push_back(part.address);
    memory.rows.push_back(nb::cast<std::uint64_t>(shape[0]));
    row_shape = nb::steal(PyTuple_GetSlice(shape.ptr(), 1, static_cast<Py_ssize_t>(shape.size())));
    if (!there()) {
      for (const nb::handle length : row_shape) row *= nb::cast<std::uint64_t>(length);
    }
    parts.push_back(std::move(part));
  }
};

// `read` is `source` or `target`.
template <class Read>
Blocks blocks_of(nb::handle given, std::uint32_t blocks, bool listed, const char* what, Read read) {
  Blocks found;
  found.memory.is_list = listed && is_list(given);
  if (!found.memory.is_list) {
    found.add(read(given));
    return found;
  }
  if (nb::len(given) != blocks) {
    throw bad_buffer(std::string(what) + " is a list of " + std::to_string(nb::len(given)) + " arrays, not " +
                     std::to_string(blocks));
  }
  for (const nb::handle one : given) {
    const nb::object shape = found.row_shape;
    found.add(read(one));
    if (shape.is_valid() && !(same_type(found.parts.back(), found.first()) && shape.equal(found.row_shape))) {
      throw bad_buffer(std::string(what) + " is a list of arrays whose rows differ in type or shape");
    }
  }
  return found;
}

void check_alike(const Blocks& given, const Blocks& result) {
  if (!given.there() || !result.there()) return;
  check_types(given.first(), result.first());
  if (given.row_shape.equal(result.row_shape)) return;
  throw bad_buffer("out has rows of shape " + std::string(nb::str(result.row_shape).c_str()) + ", the input of " +
                   nb::str(given.row_shape).c_str());
}

// A new buffer of such rows.
Blocks made_like(const Blocks& other, const Rows& rows) {
  std::uint64_t all = 0;
  for (const std::uint64_t one : rows) all += one;
  Blocks made;
  made.add(like(other.first(), nb::make_tuple(all) + other.row_shape));
  return made;
}

void copy_apart(Blocks& given, const Blocks& result) {
  bool shared = false;
  for (const Operand& one : given.parts) {
    for (const Operand& other : result.parts) shared = shared || comm::overlap(one, other);
  }
  if (!shared) return;
  for (std::size_t i = 0; i < given.parts.size(); ++i) {
    given.parts[i] = copy(given.parts[i]);
    given.memory.at[i] = given.parts[i].address;
  }
}

// What the caller gets: an array, a list of arrays, or with `split` one of parts of an array.
nb::object value_of(const Blocks& result, const Rows& rows, bool split) {
  if (!result.there()) return nb::none();
  if (!result.memory.is_list && !split) return result.first().array;
  nb::list all;
  Py_ssize_t at = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Py_ssize_t end = at + static_cast<Py_ssize_t>(rows[i]);
    all.append(split ? nb::object(result.first().array[nb::slice(at, end)]) : result.parts[i].array);
    at = end;
  }
  return all;
}

nb::object keep(const Blocks& given, const Blocks& result) {
  nb::list all;
  for (const Blocks* blocks : {&given, &result}) {
    for (const Operand& one : blocks->parts) all.append(one.array);
  }
  return all;
}

struct Arguments {
  nb::handle x;
  nb::handle counts;
  nb::handle expected;
  nb::handle op;
  nb::handle root;
  nb::handle out;
  std::optional<double> timeout;
};

// The arrays of a call with so many blocks.
std::pair<Blocks, Blocks> read_blocks(model::CollectiveKind kind, std::uint32_t inputs, std::uint32_t outputs,
                                      const Arguments& of) {
  Blocks given;
  Blocks result;
  if (inputs != 0) given = blocks_of(of.x, inputs, comm::is_divided(kind), "the input", source);
  if (outputs != 0 && !of.out.is_none()) result = blocks_of(of.out, outputs, true, "out", target);
  if (!given.there() && !result.there()) {
    throw bad_buffer("this rank has no input to make an output from: give out=");
  }
  check_alike(given, result);
  return {std::move(given), std::move(result)};
}

nb::object start_v(nb::pointer_and_handle<Face> owner, comm::VCall call, nb::object value, nb::object arrays,
                   comm::Communicator::Done notify) {
  Handle handle{nb::borrow(owner.h), {}, std::move(value)};
  handle.done = without_gil([&] { return owner.p->body().start(std::move(call), std::move(notify)); });
  owner.p->keep(handle.done, std::move(arrays));
  return nb::cast(std::move(handle));
}

nb::object make_v(nb::pointer_and_handle<Face> owner, std::string_view name, const Arguments& of, bool later,
                  nb::handle done) {
  comm::Communicator& comm = owner.p->body();
  comm::Communicator::Done notify = when_done(done);  // before any exchange
  unwrap(core::check_timeout(of.timeout));
  comm::VCall call;
  call.kind = unwrap(model::parse_collective(name));
  call.op = reduction(of.op);
  call.root = root_rank(of.root, comm.size());
  call.timeout_s = of.timeout;
  const bool exchanges = call.kind == model::CollectiveKind::alltoall;
  const model::Collective collective = unwrap(comm.v_collective(call.kind, call.root));
  const std::uint32_t inputs = collective.input_blocks(comm.rank());
  const std::uint32_t outputs = collective.output_blocks(comm.rank());
  const std::optional<comm::VGiven> counts = counts_of(of.counts, exchanges ? "send_counts" : "counts");
  const std::optional<comm::VGiven> expected = counts_of(of.expected, "recv_counts");
  auto [given, result] = read_blocks(call.kind, inputs, outputs, of);
  const Blocks& typed = given.there() ? given : result;
  if (call.kind == model::CollectiveKind::reducescatter) check_reducible(typed.first());
  if (const auto type = typed.first().untold_type()) without_gil([&] { return comm.describe(*type, true); });
  call.type = typed.first().type;
  comm::VKnown known{call.kind, call.type, call.op, call.root, typed.row_units()};
  known.timeout_s = of.timeout;
  known = unwrap(
      comm::known_of(std::move(known), comm.size(), comm.rank(), counts, expected, given.place(), result.place()));
  comm::VCounts all = without_gil([&] { return comm.agree(known, interrupted); });
  all.row = known.row;  // for the others 0 says nothing, but here it is that of the arrays
  unwrap(comm::elements_of(collective, call.type, all));  // before there is an array for them
  const Rows rows = comm::lengths_of(collective, comm.rank(), model::Buffer::output, all.counts);
  const bool split = exchanges && given.memory.is_list && !result.there();
  if (outputs != 0 && !result.there()) result = made_like(typed, rows);
  if (model::is_rooted(call.kind)) copy_apart(given, result);  // only the root would know that it is in place
  unwrap(comm::complete(call, collective, comm.rank(), known, all, given.place(), result.place()));
  nb::object value = value_of(result, rows, split);
  if (later) return start_v(owner, std::move(call), std::move(value), keep(given, result), std::move(notify));
  without_gil([&] { return comm.run(call, interrupted); });
  return value;
}

// A number of rows, or none for anything else.
std::optional<std::uint64_t> rows_in(nb::handle given) {
  const std::int64_t number = whole_number(given);
  if (number < 0 || static_cast<std::uint64_t>(number) > comm::kMostBytes) return {};
  return static_cast<std::uint64_t>(number);
}

std::optional<nb::list> listed(nb::handle given) {
  PyObject* const list = PySequence_List(given.ptr());
  if (list != nullptr) return nb::steal<nb::list>(list);
  PyErr_Clear();
  return {};
}

std::string shown(nb::handle given) { return nb::repr(given).c_str(); }

}  // namespace

std::optional<comm::VGiven> counts_of(nb::handle given, const char* what) {
  if (given.is_none()) return {};
  const std::optional<nb::list> all = listed(given);
  if (!all) throw bad_buffer(std::string(what) + " is " + shown(given) + ", not a number for each rank");
  comm::VGiven found;
  found.is_matrix = all->size() != 0 && PyObject_Size((*all)[0].ptr()) >= 0;
  if (PyErr_Occurred() != nullptr) PyErr_Clear();  // what has no length is a number
  if (!found.is_matrix) found.lists.emplace_back();
  for (const nb::handle one : *all) {
    const std::optional<nb::list> row = found.is_matrix ? listed(one) : nb::list();
    if (!row || (!found.lists.empty() && found.is_matrix && row->size() != found.lists[0].size())) {
      throw bad_buffer(std::string(what) + " is " + shown(given) + ", not rows of equal length");
    }
    if (found.is_matrix) found.lists.emplace_back();
    const auto add = [&](nb::handle number) {
      const std::optional<std::uint64_t> rows = rows_in(number);
      if (!rows) {
        throw bad_buffer(std::string(what) + "=" + shown(number) + "; expected a whole number from 0 to " +
                         std::to_string(comm::kMostBytes));
      }
      found.lists.back().push_back(*rows);
    };
    if (!found.is_matrix) add(one);
    for (const nb::handle number : *row) add(number);
  }
  return found;
}

void bind_v_calls(nb::class_<Joined>& joined) {
  joined.def_static(
      "call_v",
      [](nb::pointer_and_handle<Face> owner, std::string_view collective, nb::handle x, nb::handle counts,
         nb::handle expected, nb::handle op, nb::handle root, nb::handle out, std::optional<double> timeout, bool later,
         nb::handle done) {
        return told(owner.p->body(), [&] {
          return make_v(owner, collective, {x, counts, expected, op, root, out, timeout}, later, done);
        });
      },
      "owner"_a, "collective"_a, "x"_a.none(), "counts"_a.none(), "expected"_a.none(), "op"_a, "root"_a, "out"_a.none(),
      "timeout"_a.none(), "later"_a, "done"_a.none(),
      nb::sig("def call_v(owner: Communicator, collective: str, x: typing.Any, counts: typing.Any, expected: "
              "typing.Any, op: gc3.datatypes.Op, root: typing.Any, out: typing.Any, timeout: float | None, "
              "later: bool, done: collections.abc.Callable[[], object] | None) -> typing.Any"),
      "Collective: a call whose blocks have lengths of their own. `later`: starts it, and returns a handle.");
}

}  // namespace gc3::bindings
