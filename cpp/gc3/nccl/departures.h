// Which ranks have left a communicator. A rank's arenas are memory that others write credits to, also after its own
// last call has ended. So the memory is freed when all ranks have said that they have left; no rank waits for that.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/nccl/member.h"
#include "gc3/runtime/cuda/rank_engine.h"

namespace gc3::nccl {

class Departures {
 public:
  // A byte for each rank, which that rank sets.
  static Result<std::shared_ptr<Departures>> create(const Member& member);
  Result<cuda::ArenaHandle> handle() const;
  // Takes the handles of all ranks.
  Status connect(const Member& member, const std::vector<cuda::ArenaHandle>& handles);
  // Tells all other ranks.
  Status leave(std::uint32_t rank);
  // Whether all other ranks have left.
  Result<bool> all_gone(std::uint32_t rank) const;

 private:
  struct Peer {
    std::shared_ptr<cuda::Device> device;  // in whose context the address is valid
    std::uint8_t* base = nullptr;
  };
  std::uint32_t ranks_ = 0;
  std::shared_ptr<cuda::Device> device_;
  cuda::Memory own_;
  std::vector<cuda::OpenedArena> opened_;
  std::vector<Peer> peers_;
};

}  // namespace gc3::nccl
