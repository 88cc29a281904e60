#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>

#include "arrays.h"
#include "communicator.h"
#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/comm/communicator.h"
#include "gc3/compiler/direct/lower.h"
#include "gc3/runtime/select/program_folder.h"

namespace nb = nanobind;
using namespace nb::literals;

// Limits of rows are pairs in Python, and a transport is a text.
template <class T, int least, bool closed>
struct nb::detail::type_caster<gc3::select::Range<T, least, closed>>
    : nb::detail::type_caster<std::pair<T, std::optional<T>>> {
  using Value = gc3::select::Range<T, least, closed>;
  using Pair = nb::detail::type_caster<std::pair<T, std::optional<T>>>;
  template <class>
  using Cast = Value;
  static nb::handle from_cpp(const Value& value, nb::rv_policy policy, nb::detail::cleanup_list* cleanup) noexcept {
    return Pair::from_cpp(std::pair(value.first, value.last), policy, cleanup);
  }
  explicit operator Value() {
    auto [first, last] = Pair::operator std::pair<T, std::optional<T>>();
    return {first, last};
  }
};

template <>
struct nb::detail::type_caster<gc3::TransportKind> {
  NB_TYPE_CASTER(gc3::TransportKind, const_name("str"))
  bool from_python(nb::handle source, std::uint8_t flags, nb::detail::cleanup_list* cleanup) noexcept {
    make_caster<std::string_view> name;
    const bool text = name.from_python(source, flags, cleanup);
    const auto kind = text ? gc3::parse_transport(name.value) : std::nullopt;
    value = kind.value_or(gc3::TransportKind::none);
    return kind.has_value();
  }
  static nb::handle from_cpp(gc3::TransportKind kind, nb::rv_policy policy,
                             nb::detail::cleanup_list* cleanup) noexcept {
    return make_caster<std::string_view>::from_cpp(name_of(kind), policy, cleanup);
  }
};

