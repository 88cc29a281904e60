// Collects the diagnostics of the checks, up to a limit that the caller sets.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "gc3/base/diagnostic.h"

namespace gc3 {

class Findings {
 public:
  // Keeps at least one, because a report without diagnostics means "proven".
  explicit Findings(std::size_t limit) : limit_(limit == 0 ? 1 : limit) {}

  bool full() const { return all_.size() >= limit_; }
  bool empty() const { return all_.empty(); }
  std::size_t count() const { return all_.size(); }
  std::size_t room() const { return limit_ - all_.size(); }
  // Drops the diagnostic when there is no room left.
  void add(Diagnostic problem) {
    if (!full()) all_.push_back(std::move(problem));
  }
  std::vector<Diagnostic> take() { return std::move(all_); }

 private:
  std::size_t limit_;
  std::vector<Diagnostic> all_;
};

}  // namespace gc3
