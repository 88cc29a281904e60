#include "kernels.h"

#include "gc3/runtime/cuda/device/kernel.h"

namespace gc3::fake_cuda {

void run(const Module& module, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
  if (!module.hand.empty()) return run_by_hand(module, launch, blocks, warps);
  if (module.protocol == "Simple") run_simple(module.type, launch, blocks, warps);
  if (module.protocol == "LL") run_ll(module.type, launch, blocks, warps);
  if (module.protocol == "LL128") run_ll128(module.type, launch, blocks, warps);
}

void divide(const std::string& type, const cuda::Division& division, Grid grid) {
  const std::uint64_t stride = std::uint64_t{grid.x} * cuda::kThreads;
  for (std::uint32_t y = 0; y < grid.y; ++y) {
    for (std::uint64_t x = 0; x < stride; ++x) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) \
  if (type == #name) cuda::divide_row<cuda::name##_element>(division, y, x, stride);
#include "gc3/model/types.def"
    }
  }
}

}  // namespace gc3::fake_cuda
