#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/language.h"
#include "gc3/base/text.h"
#include "gc3/compiler/pipeline.h"
#include "limited_api.h"
#include "session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {

// The first argument of chunk() in 002. Its type distinguishes the call from the one of 000, which begins with a buffer
// name.
struct RankArgument {
  nb::handle value;
};

}  // namespace gc3::bindings

namespace nanobind::detail {
template <>
struct type_caster<gc3::bindings::RankArgument> {
  NB_TYPE_CASTER(gc3::bindings::RankArgument, const_name(GC3_PLACE))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (PyUnicode_Check(src.ptr())) return false;
    value.value = src;
    return true;
  }
};
}  // namespace nanobind::detail

namespace gc3::bindings {
namespace {

using compiler::Directives;
using compiler::Ref;
using compiler::Tracer;

PyRef make_chunk(nb::handle rank, nb::handle buffer, nb::handle index, nb::handle count, nb::handle size, nb::handle sz,
                 bool may_be_empty) {
  nb::object owner = current();
  Session& s = open_session(owner);
  const LocationId where = s.here();
  nb::handle n = count;
  for (const nb::handle alias : {size, sz}) {
    if (alias.is_none()) continue;
    if (!n.is_none()) s.fail(ErrorCode::BadArgument, "give one of count=, size= and sz=", where);
    n = alias;
  }
  const std::int64_t chunks = n.is_none() ? 1 : s.number(n, "count", where);
  const std::int64_t r = s.rank(rank, where);
  const compiler::BufferIndex b = s.buffer(buffer, where);
  Relative depends;
  const std::int64_t at = s.index(index, r, where, depends);
  Ref ref = unwrap(s.tracer.chunk(r, b, at, chunks, may_be_empty, where));
  s.depend(ref, depends, where);
  return {std::move(ref), &s, std::move(owner), std::move(depends)};
}

PyRef copy_ref(const PyRef& self, nb::handle rank, nb::handle buffer, nb::handle index, nb::handle count, nb::handle ch,
               nb::handle sendtb, nb::handle recvtb) {
  LocationId where;
  Session& s = session_of(self, where);
  if (!count.is_none() && s.number(count, "count", where) != self.ref.count) {
    s.fail(ErrorCode::BadCount,
           "count " + std::to_string(s.number(count, "count", where)) + " given to copy a reference to " +
               std::to_string(self.ref.count),
           where);
  }
  std::optional<compiler::BufferIndex> into;
  if (!buffer.is_none()) into = s.buffer(buffer, where);
  const std::int64_t r = s.rank(rank, where);
  std::optional<std::int64_t> at;
  Relative depends;
  if (!index.is_none()) {
    at = s.index(index, r, where, depends);
  } else if (!into && s.tracer.symmetry().exists()) {
    into = self.ref.named.buffer;
    depends = self.index;
    at = s.index(depends, r, where);
  }
  Ref ref = unwrap(s.tracer.copy(self.ref, r, into, at, s.directives(ch, sendtb, recvtb, where), where));
  if (!at) depends.constant = ref.named.index;  // appended
  s.depend(ref, depends, where);
  return {std::move(ref), &s, self.owner, std::move(depends)};
}

std::vector<PyRef> multicast_ref(const PyRef& self, nb::handle ranks, nb::handle buffer, nb::handle index,
                                 nb::handle ch) {
  LocationId where;
  Session& s = session_of(self, where);
  s.needs_all_ranks("a multicast", where);
  std::vector<std::int64_t> to;
  for (const nb::handle rank : ranks) to.push_back(s.flat(rank, "rank", where));
  std::optional<compiler::BufferIndex> into;
  if (!buffer.is_none()) into = s.buffer(buffer, where);
  std::optional<std::int64_t> at;
  if (!index.is_none()) at = s.flat(index, "index", where);
  std::vector<PyRef> made;
  for (Ref& ref :
       unwrap(s.tracer.multicast(self.ref, to, into, at, s.directives(ch, nb::none(), nb::none(), where), where))) {
    made.push_back({std::move(ref), &s, self.owner});
  }
  return made;
}

PyRef multireduce_ref(const PyRef& self, const std::vector<PyRef>& others, nb::handle ch) {
  LocationId where;
  Session& s = session_of(self, where);
  s.needs_all_ranks("a multireduce", where);
  std::vector<Ref> parts;
  for (const PyRef& other : others) {
    if (other.session != &s) s.fail(ErrorCode::WrongProgram, "", where);
    parts.push_back(other.ref);
  }
  Ref sum = unwrap(s.tracer.multireduce(self.ref, parts, s.directives(ch, nb::none(), nb::none(), where), where));
  return {std::move(sum), &s, self.owner};
}

// A reference to chunks beside or among those of another.
PyRef part_of(const PyRef& self, Ref ref, LocationId where) {
  Relative depends = self.index;
  depends.constant += std::int64_t{ref.named.index} - self.ref.named.index;
  self.session->depend(ref, depends, where);
  return {std::move(ref), self.session, self.owner, std::move(depends)};
}

std::vector<PyRef> split_ref(const PyRef& self, nb::handle parts) {
  LocationId where;
  Session& s = session_of(self, where);
  std::vector<PyRef> out;
  for (Ref& part : unwrap(s.tracer.split(self.ref, s.number(parts, "the number of parts", where), where)))
    out.push_back(part_of(self, std::move(part), where));
  return out;
}

PyRef group_refs(const PyRef& self, const PyRef& other) {
  LocationId where;
  Session& s = session_of(self, where);
  if (other.session != &s) s.fail(ErrorCode::WrongProgram, "", where);
  return part_of(self, unwrap(s.tracer.group(self.ref, other.ref, where)), where);
}

PyRef assign_from(const PyRef& self, const PyRef& source, nb::handle ch, nb::handle sendtb, nb::handle recvtb) {
  LocationId where;
  Session& s = session_of(self, where);
  if (source.session != &s) s.fail(ErrorCode::WrongProgram, "", where);
  if (self.ref.count != 1 && self.ref.count != source.ref.count) {
    s.fail(ErrorCode::UnequalCounts,
           std::to_string(source.ref.count) + " chunks assigned to a place of " + std::to_string(self.ref.count),
           where);
  }
  const auto& to = self.ref.named;
  Ref ref =
      unwrap(s.tracer.copy(source.ref, to.rank, to.buffer, to.index, s.directives(ch, sendtb, recvtb, where), where));
  s.depend(ref, self.index, where);
  return {std::move(ref), &s, self.owner, self.index};
}

PyRef reduce_ref(const PyRef& self, const PyRef& other, nb::handle ch, nb::handle sendtb, nb::handle recvtb) {
  LocationId where;
  Session& s = session_of(self, where);
  if (other.session != &s) s.fail(ErrorCode::WrongProgram, "", where);
  Ref ref = unwrap(s.tracer.reduce(self.ref, other.ref, s.directives(ch, sendtb, recvtb, where), where));
  return {std::move(ref), &s, self.owner, self.index};
}

Session* make_session(std::string name, const model::Collective& collective, bool in_place, std::string_view protocol,
                      std::vector<std::string> scratch, std::int64_t gpus_per_node, std::string file, int line,
                      bool open, std::string helpers) {
  const SourceLocation where{std::move(file), line};
  const auto parsed = model::parse_protocol(protocol);
  if (!parsed) fail(ErrorCode::BadProtocol, in_quotes(protocol), where);
  if (gpus_per_node < 0) fail(ErrorCode::BadArgument, "gpus per node must be positive", where);
  return new Session{
      unwrap(Tracer::create({std::move(name), collective, in_place, *parsed, std::move(scratch), open, where})),
      gpus_per_node,
      SourceLines(std::move(helpers)),
      true,
      nullptr,
      {},
      0};
}

// `with parallelize(n):`; a class here rather than in Python so that `here` is the user's own line.
struct Parallelize {
  explicit Parallelize(nb::object f) : factor(std::move(f)) {}
  nb::object factor;
  std::vector<nb::object> entered;  // the program of each block that is open: one object may serve several
};

compiler::Options options(std::uint32_t instances, std::uint32_t slots, std::uint32_t max_threadblocks, bool fuse,
                          std::vector<std::uint32_t> order, std::uint32_t window,
                          std::optional<std::uint32_t> scratch) {
  return {instances, slots, max_threadblocks, fuse, std::move(order), window, scratch.value_or(kNone)};
}

}  // namespace

void bind_compiler(nb::module_& m) {
  nb::class_<compiler::Trace>(m, "Trace", "The chunk operations of a program, in the order they were written.")
      .def_prop_ro("name", [](const compiler::Trace& t) { return t.name; })
      .def_prop_ro("operations", [](const compiler::Trace& t) { return t.ops.size(); })
      .def_prop_ro(
          "symmetric", [](const compiler::Trace& t) { return t.symmetry.exists(); },
          "Whether it is written from the view of one rank.")
      .def_ro("collective", &compiler::Trace::collective);

  nb::class_<PyRef>(m, "ChunkRef",
                    "The chunks at a location, valid until one of them is overwritten (002 section 3.3).")
      .def_prop_ro("rank", [](const PyRef& r) { return r.ref.named.rank; })
      .def_prop_ro("buffer",
                   [](const PyRef& r) { return r.session->tracer.trace().buffer_names.at(r.ref.named.buffer); })
      .def_prop_ro("index", [](const PyRef& r) { return r.ref.named.index; })
      .def_prop_ro("count", [](const PyRef& r) { return r.ref.count; })
      .def("__repr__",
           [](const PyRef& r) {
             return "<chunks of " +
                    compiler::describe(r.session->tracer.trace().buffer_names, r.ref.named, r.ref.count) + ">";
           })
      .def("copy", &copy_ref, "rank"_a, "buffer"_a = nb::none(), "index"_a = nb::none(), "count"_a = nb::none(),
           nb::kw_only(), "ch"_a = nb::none(), "sendtb"_a = nb::none(), "recvtb"_a = nb::none(),
           nb::sig("def copy(self, rank: " GC3_PLACE ", buffer: str | None = None, index: " GC3_PLACE " "
                   "| None = None, count: int | None = None, *, ch: int | None = None, sendtb: int | None = None, "
                   "recvtb: int | None = None) -> ChunkRef"),
           "Copies these chunks to (rank, buffer, index) and returns a reference to the copy. Without an index: to the "
           "end of a scratch buffer. With a rank alone: to the same place there.")
      .def("split", &split_ref, "parts"_a, nb::sig("def split(self, parts: int) -> list[ChunkRef]"),
           "Cuts the reference into `parts` references to equally many chunks each.")
      .def("group", &group_refs, "other"_a, nb::sig("def group(self, other: ChunkRef) -> ChunkRef"),
           "One reference to these chunks and those of `other`, next to them in the same buffer.")
      .def(
          "assign", &assign_from, "source"_a, nb::kw_only(), "ch"_a = nb::none(), "sendtb"_a = nb::none(),
          "recvtb"_a = nb::none(),
          nb::sig("def assign(self, source: ChunkRef, *, ch: int | None = None, sendtb: int | None = None, recvtb: int "
                  "| None = None) -> ChunkRef"),
          "Copies `source` to this place (the listings of 000) and returns a reference to the copy.")
      .def(
          "assign",
          [](const PyRef& self, RankArgument rank, nb::handle buffer, nb::handle index, nb::handle ch,
             nb::handle sendtb,
             nb::handle recvtb) { return copy_ref(self, rank.value, buffer, index, nb::none(), ch, sendtb, recvtb); },
          "rank"_a, "buffer"_a, "index"_a, nb::kw_only(), "ch"_a = nb::none(), "sendtb"_a = nb::none(),
          "recvtb"_a = nb::none(),
          nb::sig("def assign(self, rank: " GC3_PLACE ", buffer: str, index: " GC3_PLACE ", *, ch: int "
                  "| None = None, sendtb: int | None = None, recvtb: int | None = None) -> ChunkRef"),
          "The same as copy(): 000 section 5.4.")
      .def(
          "assign",
          [](const PyRef& self, nb::str buffer, nb::handle rank, nb::handle index, nb::handle ch, nb::handle sendtb,
             nb::handle recvtb) { return copy_ref(self, rank, buffer, index, nb::none(), ch, sendtb, recvtb); },
          "buffer"_a, "rank"_a, "index"_a, nb::kw_only(), "ch"_a = nb::none(), "sendtb"_a = nb::none(),
          "recvtb"_a = nb::none(),
          nb::sig("def assign(self, buffer: str, rank: " GC3_PLACE ", index: " GC3_PLACE ", *, ch: int "
                  "| None = None, sendtb: int | None = None, recvtb: int | None = None) -> ChunkRef"),
          "The same as copy(), buffer first: 000 table 1.")
      .def("reduce", &reduce_ref, "other"_a, nb::kw_only(), "ch"_a = nb::none(), "sendtb"_a = nb::none(),
           "recvtb"_a = nb::none(),
           nb::sig(
               "def reduce(self, other: ChunkRef, *, ch: int | None = None, sendtb: int | None = None, recvtb: int | "
               "None = None) -> ChunkRef"),
           "Reduces `other` into these chunks, in place, and returns a reference to the result.")
      .def("multicast", &multicast_ref, "ranks"_a, "buffer"_a = nb::none(), "index"_a = nb::none(), nb::kw_only(),
           "ch"_a = nb::none(),
           nb::sig("def multicast(self, ranks: collections.abc.Iterable[int | tuple[int, int]], buffer: str | None = "
                   "None, index: int | "
                   "tuple[int, int] | None = None, *, ch: int | None = None) -> list[ChunkRef]"),
           "Copies these chunks to the same place of several other ranks, and returns a reference to each copy. A "
           "switch that multicasts carries them once; without one, they are copies.")
      .def(
          "multireduce", &multireduce_ref, "others"_a, nb::kw_only(), "ch"_a = nb::none(),
          nb::sig("def multireduce(self, others: Sequence[ChunkRef], *, ch: int | None = None) -> ChunkRef"),
          "Reduces chunks of several other ranks into these, and returns a reference to the result. A switch that adds "
          "up carries the sum once; without one, they are reductions.");

  nb::class_<Session>(m, "Session", "A program while it is being traced.")
      .def(
          "check",
          [](Session& s, std::size_t limit) { return long_work([&] { return s.tracer.check_postcondition(limit); }); },
          "limit"_a = 10, "The places where the postcondition is not met so far.")
      .def(
          "scratch_buffer",
          [](Session& s, const std::string& name) { static_cast<void>(unwrap(s.tracer.scratch_buffer(name))); },
          "name"_a, "Makes a scratch buffer of that name if there is none.")
      .def("finish", [](Session& s) {
        s.open = false;
        return unwrap(long_work([&] { return s.tracer.finish(); }));
      });
  m.def("session", &make_session, "name"_a, "collective"_a, "in_place"_a, "protocol"_a, "scratch"_a, "gpus_per_node"_a,
        "file"_a, "line"_a, "open"_a = false, "helpers"_a = "", nb::rv_policy::take_ownership,
        "A new program. `open`: its outputs are required to hold what it makes. `helpers`: the beginning of the names "
        "of files whose code works for its callers, so that the lines of operations are theirs.");

  nb::class_<Parallelize>(m, "parallelize",
                          "`with parallelize(n):` runs the operations inside as n parallel parts, each on one n-th of "
                          "their data (002 section 5.1). Blocks nest: their factors multiply.")
      .def(nb::init<nb::object>(), "factor"_a, nb::sig("def __init__(self, factor: int) -> None"))
      .def("__enter__",
           [](Parallelize& p) {
             nb::object owner = current();
             Session& s = open_session(owner);
             const LocationId where = s.here();
             unwrap(s.tracer.push_factor(s.number(p.factor, "the factor", where), where));
             p.entered.push_back(std::move(owner));
           })
      .def(
          "__exit__",
          [](Parallelize& p, nb::args) {
            if (p.entered.empty()) fail(ErrorCode::BadParallelize, "a block ends that has not begun", caller());
            nb::inst_ptr<Session>(p.entered.back())->tracer.pop_factor();
            p.entered.pop_back();
          },
          nb::sig("def __exit__(self, *args: object) -> None"));

  m.def(
      "next_step", [] { open_session(current()).tracer.next_step(); },
      "Operations after this call come after those before it in the threadblocks that they share.");
  m.def("current_session", &current, "The program that this context traces, or None.");
  m.def("enter_session", [](nb::handle session) {
    nb::inst_ptr<Session>(session)->lines.enter();
    PyObject* token = PyContextVar_Set(current_variable(), session.ptr());
    if (token == nullptr) throw nb::python_error();
    return nb::steal(token);
  });
  m.def("leave_session", [](nb::handle token) {
    const nb::object left = current();
    if (!left.is_none()) nb::inst_ptr<Session>(left)->lines.leave();
    if (PyContextVar_Reset(current_variable(), token.ptr()) < 0) throw nb::python_error();
  });

  m.def(
      "chunk",
      [](RankArgument rank, nb::handle buffer, nb::handle index, nb::handle count, nb::handle size, nb::handle sz) {
        return make_chunk(rank.value, buffer, index, count, size, sz, false);
      },
      "rank"_a, "buffer"_a, "index"_a, "count"_a = nb::none(), nb::kw_only(), "size"_a = nb::none(),
      "sz"_a = nb::none(),
      nb::sig("def chunk(rank: " GC3_PLACE ", buffer: str, index: " GC3_PLACE ", count: int | None = "
              "None, *, size: int | None = None, sz: int | None = None) -> ChunkRef"),
      "A reference to `count` consecutive chunks now at (rank, buffer, index) (002 table 1).");
  m.def(
      "chunk",
      [](nb::str buffer, nb::handle rank, nb::handle index, nb::handle count, nb::handle size, nb::handle sz) {
        return make_chunk(rank, buffer, index, count, size, sz, true);
      },
      "buffer"_a, "rank"_a, "index"_a, "count"_a = nb::none(), nb::kw_only(), "size"_a = nb::none(),
      "sz"_a = nb::none(),
      nb::sig("def chunk(buffer: str, rank: " GC3_PLACE ", index: " GC3_PLACE ", count: int | None = "
              "None, *, size: int | None = None, sz: int | None = None) -> ChunkRef"),
      "The same with the buffer first (000 table 1); it may name an empty place, to assign() to.");

  m.def(
      "compile",
      [](const compiler::Trace& trace, std::uint32_t instances, std::uint32_t slots, std::uint32_t max_threadblocks,
         bool fuse, std::vector<std::uint32_t> order, std::uint32_t window, std::optional<std::uint32_t> scratch) {
        const compiler::Options asked =
            options(instances, slots, max_threadblocks, fuse, std::move(order), window, scratch);
        return unwrap(long_work([&] { return compiler::compile(trace, asked); }));
      },
      "trace"_a, "instances"_a = 1, "slots"_a = 2, "max_threadblocks"_a = 0, "fuse"_a = true,
      "order"_a = std::vector<std::uint32_t>(), "window"_a = 0, "scratch"_a = nb::none());
  m.def(
      "stages",
      [] { return std::vector<std::string_view>(compiler::kStageNames.begin(), compiler::kStageNames.end()); },
      "The stages of the compilation, in order, as `dump` takes them.");
  m.def(
      "dump",
      [](const compiler::Trace& trace, std::string_view stage, std::uint32_t instances, std::uint32_t slots,
         std::uint32_t max_threadblocks, bool fuse, std::vector<std::uint32_t> order, std::uint32_t window,
         std::optional<std::uint32_t> scratch) {
        const auto parsed = model::parse_name<compiler::Stage>(compiler::kStageNames, stage);
        if (!parsed) {
          std::string text("there is no stage ");
          text.append(in_quotes(stage)).append("; they are");
          for (const std::string_view name : compiler::kStageNames) text.append(" ").append(name);
          fail(ErrorCode::BadArgument, text);
        }
        const compiler::Options asked =
            options(instances, slots, max_threadblocks, fuse, std::move(order), window, scratch);
        return unwrap(long_work([&] { return compiler::dump(trace, asked, *parsed); }));
      },
      "trace"_a, "stage"_a, "instances"_a = 1, "slots"_a = 2, "max_threadblocks"_a = 0, "fuse"_a = true,
      "order"_a = std::vector<std::uint32_t>(), "window"_a = 0, "scratch"_a = nb::none());
}

}  // namespace gc3::bindings
