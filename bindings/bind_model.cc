#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "arrays.h"
#include "convert.h"
#include "gc3/model/collective.h"
#include "gc3/model/symmetry.h"
#include "gc3/model/terms.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using model::Collective;
using Terms = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
using Tensor = std::tuple<std::string, bool, std::vector<std::uint32_t>>;  // its name, whether an output, chunks
// As model::TermCall: the last three are pieces, part and columns.
using Call =
    std::tuple<std::uint32_t, std::uint32_t, std::vector<Terms>, std::vector<std::uint32_t>, std::uint32_t, bool>;
// An operation: its name, and the operands of each property, in the order of model::kProperties.
using Described = std::pair<std::string, std::vector<std::uint32_t>>;

std::vector<Described> operations_of(const Collective& c) {
  std::vector<Described> out;
  for (std::size_t k = 0; c.has_tensors() && k < c.custom_data()->operations.size(); ++k) {
    auto& [name, operands] = out.emplace_back(c.custom_data()->operations[k], std::vector<std::uint32_t>());
    for (const auto& [property, of] : model::kProperties) operands.push_back(c.custom_data()->properties[k].*of);
  }
  return out;
}

Collective builtin(std::string_view name, std::uint32_t ranks, std::uint32_t chunks, std::uint32_t root,
                   bool in_place) {
  return unwrap(Collective::builtin(unwrap(model::parse_collective(name)), ranks, chunks, root, in_place));
}

Collective custom(std::string name, std::vector<std::uint32_t> inputs, std::vector<std::uint32_t> outputs,
                  std::vector<std::optional<std::int64_t>> alias, std::vector<std::uint64_t> begin, const Terms& terms,
                  std::uint32_t chunks, bool in_place, const std::vector<Tensor>& tensors,
                  const std::vector<Described>& operations, const std::vector<Call>& calls) {
  model::CustomCollective data;
  data.name = std::move(name);
  data.input_chunks = std::move(inputs);
  data.output_chunks = std::move(outputs);
  data.alias = std::move(alias);
  data.begin = std::move(begin);
  for (const auto& [operation, operands] : operations) {
    data.operations.push_back(operation);
    model::Properties& properties = data.properties.emplace_back();
    for (std::size_t k = 0; k < std::min(operands.size(), model::kProperties.size()); ++k) {
      properties.*(model::kProperties[k].second) = operands[k];
    }
  }
  for (const auto& [tensor, is_output, sizes] : tensors) {
    const auto number = static_cast<std::uint32_t>(data.tensors.size());
    data.tensors.push_back({tensor, is_output ? model::Buffer::output : model::Buffer::input, sizes, number});
  }
  for (const auto& [operation, result, arguments, pieces, part, columns] : calls) {
    model::TermCall& call = data.calls.emplace_back(
        model::TermCall{.operation = operation, .result = result, .arguments = {}, .pieces = pieces, .part = part});
    call.columns = columns;
    for (const Terms& argument : arguments) {
      auto& sum = call.arguments.emplace_back();
      for (const auto& [rank, index] : argument) sum.push_back({rank, index});
    }
  }
  for (const auto& [rank, index] : terms) data.terms.push_back({rank, index});
  const auto ranks = static_cast<std::uint32_t>(data.input_chunks.size());
  return unwrap(Collective::custom(std::move(data), ranks, chunks, in_place));
}

}  // namespace

