#include "described.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"

namespace nb = nanobind;

namespace gc3::bindings {
namespace {

using comm::Signature;
using model::CollectiveKind;

// The shape of a new result.
nb::object new_shape(const nb::object& shape, NewShape how, std::uint32_t ranks) {
  if (how == NewShape::same) return shape;
  const auto sizes = nb::borrow<nb::tuple>(shape);
  if (how == NewShape::joined && sizes.size() == 0) return nb::make_tuple(ranks);
  nb::list made(sizes);
  const auto first = nb::cast<std::size_t>(sizes[0]);
  made[0] = how == NewShape::joined ? first * ranks : first / ranks;
  return nb::tuple(made);
}

void check_divides(const Operand& given, std::uint32_t ranks) {
  const nb::object shape = given.shape();
  const auto sizes = nb::borrow<nb::tuple>(shape);
  if (sizes.size() != 0 && nb::cast<std::size_t>(sizes[0]) % ranks == 0) return;
  throw bad_buffer("the first axis of the input, of " + std::string(nb::str(shape).c_str()) + ", does not divide by " +
                   std::to_string(ranks) + " ranks");
}

// An input that is a list of an array for each block. It may also be a list of numbers or of arrays that are to be one.
std::vector<Operand> sources(nb::handle x, std::uint32_t blocks) {
  if (!is_list(x) || nb::len(x) != blocks) return {};
  std::vector<Operand> each;
  for (const nb::handle one : x) {
    if (!nb::hasattr(one, "dtype")) return {};
    each.push_back(source(one));
    if (each.back().elements != each.front().elements || !same_type(each.back(), each.front())) return {};
  }
  return each;
}

Operand together(const std::vector<Operand>& each, const char* what) {
  Operand whole = each.front();
  for (const Operand& one : each) {
    if (one.device != kHost) throw bad_buffer(std::string(what) + " is a list with an array on a device");
    if (!same_type(one, whole) || one.elements != whole.elements) {
      throw bad_buffer(std::string(what) + " is a list of arrays that differ in type or size");
    }
  }
  whole.elements *= each.size();
  return whole;
}

std::vector<Operand> targets(nb::handle out, std::uint32_t blocks) {
  if (nb::len(out) != blocks) {
    throw bad_buffer("out is a list of " + std::to_string(nb::len(out)) + " arrays, not " + std::to_string(blocks));
  }
  std::vector<Operand> each;
  for (const nb::handle one : out) each.push_back(target(one));
  return each;
}

std::vector<std::uint8_t*> addresses(const std::vector<Operand>& each) {
  std::vector<std::uint8_t*> found;
  for (const Operand& one : each) found.push_back(one.address);
  return found;
}

const comm::Operand* place(const Operand& operand) { return operand.there() ? &operand : nullptr; }

// The one array of a broadcast.
void take_one(Described& d, const Signature& asks, nb::handle x) {
  d.result = asks.input_blocks != 0 ? source(x) : target(x);
  if (!d.result.writable) d.result = copy(d.result);  // a program may write to its output even if nothing changes
  if (asks.input_blocks != 0) d.given = d.result;
}

void take_input(Described& d, const Method& method, std::uint32_t blocks, std::uint32_t ranks, nb::handle x,
                bool lists) {
  if (lists && method.divides) d.given_each = sources(x, blocks);
  d.given = d.given_each.empty() ? source(x) : together(d.given_each, "the input");
  if (method.divides && d.given_each.empty()) check_divides(d.given, ranks);
}

// A new output. A call that runs one-sidedly on registered memory gets one there, if there is room.
Operand new_output(const comm::Communicator& comm, const Described& d, const nb::object& shape, std::uint32_t blocks) {
  const Operand& given = d.given;
  std::shared_ptr<std::uint8_t> memory;
  if (given.device == kHost && comm.reaches(given.address)) {
    without_gil([&]() -> Status {
      Result<std::shared_ptr<std::uint8_t>> made = comm.new_output(d.call.kind, d.call.root, given.bytes(), blocks);
      if (made.ok()) memory = std::move(made).value();
      return {};
    });
  }
  return like(given, shape, std::move(memory));
}

void take_output(Described& d, const Method& method, const comm::Communicator& comm, std::uint32_t blocks,
                 nb::handle out, bool lists) {
  const std::uint32_t ranks = comm.size();
  if (lists && blocks == ranks && is_list(out)) {
    d.result_each = targets(out, blocks);
    d.result = together(d.result_each, "out");
  } else if (!out.is_none()) {
    d.result = target(out);
  } else if (d.given.there()) {
    d.result = new_output(comm, d, new_shape(d.given.shape(), method.result, ranks), blocks);
  } else {
    throw bad_buffer("this rank has no input to make an output from: give out=");
  }
}

void take_arrays(Described& d, const Method& method, const Signature& asks, const comm::Communicator& comm,
                 nb::handle x, nb::handle out, Lists lists) {
  if (method.kind == CollectiveKind::broadcast) return take_one(d, asks, x);
  const bool listed = lists == Lists::used && !out.is_none();
  if (asks.input_blocks != 0) take_input(d, method, asks.input_blocks, comm.size(), x, listed);
  if (asks.output_blocks == 0) return;
  take_output(d, method, comm, asks.output_blocks, out, listed || lists == Lists::copied);
}

// The reduction of elements like those of `operand`.
void take_reduction(Described& d, const comm::Communicator& comm, const Operand& operand, nb::handle op) {
  check_reducible(operand);
  if (d.call.op != model::ReduceOp::premulsum) return;
  d.operation = operation(op, operand, comm.size(), comm.rank());
  d.call.factor = parse_reduction(name_of(operand.type), d.operation).factor();
}

}  // namespace

DiagnosticError bad_buffer(const std::string& why) { return DiagnosticError({ErrorCode::BadBuffer, why}); }

bool is_list(nb::handle x) { return nb::isinstance<nb::list>(x) || nb::isinstance<nb::tuple>(x); }

void check_types(const Operand& given, const Operand& result) {
  if (!given.there() || !result.there() || same_type(given, result)) return;
  throw bad_buffer("out is of " + std::string(nb::str(result.dtype()).c_str()) + ", the input of " +
                   nb::str(given.dtype()).c_str());
}

std::uint32_t root_rank(nb::handle root, std::uint32_t size) {
  const std::int64_t given = whole_number(root);
  if (given >= 0 && given < std::int64_t{size}) return static_cast<std::uint32_t>(given);
  throw DiagnosticError({ErrorCode::RankOutOfRange, "root=" + std::string(nb::repr(root).c_str()) +
                                                        "; expected a whole number from 0 to " +
                                                        std::to_string(size - 1)});
}

Lists lists_of(const Method& method, bool is_waited_for) {
  if (method.kind == CollectiveKind::gather && is_waited_for) return Lists::copied;
  return method.kind == CollectiveKind::gather || method.kind == CollectiveKind::scatter ? Lists::none : Lists::used;
}

void Described::copy_out() const {
  if (result_each.empty() || !call.output_at.empty()) return;
  const std::uint8_t* at = result.address;
  for (const Operand& one : result_each) {
    if (one.bytes() != 0) std::memcpy(one.address, at, one.bytes());
    at += one.bytes();
  }
}

Described describe(const comm::Communicator& comm, const Method& method, nb::handle x, nb::handle op, nb::handle root,
                   nb::handle out, Lists lists) {
  Described d;
  d.call.kind = method.kind;
  if ((method.takes & kOp) != 0) d.call.op = reduction(op);
  if ((method.takes & kRoot) != 0) d.call.root = root_rank(root, comm.size());
  const Signature& asks = *unwrap(comm.signature(method.kind, d.call.root));
  take_arrays(d, method, asks, comm, x, out, lists);
  if ((method.takes & kOp) != 0) take_reduction(d, comm, d.given.there() ? d.given : d.result, op);
  check_types(d.given, d.result);
  d.call.input_at = addresses(d.given_each);
  if (lists != Lists::copied) d.call.output_at = addresses(d.result_each);
  if (unwrap(comm::complete(d.call, asks, place(d.given), place(d.result)))) {
    d.given = copy(d.given);
    d.call.input = d.given.address;
  }
  if (lists == Lists::copied && !d.result_each.empty()) {
    d.result = like(d.given, nb::make_tuple(d.result.elements));
    d.call.output = d.result.address;
  }
  return d;
}

nb::object result_of(const Method& method, const comm::Communicator& comm, const Described& d) {
  const bool nothing = method.kind == CollectiveKind::alltonext && comm.rank() == 0;
  if (!d.result.there() || nothing) return nb::none();
  if (d.result_each.empty()) return d.result.result();
  nb::list all;
  for (const Operand& one : d.result_each) all.append(one.result());
  return all;
}

bool is_on_device(const Described& d) { return (d.given.there() ? d.given : d.result).device != kHost; }

}  // namespace gc3::bindings
