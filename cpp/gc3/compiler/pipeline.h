// The compiler: trace -> chunk DAG -> instruction DAG -> schedule -> ir::Program.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/compiler/trace.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"

namespace gc3::compiler {

struct Options {
  std::uint32_t instances = 1;            // copies of the whole program, each on its part of the data
  std::uint32_t slots = 2;                // messages that the schedule may have in flight on a connection
  std::uint32_t max_threadblocks = 0;     // per rank; 0: no limit
  bool fuse = true;                       // merge a receive with the sends of what it received
  std::vector<std::uint32_t> order = {};  // the ranks by which the trace's ranks are replaced: see rename_ranks
  // Sends, and receives, that a rank has under way at most, in the user's order without fusion: see passes/window.h. 0:
  // any number, in the compiler's order.
  std::uint32_t window = 0;
  std::uint32_t scratch = kNone;  // places of a rank above which they are used again: see passes/reuse_scratch.h
};

// The stages of compilation, named after the passes that produce them; the trace is the program as the user wrote it.
enum class Stage : std::uint8_t {
  trace,
  forward_copies,
  place_results,
  reuse_scratch,
  rename_ranks,
  split,
  chunk_dag,
  lower,
  instructions,
  channels,
  threadblocks,
  schedule,
  ir
};
inline constexpr std::array<std::string_view, 13> kStageNames = {
    "trace", "forward-copies", "place-results", "reuse-scratch", "rename-ranks", "split", "chunk-dag",
    "lower", "instructions",   "channels",      "threadblocks",  "schedule",     "ir"};

// Deterministic: the same trace and options give the same program. The result's `slots` is the number of FIFO slots per
// connection that it needs, at most options.slots.
Result<ir::Program> compile(const Trace& trace, const Options& options);

// The same of a trace of representatives, without the other ranks. No program, if a pass or an option does not treat
// all ranks alike: several parts of a chunk, an order of ranks, windows, places used again, threadblocks by number.
// `compile` takes such a trace for all ranks.
Result<std::optional<ir::ClassProgram>> compile_classes(const Trace& trace, const Options& options);

// The text of the program after a stage.
Result<std::string> dump(const Trace& trace, const Options& options, Stage stage);

}  // namespace gc3::compiler
