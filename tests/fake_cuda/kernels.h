// The kernels of the fake driver: the device code, compiled for the host.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/runtime/cuda/device/guard.h"
#include "gc3/runtime/cuda/device/launch.h"

namespace gc3::fake_cuda {

// The position of a warp, in a threadblock or in a block of a grid of rows.
struct Grid {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
};
// The parameters for which a module was compiled.
struct Module {
  std::string protocol;
  std::string type;
  std::string hand;  // schedule of a kernel of benchmarks/cuda/hand.h; empty: the interpreter
};
void run(const Module& module, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps);
void run_one_sided(const std::string& type, const cuda::OneSidedLaunch& launch, std::uint32_t blocks,
                   std::uint32_t warps);
void divide(const std::string& type, const cuda::Division& division, Grid grid);
void scale(const std::string& type, const cuda::Scaling& scaling, Grid grid);
void guard(const cuda::Guard& watched);

void run_by_hand(const Module& module, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps);
// `run` for each protocol; false if there is no such type.
bool run_simple(const std::string& type, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps);
bool run_ll(const std::string& type, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps);
bool run_ll128(const std::string& type, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps);

}  // namespace gc3::fake_cuda
