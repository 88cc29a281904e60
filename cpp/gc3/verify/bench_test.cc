// The cost of verifying large programs. Not part of the tests: run with `--no-skip --test-case="cost*"`.
#include <doctest/doctest.h>
#include <malloc.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "gc3/verify/test_programs.h"
#include "gc3/verify/verify.h"

namespace gc3::verify::test {
namespace {

// Linux: a line of /proc/self/status, in MB.
double memory(const std::string& line) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != line + ":") continue;
    double kib = 0;
    status >> kib;
    return kib * 1024 / 1e6;
  }
  return 0;
}

void measure(const ir::Program& p, const Options& options = {}) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;  // resets the peak
  const double before = memory("VmRSS");
  const std::clock_t start = std::clock();
  const Report report = verify(p, options);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK_MESSAGE(report.ok(), (report.ok() ? "" : report.diagnostics.front().str()));
  std::printf("%-32s %5zu ranks %8zu threadblocks %8zu instructions %8zu dependencies: %6.3f s of CPU, %7.1f MB more\n",
              p.name.c_str(), p.ranks.size(), p.threadblocks.size(), p.instructions.size(), p.dependencies.size(),
              seconds, memory("VmHWM") - before);
}

}  // namespace

TEST_CASE("cost of the verifier" * doctest::skip()) {
  measure(two_step_alltoall(8, 8));
  measure(two_step_alltoall(128, 8));
  measure(direct_alltoall(1024, 1, false));
  measure(allpairs_allreduce(32, 32, true, 1), {.slots = 32});
  measure(allpairs_allreduce(128, 64, false, 1), {.slots = 64});
  measure(ring_allreduce(512, 1, true, true));
  measure(ring_allreduce(512, 1, true, false));
  measure(ring_allreduce(128, 32, true, false));
  // Every chunk of every rank but one is ordered through other ranks.
  measure(round_trip_allreduce(8, 100000), {.slots = 8});
  measure(round_trip_allreduce(8, 100000), {.slots = 100000});
  measure(round_trip_allreduce(128, 4000), {.slots = 8});
  measure(round_trip_allreduce(1000, 500), {.slots = 8});
}

}  // namespace gc3::verify::test
