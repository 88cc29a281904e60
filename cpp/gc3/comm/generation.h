// Further programs that are generated while calls run, for calls that no row of a table was made for.
//
// Each rank generates the same one by itself, from what all ranks know alike, in the thread that makes the programs to
// try. The exchange of adaptation.h says when all ranks have it; from then on it is tried as any other.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/select/row.h"

namespace gc3::comm {

// The processor time that all communicators of a process spend on it: in no minute more than a part of a core, and by
// one thread at a time. What work will take must be known before, because nothing interrupts it.
class Allowance {
 public:
  static constexpr std::int64_t kMinuteNs = 60'000'000'000;
  static constexpr std::int64_t kMostNs = kMinuteNs / 20;

  // Begins work that will take at most `ns`; false: not now. `now`: of a steady clock, in ns.
  bool begin(std::int64_t now, std::int64_t ns);
  // The work has ended, and has taken `ns`.
  void end(std::int64_t now, std::int64_t ns);

 private:
  std::mutex mutex_;
  bool works_ = false;
  std::deque<std::pair<std::int64_t, std::int64_t>> spent_;  // when work ended, and what it has taken
};

struct Generation {
  // The first program like the one called `base` that is not among those called `tried`; null: there is none.
  // The same on all ranks. Called by any thread.
  using Make = std::function<Result<std::shared_ptr<const select::Recipe>>(
      const std::string& base, const select::CallShape& shape, const std::vector<std::string>& tried)>;
  Make make = {};  // none: nothing is generated
  std::shared_ptr<Allowance> allowance = {};
};

}  // namespace gc3::comm
