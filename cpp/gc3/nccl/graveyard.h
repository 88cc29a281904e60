// The memory of communicators that this process has left and other ranks have not.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "gc3/nccl/departures.h"
#include "gc3/runtime/cuda/rank_engine.h"

namespace gc3::nccl {

class Graveyard {
 public:
  struct Remains {
    std::vector<std::unique_ptr<cuda::RankEngine>> engines;
    std::vector<cuda::Memory> workspaces;
    std::shared_ptr<Departures> departures;
    std::uint32_t rank;
  };

  static Graveyard& get();
  void take(Remains remains);
  // Frees what no rank uses any more.
  void clear();
  std::size_t size();

 private:
  std::mutex mutex_;
  std::vector<Remains> all_;
};

}  // namespace gc3::nccl
