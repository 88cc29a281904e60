#include "kernels.h"

#include "gc3/runtime/cuda/device/kernel.h"
#include "gc3/runtime/cuda/device/test_platform.h"

namespace gc3::fake_cuda {

void run(const Module& module, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
  if (!module.hand.empty()) return run_by_hand(module, launch, blocks, warps);
  if (module.protocol == "Simple") run_simple(module.type, launch, blocks, warps);
  if (module.protocol == "LL") run_ll(module.type, launch, blocks, warps);
  if (module.protocol == "LL128") run_ll128(module.type, launch, blocks, warps);
}

namespace {

// `element(x, y, stride)` is the work of one thread of the grid.
template <class Element>
void on_grid(Grid grid, const Element& element) {
  const std::uint64_t stride = std::uint64_t{grid.x} * cuda::kThreads;
  for (std::uint32_t y = 0; y < grid.y; ++y) {
    for (std::uint64_t x = 0; x < stride; ++x) element(x, y, stride);
  }
}

}  // namespace

void divide(const std::string& type, const cuda::Division& division, Grid grid) {
  on_grid(grid, [&](std::uint64_t x, std::uint32_t y, std::uint64_t stride) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  if (type == #name) cuda::divide_row<cuda::name##_element>(division, y, x, stride);
#include "gc3/model/types.def"
  });
}

void guard(const cuda::Guard& watched) {
  cuda::HostBlock block(1);
  cuda::HostPlatform platform(block, 0);
  cuda::watch_lanes(platform, watched);
}

void scale(const std::string& type, const cuda::Scaling& scaling, Grid grid) {
  on_grid(grid, [&](std::uint64_t x, std::uint32_t y, std::uint64_t stride) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  if (type == #name) cuda::scale_row<cuda::name##_element>(scaling, y, x, stride);
#include "gc3/model/types.def"
  });
}

}  // namespace gc3::fake_cuda
