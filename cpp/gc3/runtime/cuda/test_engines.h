// Engines of the fake driver of tests/fake_cuda, which executes the device's code on the host.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "gc3/runtime/cuda/engine.h"
#include "gc3/runtime/interp/test_reference.h"

namespace gc3::cuda {

inline std::shared_ptr<Runtime> runtime() {
  auto opened = Runtime::open(GC3_FAKE_CUDA_LIBRARY, {GC3_FAKE_CUDA_LIBRARY});
  REQUIRE_MESSAGE(opened.ok(), opened.error().str());
  return std::move(opened).value();
}

inline std::unique_ptr<Engine> make_engine(const ir::Program& program, const Options& options = {}) {
  auto engine = Engine::create(runtime(), program, {0}, options);
  REQUIRE_MESSAGE(engine.ok(), engine.error().str());
  return std::move(engine).value();
}

// The memory of the fake device is the host's, so buffers with guards and of any alignment can be passed directly.
inline void check_run(Engine& engine, std::size_t count, model::DataType type = model::DataType::int32,
                      model::ReduceOp op = model::ReduceOp::sum) {
  testing::Buffers buffers(engine.plan().collective, count, type, op);
  Status status = engine.enqueue(buffers.call(), {nullptr});
  REQUIRE_MESSAGE(status.ok(), status.error().str());
  status = engine.synchronize();
  REQUIRE_MESSAGE(status.ok(), status.error().str());
  const auto difference = buffers.difference();
  CHECK_MESSAGE(!difference.has_value(), "count ", count, ": ", *difference);
}

}  // namespace gc3::cuda
