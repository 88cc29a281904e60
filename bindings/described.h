// What the arguments of a collective call say, in whatever form it is made.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "arrays.h"
#include "communicator.h"
#include "operand.h"

namespace gc3::bindings {

// The shape of a new result on n ranks, relative to the shape of the input.
enum class NewShape : std::uint8_t {
  same,     // the same
  joined,   // the first axis is n times as long
  divided,  // the first axis is an n-th
};

// The parameters of a method in addition to the input.
enum Takes : std::uint8_t { kOp = 1, kRoot = 2, kOut = 4 };

struct Method {
  const char* name;
  model::CollectiveKind kind;
  std::uint8_t takes;
  NewShape result;
  bool divides;           // whether the first axis of the input is divided among the ranks
  const char* signature;  // after "(self, "
  const char* returns;
  const char* doc;
};

// A call and the memory it works on.
struct Described {
  comm::Call call;
  Operation operation;  // of premulsum
  Operand given;        // of a list, the first array, with the elements of all
  Operand result;
  std::vector<Operand> given_each;  // of a list
  std::vector<Operand> result_each;

  // After the call: copies its output to the list that the caller has given, if it was not used as it lies.
  void copy_out() const;
  // What must exist until the call has ended.
  void keep_in(nanobind::list& all) const {
    const auto add = [&](const Operand& operand) {
      if (operand.there()) all.append(operand.array);
    };
    add(given);
    add(result);
    std::ranges::for_each(given_each, add);
    std::ranges::for_each(result_each, add);
  }
};

DiagnosticError bad_buffer(const std::string& why);
bool is_list(nanobind::handle x);
// An output has the type of its input.
void check_types(const Operand& given, const Operand& result);
std::uint32_t root_rank(nanobind::handle root, std::uint32_t size);

// What becomes of lists of an array for each block: all ranks have to know of those that are used as they lie.
enum class Lists : std::uint8_t {
  none,    // there are none
  copied,  // the output of a gather is copied to them after the call
  used,
};
Lists lists_of(const Method& method, bool is_waited_for);

// The only place where the arguments of a call are inspected.
Described describe(const comm::Communicator& comm, const Method& method, nanobind::handle x, nanobind::handle op,
                   nanobind::handle root, nanobind::handle out, Lists lists);
bool is_on_device(const Described& d);
// What the caller gets.
nanobind::object result_of(const Method& method, const comm::Communicator& comm, const Described& d);

}  // namespace gc3::bindings
