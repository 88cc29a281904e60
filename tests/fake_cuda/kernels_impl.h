// A threadblock is one or more host threads, each of which is a warp.
#include <memory>
#include <thread>
#include <vector>

#include "gc3/runtime/cuda/device/kernel.h"
#include "gc3/runtime/cuda/device/test_platform.h"
#include "kernels.h"

namespace gc3::fake_cuda {

// `execute(platform, b)` is the work of a warp of threadblock b.
template <class Execute>
void run_blocks(std::uint32_t blocks, std::uint32_t warps, const Execute& execute) {
  std::vector<std::unique_ptr<cuda::HostBlock>> shared;
  std::vector<std::thread> threads;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    shared.push_back(std::make_unique<cuda::HostBlock>(warps));
    for (std::uint32_t w = 0; w < warps; ++w) {
      threads.emplace_back([&execute, b, w, block = shared.back().get()] {
        cuda::HostPlatform platform(*block, w);
        execute(platform, b);
      });
    }
  }
  for (std::thread& t : threads) t.join();
}

template <class Protocol>
bool run_of_type(const std::string& type, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
#define GC3_DATA_TYPE(id, name, bytes, kind, part)                                 \
  if (type == #name) {                                                             \
    run_blocks(blocks, warps, [&](cuda::HostPlatform& platform, std::uint32_t b) { \
      cuda::run_threadblock<Protocol, cuda::name##_element>(platform, launch, b);  \
    });                                                                            \
    return true;                                                                   \
  }
#include "gc3/model/types.def"
  return false;
}

}  // namespace gc3::fake_cuda
