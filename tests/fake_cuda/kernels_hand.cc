// The kernels of benchmarks/cuda for float32.
#include "benchmarks/cuda/hand.h"
#include "kernels_impl.h"

namespace gc3::fake_cuda {
namespace {

using cuda::hand::Schedule;

template <Schedule kSchedule, class Protocol>
void run_schedule(const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
  run_blocks(blocks, warps, [&](cuda::HostPlatform& platform, std::uint32_t b) {
    cuda::hand::run_threadblock<kSchedule, Protocol, cuda::float32_element>(platform, launch, b);
  });
}

template <Schedule kSchedule>
void run_protocol(const Module& module, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
  if (module.protocol == "Simple") run_schedule<kSchedule, interp::Simple>(launch, blocks, warps);
  if (module.protocol == "LL") run_schedule<kSchedule, interp::LL>(launch, blocks, warps);
  if (module.protocol == "LL128") run_schedule<kSchedule, interp::LL128>(launch, blocks, warps);
}

}  // namespace

void run_by_hand(const Module& module, const cuda::Launch& launch, std::uint32_t blocks, std::uint32_t warps) {
  if (module.hand == "ring") run_protocol<Schedule::ring>(module, launch, blocks, warps);
  if (module.hand == "allpairs") run_protocol<Schedule::allpairs>(module, launch, blocks, warps);
  if (module.hand == "alltoall") run_protocol<Schedule::alltoall>(module, launch, blocks, warps);
}

}  // namespace gc3::fake_cuda
