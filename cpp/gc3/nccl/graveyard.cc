#include "gc3/nccl/graveyard.h"

#include <utility>

namespace gc3::nccl {

Graveyard& Graveyard::get() {
  static Graveyard* const graveyard = new Graveyard;  // never deleted: the driver may be gone when the process ends
  return *graveyard;
}

void Graveyard::take(Remains remains) {
  {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(remains));
  }
  clear();
}

void Graveyard::clear() {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const Remains& remains) {
    const Result<bool> gone = remains.departures->all_gone(remains.rank);
    return gone.ok() && gone.value();
  });
}

std::size_t Graveyard::size() {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

}  // namespace gc3::nccl
