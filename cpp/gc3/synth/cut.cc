#include "gc3/synth/cut.h"

#include "gc3/synth/deadline.h"
#include "gc3/synth/flow.h"

namespace gc3::synth {

std::optional<Cut> narrow_cut(const Graph& graph, const std::vector<Need>& needs, std::size_t begin, Amount rounds,
                              Amount times, double seconds) {
  const Deadline deadline = deadline_in(seconds);
  Flow flow(graph.vertices + 1);
  const std::uint32_t source = graph.vertices;
  for (std::uint32_t rank = 0; rank < graph.ranks; ++rank) flow.add(source, rank, 0);
  for (const Arc& arc : graph.arcs) {
    flow.add(arc.tail, arc.head, arc.capacity == kEndless ? kEndless : arc.capacity * rounds);
  }
  for (std::size_t n = begin; n < needs.size(); ++n) {
    if (Clock::now() > deadline) return std::nullopt;
    Amount needed = 0;
    for (const auto& [rank, amount] : needs[n].supply) {
      flow.set(rank, amount * times);
      needed += amount * times;
    }
    flow.reset();
    if (flow.run(source, needs[n].target, needed) < needed) {
      Cut cut{n, 0, {}};
      for (const Arc& arc : graph.arcs) {
        if (flow.reached(arc.tail) && !flow.reached(arc.head)) cut.room += arc.capacity;
      }
      for (std::uint32_t rank = 0; rank < graph.ranks; ++rank) {
        if (flow.reached(rank)) cut.inside.push_back(rank);
      }
      return cut;
    }
    for (const auto& [rank, amount] : needs[n].supply) flow.set(rank, 0);
  }
  return std::nullopt;
}

}  // namespace gc3::synth
