#include "gc3/verify/verify.h"

#include "gc3/verify/connections.h"
#include "gc3/verify/dataflow.h"
#include "gc3/verify/findings.h"
#include "gc3/verify/index.h"
#include "gc3/verify/races.h"
#include "gc3/verify/schedule.h"
#include "gc3/verify/structure.h"

namespace gc3::verify {
namespace {

// Each check rests on what the ones before it have proven, and stops the rest when it cannot be proven.
void check(const ir::Program& program, const Options& options, Report& report, Findings& findings) {
  if (!check_structure(program, options, findings) || findings.full()) return;
  const ProgramIndex index(program);
  const std::size_t before = findings.count();
  const Connections connections = match_transfers(index, findings);
  report.transfers = connections.messages;
  if (findings.count() > before || findings.full()) return;
  const Schedule schedule = find_schedule(index, connections, report.slots, findings);
  if (findings.full() || (schedule.empty() && !program.instructions.empty())) return;
  const std::size_t races_before = findings.count();
  check_races(index, connections, schedule, findings);
  if (findings.count() > races_before) return;  // the result depends on who wins
  check_dataflow(index, connections, schedule, findings);
}

}  // namespace

Report verify(const ir::Program& program, const Options& options) {
  Report report;
  report.slots = options.slots != 0 ? options.slots : program.slots;
  Findings findings(options.max_diagnostics);
  check(program, options, report, findings);
  report.diagnostics = findings.take();
  return report;
}

}  // namespace gc3::verify
