#include "gc3/verify/verify.h"

#include <utility>

#include "gc3/ir/blocks.h"
#include "gc3/ir/connections.h"
#include "gc3/ir/structure.h"
#include "gc3/verify/dataflow.h"
#include "gc3/verify/limits.h"
#include "gc3/verify/program.h"
#include "gc3/verify/races.h"
#include "gc3/verify/schedule.h"
#include "gc3/verify/split.h"
#include "gc3/verify/switched.h"
#include "gc3/verify/weights.h"

namespace gc3::verify {
namespace {

// Each check relies on the ones before it. A check that fails stops those after it.
void check(const ir::Program& program, const Options& options, Report& report, Findings& findings) {
  if (!ir::check_structure(program, options.slots, findings) || findings.full()) return;
  if (Status copies = ir::check_copies(program); !copies.ok()) findings.add(std::move(copies.error()));
  if (findings.full()) return;
  if (!check_limits(program, options, findings) || findings.full()) return;
  const ProgramIndex index(program);
  const std::size_t before = findings.count();
  const Connections connections = ir::match_transfers(index, findings);
  report.transfers = connections.messages;
  if (findings.count() > before || findings.full()) return;
  const Schedule schedule = find_schedule(index, connections, report.slots, findings);
  if (findings.full() || (schedule.empty() && !program.instructions.empty())) return;
  const std::size_t races_before = findings.count();
  check_races(index, connections, schedule, findings);
  if (findings.count() > races_before) return;  // the result depends on the schedule
  check_switched(index, connections, schedule, findings);
  const Result<Weights> weights = Weights::draw(program.collective);
  if (!weights.ok()) {
    findings.add(weights.error());
    return;
  }
  check_dataflow(index, connections, schedule, weights.value(), findings);
  if (!findings.empty() || !program.has_tensors()) return;
  if (Result<ir::Blocks> lengths = ir::trace_blocks(index, connections); !lengths.ok()) {
    findings.add(std::move(lengths.error()));
  }
}

// A message of n chunks as n messages: if whole messages wait in a cycle, so do their last chunks.
void check_chunk_by_chunk(const ir::Program& program, const Report& report, Findings& findings) {
  Result<ir::Program> split = split_messages(program);
  if (!split.ok()) {
    findings.add(std::move(split.error()));
    return;
  }
  const ProgramIndex index(split.value());
  Findings found(findings.room());
  find_schedule(index, match_transfers(index, found), report.slots, found);
  for (Diagnostic& problem : found.take()) {
    findings.add(
        std::move(problem.note("chunks so large that each of a message takes a FIFO slot of its own; such a "
                               "message counts as a step for each chunk")));
  }
}

}  // namespace

Report verify(const ir::Program& program, const Options& options) {
  if (!options.properties && program.has_tensors()) {
    ir::Program without = program;
    without.collective = program.collective.without_properties();
    Options others = options;
    others.properties = true;
    return verify(without, others);
  }
  Report report;
  report.slots = options.slots != 0 ? options.slots : program.slots;
  Findings findings(options.max_diagnostics);
  check(program, options, report, findings);
  if (options.chunk_per_slot && findings.empty() && has_long_messages(program)) {
    check_chunk_by_chunk(program, report, findings);
  }
  report.diagnostics = findings.take();
  return report;
}

}  // namespace gc3::verify