void bind_model(nb::module_& m) {
  m.attr("COMPUTED") = model::kComputed;
  m.def(
      "properties",
      [] {
        std::vector<std::string_view> names;
        for (const auto& [name, operands] : model::kProperties) names.push_back(name);
        return names;
      },
      "Names of the properties that an operation may be declared to have.");
  nb::class_<model::DataTypeInfo>(m, "DataTypeInfo", "A row of the table of data types.")
      .def_ro("name", &model::DataTypeInfo::name)
      .def_ro("bytes", &model::DataTypeInfo::bytes)
      .def_prop_ro("kind", [](const model::DataTypeInfo& type) { return model::name_of(type.kind); });
  m.def(
      "data_types", [] { return std::vector<model::DataTypeInfo>(model::kDataTypes.begin(), model::kDataTypes.end()); },
      "The table of data types.");
  m.def(
      "protocols",
      [] { return std::vector<std::string_view>(model::kProtocolNames.begin(), model::kProtocolNames.end()); },
      "The names of the protocols, first of those with a format of messages of their own.");
  m.attr("FORMATS") = model::kFormats;
  nb::class_<model::ReduceOpInfo>(m, "ReduceOpInfo", "A row of the table of reductions.")
      .def_ro("name", &model::ReduceOpInfo::name)
      .def_ro("doc", &model::ReduceOpInfo::doc)
      .def(
          "takes", [](const model::ReduceOpInfo& op, const model::DataTypeInfo& type) { return op.takes(type.kind); },
          "type"_a, "Whether it takes numbers of a type.");
  nb::class_<Operation>(m, "Operation", "How a call reduces: the name of a reduction, and factors for premulsum.")
      .def(nb::init_implicit<std::string>(), "name"_a)
      .def(
          "__init__",
          [](Operation* made, std::string name, const nb::bytes& factors) {
            new (made) Operation{std::move(name), {factors.c_str(), factors.size()}};
          },
          "name"_a, "factors"_a, "`factors`: elements of the call's type, one for each of its ranks.")
      .def_ro("name", &Operation::name)
      .def_prop_ro("factors", [](const Operation& op) { return nb::bytes(op.factors.data(), op.factors.size()); });
  m.def(
      "reduce_ops", [] { return std::vector<model::ReduceOpInfo>(model::kReduceOps.begin(), model::kReduceOps.end()); },
      "The table of reductions.");
  m.def(
      "is_symmetric",
      [](std::string_view collective) {
        const auto kind = model::parse_collective(collective);
        return kind.ok() && model::is_symmetric(kind.value());
      },
      "collective"_a, "Whether its ranks can have other numbers, as `compile` with `order` gives them.");
  nb::class_<Collective>(m, "Collective", "Signature and postcondition of a collective.")
      .def_static("builtin", &builtin, "name"_a, "ranks"_a, "chunks"_a, "root"_a = 0, "in_place"_a = false)
      .def_static("custom", &custom, "name"_a, "input_chunks"_a, "output_chunks"_a, "alias"_a, "begin"_a, "terms"_a,
                  "chunks"_a = 1, "in_place"_a = false, "tensors"_a = std::vector<Tensor>(),
                  "operations"_a = std::vector<Described>(), "calls"_a = std::vector<Call>(),
                  "`tensors`: a name, whether it is an output, and chunks by rank. `operations`: a name, and the "
                  "operands of each of properties() by bit. `calls`: the results of operations that terms name as "
                  "(COMPUTED, k): operation, result, arguments; of a part of wholes, the arguments of each operand, "
                  "the part, and whether they are cut between columns.")
      .def_prop_ro(
          "tensors",
          [](const Collective& c) {
            std::vector<std::tuple<std::string, bool, std::vector<std::uint32_t>, std::uint32_t>> out;
            if (!c.has_tensors()) return out;
            for (const model::Tensor& t : c.custom_data()->tensors) {
              out.emplace_back(t.name, t.buffer == model::Buffer::output, t.chunks, t.length);
            }
            return out;
          },
          "Named tensors: name, whether it is an output, chunks by rank, and the number of their length.")
      .def_prop_ro("operations", &operations_of, "As in `custom`.")
      .def_prop_ro("name", [](const Collective& c) { return shown(c.name()); })
      .def_prop_ro("condition", &Collective::condition,
                   "Of a custom one: the SHA-256 of its buffers and postcondition, without its name; else \"\".")
      .def_prop_ro("is_custom", [](const Collective& c) { return c.custom_data() != nullptr; })
      .def_prop_ro("ranks", &Collective::ranks)
      .def_prop_ro("chunks", &Collective::chunks)
      .def_prop_ro("split", &Collective::split)
      .def_prop_ro("root", &Collective::root)
      .def_prop_ro("in_place", &Collective::in_place)
      .def("input_chunks", &Collective::input_chunks, "rank"_a)
      .def("output_chunks", &Collective::output_chunks, "rank"_a)
      .def("input_blocks", &Collective::input_blocks, "rank"_a)
      .def("output_blocks", &Collective::output_blocks, "rank"_a)
      .def(
          "v_count",
          [](const Collective& c, std::uint32_t rank, std::uint8_t buffer, std::uint32_t block) {
            return c.v_count(rank, static_cast<model::Buffer>(buffer), block);
          },
          "rank"_a, "buffer"_a, "block"_a, "Which count is the length of a block of a buffer (0 input, 1 output).")
      .def_prop_ro("v_counts", &Collective::v_counts, "How many counts a call of the v-form has; 0: there is none.")
      .def(
          "canonical",
          [](const Collective& c, std::uint32_t rank, std::uint8_t buffer, std::uint32_t index) {
            const model::Place p = c.canonical(rank, {static_cast<model::Buffer>(buffer), index});
            return std::pair(static_cast<int>(p.buffer), p.index);
          },
          "rank"_a, "buffer"_a, "index"_a, "The location (0 input, 1 output; index) of the named buffer and index.")
      .def(
          "expected_terms",
          [](const Collective& c, std::uint32_t rank, std::uint32_t index) {
            Terms out;
            for (const auto& t : c.expected_terms(rank, index)) out.emplace_back(t.rank, t.index);
            return out;
          },
          "rank"_a, "index"_a, "The input chunks (rank, index) whose reduction output chunk `index` must hold.")
      .def(
          "expected_value",
          [](const Collective& c, std::uint32_t rank, std::uint32_t index) {
            const model::Calls calls(c);
            std::vector<std::string> sum;
            for (const auto& [term, times] : calls.demanded(rank, index)) {
              sum.push_back(model::times_text(times) + calls.name(term).value_or(""));
            }
            return sum;
          },
          "rank"_a, "index"_a, "Of named tensors: the terms whose sum an output chunk must hold, as text.")
      .def(
          "__eq__", [](const Collective& a, const Collective& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
}

}  // namespace gc3::bindings
