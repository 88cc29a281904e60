#include "described.h"

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
    if (each.back().elements != each.front().elements || !each.back().dtype().equal(each.front().dtype())) return {};
  }
  return each;
}

std::vector<std::uint8_t*> addresses(const std::vector<Operand>& each) {
  std::vector<std::uint8_t*> found;
  for (const Operand& one : each) found.push_back(one.address);
  return found;
}

}  // namespace

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

Operand together(const std::vector<Operand>& each, const char* what) {
  Operand whole = each.front();
  for (const Operand& one : each) {
    if (one.device != kHost) throw bad_buffer(std::string(what) + " is a list with an array on a device");
    const bool same = one.known && whole.known ? one.type == whole.type : one.dtype().equal(whole.dtype());
    if (!same || one.elements != whole.elements) {
      throw bad_buffer(std::string(what) + " is a list of arrays that differ in type or size");
    }
  }
  whole.elements *= each.size();
  return whole;
}

bool is_list(nb::handle x) { return nb::isinstance<nb::list>(x) || nb::isinstance<nb::tuple>(x); }

std::vector<Operand> targets(nb::handle out, std::uint32_t blocks) {
  if (nb::len(out) != blocks) {
    throw bad_buffer("out is a list of " + std::to_string(nb::len(out)) + " arrays, not " + std::to_string(blocks));
  }
  std::vector<Operand> each;
  for (const nb::handle one : out) each.push_back(target(one));
  return each;
}

bool takes_lists(const Method& method) {
  return method.kind != CollectiveKind::gather && method.kind != CollectiveKind::scatter;
}

Described describe(const comm::Communicator& comm, const Method& method, nb::handle x, nb::handle op, nb::handle root,
                   nb::handle out, bool lists) {
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
      if (lists && method.divides && !out.is_none()) d.given_each = sources(x, asks.input_blocks);
      given = d.given_each.empty() ? source(x) : together(d.given_each, "the input");
      if (method.divides && d.given_each.empty()) check_divides(given, comm.size());
    }
    if (asks.output_blocks != 0) {
      if (lists && asks.output_blocks == comm.size() && !out.is_none() && is_list(out)) {
        d.result_each = targets(out, asks.output_blocks);
        result = together(d.result_each, "out");
      } else if (!out.is_none()) {
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
    const bool is_listed = !d.given_each.empty() || !d.result_each.empty();
    const bool one = method.kind == CollectiveKind::reduce && given.address == result.address;
    if (!asks.alias && given.device == kHost && !is_listed && !one && overlap(given, result)) given = copy(given);
  }
  d.call.count *= known.units;
  d.call.input = given.address;
  d.call.output = result.address;
  d.call.input_at = addresses(d.given_each);
  d.call.output_at = addresses(d.result_each);
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
