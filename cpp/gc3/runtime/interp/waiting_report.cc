#include "gc3/runtime/interp/waiting_report.h"

#include <string>

namespace gc3::interp {
namespace {

constexpr std::size_t kMaxNotes = 200;

std::string awaited(const Plan& plan, const PlanThreadblock& tb, const Task& task, const Run& run) {
  switch (task.waiting) {
    case Waiting::dependency: {
      const Wait& wait = task.waits[task.wait];
      return "for " + plan.place(plan.ranks[tb.rank].first_tb + wait.tb, wait.steps - 1);
    }
    case Waiting::input:
      return "for a message from rank " + std::to_string(tb.recv_peer) + " on channel " + std::to_string(tb.channel);
    case Waiting::credit:
      return "for one of the " + std::to_string(run.slots) + " slots to rank " + std::to_string(tb.send_peer) +
             " on channel " + std::to_string(tb.channel) + " to become free";
    case Waiting::nothing:
      break;
  }
  return "for its turn";
}

}  // namespace

void report_waiting(const Plan& plan, std::span<const Task> tasks, const Run& run, Diagnostic& diagnostic) {
  std::size_t waiting = 0;
  for (std::uint32_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    if (task.step_count == 0 || task.tile == run.tiles) continue;
    if (++waiting > kMaxNotes) continue;
    diagnostic.note(plan.place(i, task.step) + ", tile " + std::to_string(task.tile) + " of " +
                    std::to_string(run.tiles) + ", waits " + awaited(plan, plan.threadblocks[i], task, run));
  }
  if (waiting > kMaxNotes) diagnostic.note("and " + std::to_string(waiting - kMaxNotes) + " more");
}

}  // namespace gc3::interp