namespace gc3::bindings {
namespace {

using select::CallShape;
using select::Limits;
using select::Recipe;
using select::Row;
using select::Selection;

// A Python function that C++ holds. It is released with the GIL held, on any thread.
std::shared_ptr<nb::object> held(nb::object function) {
  return {new nb::object(std::move(function)), [](nb::object* last) {
            if (Py_IsInitialized() == 0) return;  // the interpreter has freed its memory
            const nb::gil_scoped_acquire acquire;
            delete last;
          }};
}

// The diagnostic of an exception that a Python function has raised. Exceptions other than gc3's, such as
// KeyboardInterrupt, stay raised, and are handled when the GIL is acquired again.
Diagnostic problem_of(nb::python_error& raised) {
  const nb::object base = nb::module_::import_("gc3.errors").attr("Gc3Error");
  if (raised.matches(base)) return nb::cast<Diagnostic>(raised.value().attr("diagnostics")[0]);
  Diagnostic problem(ErrorCode::Internal, nb::str(raised.value()).c_str());
  raised.restore();
  return problem;
}

// `compile`(ranks, root, in_place, hosts, order of ranks) is called when a call first needs the program.
std::shared_ptr<const Recipe> make_recipe(nb::object compile, std::string text, std::uint32_t slots,
                                          std::uint64_t slot_bytes, const ThresholdList& thresholds, bool renames,
                                          bool direct) {
  const auto ask = [function = held(std::move(compile))](const CallShape& call) -> Result<ir::ClassProgram> {
    const nb::gil_scoped_acquire acquire;
    try {
      const std::vector<std::uint32_t> order = call.order ? *call.order : std::vector<std::uint32_t>();
      const nb::object made = (*function)(call.ranks, call.root, call.in_place, call.nodes, order);
      if (nb::isinstance<ir::ClassProgram>(made)) return nb::cast<ir::ClassProgram>(made);
      return bindings::as_read(nb::cast<ir::Program>(made));
    } catch (nb::python_error& raised) {
      return problem_of(raised);
    }
  };
  std::function<Result<ir::direct::Program>(const ir::Program&)> lower;
  if (direct) lower = [](const ir::Program& program) { return compiler::direct::lower(program); };
  return std::make_shared<const Recipe>(
      Recipe{ask, std::move(text), slots, slot_bytes, changes_of(thresholds), renames, lower});
}

// `generate`(text of a program, ranks, size, texts of those tried) returns the recipe of another one, or None.
comm::Generation generation_of(nb::object generate, std::shared_ptr<comm::Allowance> allowance) {
  const auto ask = [function = held(std::move(generate))](
                       const std::string& base, const CallShape& call,
                       const std::vector<std::string>& tried) -> Result<std::shared_ptr<const Recipe>> {
    const nb::gil_scoped_acquire acquire;
    try {
      const nb::object found = (*function)(base, call.ranks, call.size, tried);
      return found.is_none() ? nullptr : nb::cast<std::shared_ptr<const Recipe>>(found);
    } catch (nb::python_error& raised) {  // nobody waits for it: it is told where the program is explained
      return Diagnostic(ErrorCode::Internal, nb::repr(raised.value()).c_str());
    } catch (const std::exception& raised) {
      return Diagnostic(ErrorCode::Internal, raised.what());
    }
  };
  return {ask, std::move(allowance)};
}

// The kind of a collective, and the name of a custom one, which has a condition.
std::pair<model::CollectiveKind, std::string> kind_of(std::string_view collective, std::string_view condition) {
  if (!condition.empty()) return {model::CollectiveKind::custom, std::string(collective)};
  return {unwrap(model::parse_collective(collective)), ""};
}

Row make_row(std::string_view collective, const Limits& limits, std::shared_ptr<const Recipe> recipe,
             std::string source, std::string note, std::optional<bool> adapt, const std::string& condition) {
  const auto [kind, name] = kind_of(collective, condition);
  return {kind, name, condition, limits, std::move(recipe), adapt, std::move(source), std::move(note)};
}

}  // namespace

void bind_select(nb::module_& m) {
  nb::class_<Recipe>(m, "Recipe", "How to make a program, and the sizes of its FIFOs.")
      .def(nb::new_(&make_recipe), "compile"_a, "text"_a, "slots"_a = 0, "slot_bytes"_a = 0,
           "thresholds"_a = ThresholdList(), "renames"_a = false, "direct"_a = false);
  m.def(
      "check_threshold",
      [](const std::string& name, std::optional<std::uint64_t> value) {
        return ThresholdChanges().set(name, value.value_or(Thresholds::kNever));
      },
      "name"_a, "value"_a.none(), "Why there is no such threshold, or it cannot have the value; \"\": it can.");
  m.def(
      "transports", [] { return std::vector<std::string_view>(kTransports.begin() + 1, kTransports.end()); },
      "What can carry messages between hosts.");
  m.def(
      "row_keys",
      [] {
        std::vector<std::pair<std::string_view, std::string_view>> keys;
        for (const select::RowKey& key : select::row_keys()) keys.emplace_back(key.name, key.limit);
        return keys;
      },
      "The members of Limits, and the name of the type of each.");
  nb::class_<Limits>(m, "Limits", "Which calls of its collective a row serves.")
      .def("__init__",
           [](Limits* self
#define GC3_ROW_KEY(name, Limit, ...) , select::Limit name
#include "gc3/runtime/select/row_keys.def"
           ) {
             new (self) Limits{
#define GC3_ROW_KEY(name, ...) name,
#include "gc3/runtime/select/row_keys.def"
             };
           }
#define GC3_ROW_KEY(name, ...) , nb::arg(#name) = Limits().name
#include "gc3/runtime/select/row_keys.def"
           )
#define GC3_ROW_KEY(name, ...) .def_ro(#name, &Limits::name)
#include "gc3/runtime/select/row_keys.def"
      .def(
          "__eq__", [](const Limits& a, const Limits& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Limits&) { return 0; });
  nb::class_<Row>(m, "Row", "A row of a selection table: calls, and the program that serves them.")
      .def(nb::new_(&make_row), "collective"_a, "limits"_a, "recipe"_a, "source"_a, "note"_a,
           "adapt"_a.none() = nb::none(), "condition"_a = "")
      .def("describe", &Row::describe, "The calls that it serves.")
      .def("covers", &Row::covers, "other"_a, "Whether it serves all calls that the other one does.");
  nb::class_<select::Explanation>(m, "Explanation", "The program that serves a call, and why.")
      .def_ro("call", &select::Explanation::call, "The call as text.")
      .def_prop_ro(
          "program", [](const select::Explanation& e) { return e.row->recipe->text; }, "The program.")
      .def_prop_ro(
          "source", [](const select::Explanation& e) { return e.row->source; },
          "The row of the table, or the loaded program.")
      .def_prop_ro(
          "note", [](const select::Explanation& e) { return e.row->note; }, "The note of the row.")
      .def_ro("number", &select::Explanation::number, "The number of the row in the table, from 0.")
      .def_ro("passed_over", &select::Explanation::passed_over,
              "Each loaded program and earlier row, and why it does not serve the call.")
      .def_ro("arrays", &select::Explanation::arrays, "How several arrays in one call are moved; \"\" for other calls.")
      .def_ro("one_sided", &select::Explanation::one_sided,
              "The one-sided programs of the collective that have run here, and why the last call of one was served by "
              "messages; \"\": none have.")
      .def_ro("processes", &select::Explanation::processes,
              "The sizes from which on processes read messages from each other's memory, and the measurements; \"\" "
              "without "
              "a communicator.")
      .def_ro("waits", &select::Explanation::waits,
              "How this rank waits for other ranks, and why; \"\" without a communicator.")
      .def_ro("learned", &select::Explanation::learned,
              "What was learned about such calls while they ran; \"\": nothing is learned.")
      .def_rw("devices", &select::Explanation::devices,
              "How calls on device arrays access the devices of other ranks, and why; \"\" before the first such call.")
      .def("__str__", &select::Explanation::str)
      .def("__repr__", &select::Explanation::str);
  nb::class_<Selection>(m, "Selection", "Rows in the order in which they are tried.")
      .def(nb::init<std::vector<Row>>(), "rows"_a)
      .def(
          "explain",
          [](const Selection& selection, std::string_view collective, std::string condition
#define GC3_ROW_KEY(name, Limit, Value, ...) , Value name
#include "gc3/runtime/select/row_keys.def"
          ) {
            const auto [kind, own] = kind_of(collective, condition);
            return unwrap(selection.explain({kind,
#define GC3_ROW_KEY(name, ...) name,
#include "gc3/runtime/select/row_keys.def"
                                             {},
                                             own,
                                             std::move(condition)}));
          },
          "collective"_a, nb::kw_only(), "condition"_a = ""
#define GC3_ROW_KEY(name, ...) , nb::arg(#name) = CallShape().name
#include "gc3/runtime/select/row_keys.def"
          ,
          "The row that serves a call, with reasons; of a custom collective by its condition, too.");
  nb::class_<comm::Allowance>(m, "Allowance", "The processor time of a process for generated programs.")
      .def(nb::init<>());
  nb::class_<comm::AdaptOptions>(m, "AdaptOptions", "What a communicator learns while its calls run.")
      .def(
          "__init__",
          [](comm::AdaptOptions* self, const std::string& mode, std::uint32_t share, const Selection* learned,
             const Selection* candidates, nb::object generate, std::shared_ptr<comm::Allowance> allowance) {
            new (self) comm::AdaptOptions{unwrap(comm::parse_adapt_mode(mode)), share,
                                          learned == nullptr ? Selection() : *learned,
                                          candidates == nullptr ? Selection() : *candidates};
            if (!generate.is_none()) self->generation = generation_of(std::move(generate), std::move(allowance));
          },
          "mode"_a, "share"_a = select::Learner::kDefaultShare, "learned"_a.none() = nb::none(),
          "candidates"_a.none() = nb::none(), "generate"_a.none() = nb::none(), "allowance"_a.none() = nb::none(),
          "`mode` as in GC3_ADAPT; `share` in millionths of the time.");
  nb::class_<comm::Communicator::Recipe>(m, "DeviceRecipe",
                                         "The recipe and the program that serve a call on another engine.")
      .def_prop_ro("slots", [](const comm::Communicator::Recipe& r) { return r.recipe->slots; })
      .def_prop_ro("slot_bytes", [](const comm::Communicator::Recipe& r) { return r.recipe->slot_bytes; })
      .def_prop_ro(
          "key",
          [](const comm::Communicator::Recipe& r) {
            return nb::make_tuple(reinterpret_cast<std::uintptr_t>(r.recipe.get()), r.shape.root, r.shape.in_place);
          },
          nb::sig("def key(self) -> tuple[int, int, bool]"), "A key that is equal for the same program.")
      .def(
          "make",
          [](const comm::Communicator::Recipe& r) {
            return without_gil([&] { return ir::of_all_ranks(unwrap(r.make())); });
          },
          "Compiles and verifies the program.");
  m.def("program_folder_index", &select::program_folder_index, "lines"_a,
        "The index of a folder of programs: rows, each for a number of ranks, a mode, a root, and a file.");
}

}  // namespace gc3::bindings
