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
  struct Handle {
    cuda::ArenaHandle block;
    std::uint64_t offset = 0;
  };
  // Of the list of this rank.
  struct Place {
    const cuda::Memory* block = nullptr;
    std::uint64_t offset = 0;
  };

  // A byte for each rank, which that rank sets.
  static Result<std::shared_ptr<Departures>> create(const Member& member);
  Departures() = default;
  ~Departures();
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;
  Result<Handle> handle() const;
  // Takes the handles of all ranks.
  Status connect(const Member& member, const std::vector<Handle>& handles);
  // Tells all other ranks.
  Status leave(std::uint32_t rank);
  // Whether all other ranks have left.
  Result<bool> all_gone(std::uint32_t rank);

 private:
  struct Peer {
    std::shared_ptr<cuda::Device> device;  // in whose context the address is valid
    std::uint8_t* base = nullptr;
  };
  std::uint32_t ranks_ = 0;
  std::shared_ptr<cuda::Device> device_;
  Place own_;
  bool unused_ = true;  // no other rank will write into it
  std::vector<cuda::OpenedArena> opened_;
  std::vector<Peer> peers_;
};

}  // namespace gc3::nccl
