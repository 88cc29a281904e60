#include "gc3/sim/fair_rates.h"

#include <algorithm>
#include <limits>

#include "gc3/base/interrupt.h"

namespace gc3::sim {

void share_fairly(std::vector<Flow*>& flows, const std::vector<double>& capacity) {
  constexpr double kTight = 1 + 1e-12;  // a level counts as reached despite rounding
  std::vector<double> left = capacity;
  std::vector<double> weight(capacity.size());
  std::vector<std::uint32_t> used;
  for (const Flow* f : flows) {
    for (const Flow::Use& u : f->uses) {
      if (weight[u.resource] == 0) used.push_back(u.resource);
      weight[u.resource] += u.weight;
    }
  }
  std::vector<Flow*> open = flows;
  Breath breathe;
  while (!open.empty()) {
    double level = std::numeric_limits<double>::infinity();
    for (const std::uint32_t r : used) {
      if (weight[r] > 0) level = std::min(level, std::max(left[r], 0.0) / weight[r]);
    }
    for (const Flow* f : open) level = std::min(level, f->most);
    const auto full = [&](const Flow::Use& u) {
      return weight[u.resource] > 0 && left[u.resource] <= level * weight[u.resource] * kTight;
    };
    // All flows that stop are determined before any of them gives up its weight.
    std::vector<Flow*> stopped;
    std::erase_if(open, [&](Flow* f) {
      breathe();
      const auto at = std::ranges::find_if(f->uses, full);
      if (at == f->uses.end() && f->most > level * kTight) return false;
      f->rate = level;
      f->bottleneck = at == f->uses.end() ? kNone : at->resource;
      stopped.push_back(f);
      return true;
    });
    for (const Flow* f : stopped) {
      for (const Flow::Use& u : f->uses) {
        left[u.resource] -= level * u.weight;
        weight[u.resource] -= u.weight;
        if (weight[u.resource] < 1e-9) weight[u.resource] = 0;
      }
    }
  }
}

}  // namespace gc3::sim
