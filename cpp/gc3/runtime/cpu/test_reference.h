// Runs a program on the threads engine and checks every element.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "gc3/runtime/cpu/threads_engine.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::testing {

inline std::unique_ptr<cpu::ThreadsEngine> make_engine(const ir::Program& program,
                                                       const cpu::EngineOptions& options = {}) {
  auto engine = cpu::ThreadsEngine::create(program, options);
  REQUIRE_MESSAGE(engine.ok(), engine.error().str());
  return std::move(engine).value();
}

// Runs once on fresh buffers and checks every element.
inline void check_run(cpu::ThreadsEngine& engine, std::size_t count, DataType type = DataType::int32,
                      ReduceOp op = ReduceOp::sum) {
  Buffers buffers(engine.plan().collective, count, type, op);
  const Status status = engine.run(buffers.call());
  REQUIRE_MESSAGE(status.ok(), status.error().str());
  const auto difference = buffers.difference();
  CHECK_MESSAGE(!difference.has_value(), "count ", count, ": ", *difference);
}

}  // namespace gc3::testing
