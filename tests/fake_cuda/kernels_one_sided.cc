#include "gc3/runtime/cuda/device/one_sided.h"
#include "kernels_impl.h"

namespace gc3::fake_cuda {

void run_one_sided(const std::string& type, const cuda::OneSidedLaunch& launch, std::uint32_t blocks,
                   std::uint32_t warps) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part)                                 \
  if (type == #name) {                                                             \
    run_blocks(blocks, warps, [&](cuda::HostPlatform& platform, std::uint32_t b) { \
      cuda::run_one_sided<cuda::name##_element>(platform, launch, b);              \
    });                                                                            \
  }
#include "gc3/model/types.def"
}

}  // namespace gc3::fake_cuda
