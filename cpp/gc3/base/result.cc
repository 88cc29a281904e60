#include "gc3/base/result.h"

namespace gc3 {

Problem::Problem(Diagnostic&& diagnostic) : at_(new Diagnostic(std::move(diagnostic))) {}
Problem::Problem(const Problem& other) : at_(other ? new Diagnostic(*other) : nullptr) {}
void Problem::discard() { delete at_; }

}  // namespace gc3
