#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gc3/compiler/direct/moves.h"

namespace gc3::compiler::direct {
namespace {

using Ranks = std::vector<std::uint32_t>;  // ascending

// The ranks that a switch reaches for some group of the program.
std::set<Ranks> groups_of(const ir::Program& program) {
  std::map<std::pair<bool, std::uint32_t>, std::set<std::uint32_t>> groups;
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    for (std::uint32_t t = 0; t < program.ranks[r].tb_count; ++t) {
      const ir::Threadblock& tb = program.threadblocks[program.ranks[r].first_tb + t];
      for (std::uint32_t i = tb.first_instruction; i < tb.first_instruction + tb.instruction_count; ++i) {
        const ir::Switched& of = program.switched[i];
        if (of.multicast != kNone) groups[{true, of.multicast}].insert({r, static_cast<std::uint32_t>(tb.send_peer)});
        if (of.reduction != kNone) groups[{false, of.reduction}].insert({r, static_cast<std::uint32_t>(tb.recv_peer)});
      }
    }
  }
  std::set<Ranks> found;
  for (const auto& [key, ranks] : groups) found.insert(Ranks(ranks.begin(), ranks.end()));
  return found;
}

}  // namespace

void use_switches(const ir::Program& program, Moves& moves) {
  const std::set<Ranks> known = groups_of(program);
  std::vector<Ranks> groups(known.begin(), known.end());
  std::ranges::stable_sort(groups, std::ranges::greater(), &Ranks::size);
  std::vector<std::uint32_t> rank_of;
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    rank_of.insert(rank_of.end(), program.ranks[r].tb_count, r);
  }
  // The largest group of a rank whose ranks' places are among `spots`, or are `also`.
  const auto found = [&](std::uint32_t own, const std::vector<Spot>& spots, const Spot* also) -> Move::Switched {
    for (const Ranks& ranks : groups) {
      if (!std::ranges::binary_search(ranks, own)) continue;
      for (const Spot& first : spots) {
        const bool all = std::ranges::all_of(ranks, [&](std::uint32_t rank) {
          const Spot wanted{rank, first.place};
          return std::ranges::find(spots, wanted) != spots.end() || (also != nullptr && *also == wanted);
        });
        if (all) return {ranks, first.place};
      }
    }
    return {};
  };
  for (Move& m : moves.all) {
    const std::uint32_t own = rank_of[m.tb];
    if (m.reduces) m.summed = found(own, m.sources, nullptr);
    // A switch stores to the source as well, which has the value.
    const Spot* const source = m.sources.size() == 1 ? m.sources.data() : nullptr;
    m.copied = found(own, m.targets, source);
    if (source != nullptr && m.copied.has(*source) && std::ranges::find(m.targets, *source) == m.targets.end()) {
      m.targets.push_back(*source);
    }
  }
}

}  // namespace gc3::compiler::direct
