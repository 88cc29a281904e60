// The compiler: trace -> chunk DAG -> instruction DAG -> schedule -> ir::Program.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gc3/base/result.h"
#include "gc3/compiler/trace.h"
#include "gc3/ir/program.h"

namespace gc3::compiler {

struct Options {
  std::uint32_t instances = 1;         // replicas of the whole program, on as many parts of the data
  std::uint32_t slots = 2;             // messages the schedule may have under way on a connection
  std::uint32_t max_threadblocks = 0;  // per rank; 0: no limit
};

// The stages of the way to the program, by the passes that make them; the trace is what the user wrote.
enum class Stage : std::uint8_t {
  trace,
  forward_copies,
  place_results,
  split,
  chunk_dag,
  lower,
  instructions,
  channels,
  threadblocks,
  schedule,
  ir
};
inline constexpr std::array<std::string_view, 11> kStageNames = {
    "trace",        "forward-copies", "place-results", "split",    "chunk-dag", "lower",
    "instructions", "channels",       "threadblocks",  "schedule", "ir"};

// Deterministic: the same trace and options give the same program. The result's `slots` says how many FIFO slots per
// connection it needs, at most options.slots.
Result<ir::Program> compile(const Trace& trace, const Options& options);

// The text of a stage, on the way to the program.
Result<std::string> dump(const Trace& trace, const Options& options, Stage stage);

}  // namespace gc3::compiler
