#include "kernels_impl.h"

namespace gc3::fake_cuda {

bool run_simple(const std::string& type, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
  return run_of_type<interp::Simple>(type, launch, blocks, warps);
}

}  // namespace gc3::fake_cuda
