#include "gc3/runtime/core/cores.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace gc3::core {

Cores Cores::own() {
  Cores cores;
  syscall(SYS_sched_getaffinity, 0, sizeof cores.words, cores.words.data());
  return cores;
}

std::uint32_t Cores::count() const {
  std::uint32_t n = 0;
  for (const std::uint64_t w : words) n += static_cast<std::uint32_t>(__builtin_popcountll(w));
  return n;
}

Cores Cores::share_of(const Place& place) const {
  const std::uint32_t all = count();
  Cores share;
  if (all == 0) return share;
  const auto part = [&](std::uint64_t rank) { return static_cast<std::uint32_t>(all * rank / place.size); };
  const bool enough = all >= place.size;
  const std::uint32_t first = enough ? part(place.rank) : place.rank % all;
  const std::uint32_t last = enough ? part(std::uint64_t{place.rank} + 1) : first + 1;
  for (std::uint32_t bit = 0, seen = 0; bit < kMost; ++bit) {
    const std::uint64_t flag = std::uint64_t{1} << bit % 64;
    if ((words[bit / 64] & flag) == 0) continue;
    if (seen >= first && seen < last) share.words[bit / 64] |= flag;
    ++seen;
  }
  return share;
}

void Cores::keep_here() const { syscall(SYS_sched_setaffinity, 0, sizeof words, words.data()); }

}  // namespace gc3::core
