// The lines of the user's code that make the operations of a program while it is traced.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "gc3/compiler/tracer.h"

namespace gc3::bindings {

class SourceLines {
 public:
  // `helpers`: code of files whose names begin so works for its callers: the lines are theirs.
  explicit SourceLines(std::string helpers) : helpers_(std::move(helpers)) {}

  // A `with program:` block begins in the caller of the Python function that is running. The lines that lead to an
  // operation begin there.
  void enter();
  void leave();
  // The line that is being executed, with the lines that called its function.
  LocationId here(compiler::Tracer& tracer);

 private:
  struct Seen {
    std::vector<nanobind::object> codes;  // keeps the addresses in the key in use
    LocationId id;
  };
  LocationId add(compiler::Tracer& tracer, PyFrameObject* frame, std::uint64_t key);

  std::string helpers_;
  std::string language_;    // the folder of the code that runs algorithms, which is not the user's
  nanobind::object first_;  // the frame in which the block began
  nanobind::object base_;   // the outermost frame of the user's functions below it, once known
  std::unordered_map<std::uint64_t, Seen> seen_;
  std::uint64_t last_key_ = 0;
  LocationId last_id_;
};

}  // namespace gc3::bindings
