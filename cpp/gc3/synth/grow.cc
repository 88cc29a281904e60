#include "gc3/synth/grow.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "gc3/base/ids.h"
#include "gc3/synth/deadline.h"
#include "gc3/synth/load.h"

namespace gc3::synth {
namespace {

// The price of a full bound over that of an empty one, as a power of ten over the whole load.
constexpr double kSteep = 6.0;
// The largest such power: an infinite price would make ranks unreachable where a bound is far below the load.
constexpr double kSteepest = 200.0;
// What a send costs beyond its price if its data is a send farther from the source, as a part of the lowest price.
constexpr double kLean = 0.03;
// How much dearer an edge is that gives a rank a peer beyond the limit.
constexpr double kBeyond = 1e3;
constexpr std::size_t kMostSearches = 4096;   // for paths from trees, in a pass
constexpr std::size_t kVisits = 200'000'000;  // of edges, in all passes: about a second

class Growth {
 public:
  explicit Growth(const Field& field)
      : field_(field),
        loads_(loads_of(field.bounds_of)),
        load_(field.room.size()),
        base_(field.room.size()),
        sends_(field.edges.size()),
        senders_(field.ranks),
        receivers_(field.ranks),
        out_(field.ranks),
        price_(field.edges.size()) {
    for (std::uint32_t e = 0; e < field.edges.size(); ++e) out_[field.edges[e].first].push_back(e);
    for (const std::uint32_t e : field.known) use(e, 1);
  }

  // Removes a tree.
  void remove(const std::vector<Sprout>& tree) {
    for (const Sprout& sprout : tree) count(sprout.edge, -1);
  }

  // Grows a tree by the cheapest path from itself to a target, again and again; prices follow the loads after every
  // `batch` sends.
  std::vector<Sprout> tree(const Wanted& wanted, std::size_t batch) {
    std::vector<Sprout> found;
    std::vector<bool> left(field_.ranks);
    std::size_t missing = wanted.targets.size();
    for (const std::uint32_t target : wanted.targets) left[target] = true;
    via_.assign(field_.ranks, kNone);
    brought_.assign(field_.ranks, kNone);
    members_.assign(1, wanted.source);
    depth_.assign(field_.ranks, 0);
    in_tree_.assign(field_.ranks, false);
    in_tree_[wanted.source] = true;
    begin();
    std::size_t priced = 0;  // sends when prices were computed
    while (missing > 0 && !todo_.empty()) {
      const auto [so_far, rank] = todo_.top();
      todo_.pop();
      if (so_far > cost_[rank]) continue;
      if (left[rank]) {
        for (const std::uint32_t reached : join(rank, found)) {
          if (left[reached]) --missing;
          left[reached] = false;
        }
        if (found.size() >= priced + batch) {
          priced = found.size();
          begin();
        }
        continue;
      }
      for (const std::uint32_t e : out_[rank]) {
        const std::uint32_t head = field_.edges[e].second;
        const double further = so_far + price_[e];
        if (further < cost_[head]) {
          cost_[head] = further;
          via_[head] = e;
          todo_.emplace(further, head);
        }
      }
    }
    return found;
  }

 private:
  void find_prices() {
    for (std::size_t b = 0; b < base_.size(); ++b) {
      const double full = static_cast<double>(load_[b]) / (field_.room[b] * field_.fewest);
      base_[b] = std::pow(10.0, std::min(kSteep * full, kSteepest));
    }
    for (std::uint32_t e = 0; e < price_.size(); ++e) {
      double sum = 0;
      for (const Load& each : loads_[e])
        sum += static_cast<double>(each.times) / field_.room[each.bound] * base_[each.bound];
      price_[e] = beyond(e) ? kBeyond * sum : sum;
    }
    lean_ = price_.empty() ? 0 : kLean * std::ranges::min(price_);
  }

  // Whether a send over an edge would give its ranks one peer too many. An orbit of edges is one peer of each rank.
  bool beyond(std::uint32_t edge) const {
    const auto [sender, receiver] = orbits(edge);
    return sends_[field_.edge_orbits[edge]] == 0 &&
           (receivers_[sender] >= field_.peers || senders_[receiver] >= field_.peers);
  }

  std::pair<std::uint32_t, std::uint32_t> orbits(std::uint32_t edge) const {
    const auto [sender, receiver] = field_.edges[edge];
    return {field_.rank_orbits[sender], field_.rank_orbits[receiver]};
  }

  void count(std::uint32_t edge, int trees) {
    for (const Load& each : loads_[edge]) load_[each.bound] += trees * each.times;
    use(edge, trees);
  }

  void use(std::uint32_t edge, int trees) {
    std::int64_t& sends = sends_[field_.edge_orbits[edge]];
    const int change = static_cast<int>(sends + trees > 0) - static_cast<int>(sends > 0);
    sends += trees;
    const auto [sender, receiver] = orbits(edge);
    receivers_[sender] += static_cast<std::uint32_t>(change);
    senders_[receiver] += static_cast<std::uint32_t>(change);
  }

  // Begins to look for paths from the tree.
  void begin() {
    find_prices();
    cost_.assign(field_.ranks, std::numeric_limits<double>::infinity());
    todo_ = {};
    for (const std::uint32_t rank : members_) enter(rank);
  }

  void enter(std::uint32_t rank) {
    cost_[rank] = lean_ * depth_[rank];
    todo_.emplace(cost_[rank], rank);
  }

  // Adds the path to a rank; returns the ranks that it reaches, in order.
  std::vector<std::uint32_t> join(std::uint32_t rank, std::vector<Sprout>& found) {
    std::vector<std::uint32_t> reached;
    for (std::uint32_t at = rank; !in_tree_[at]; at = field_.edges[via_[at]].first) reached.push_back(at);
    std::ranges::reverse(reached);
    for (const std::uint32_t next : reached) {
      found.push_back({via_[next], brought_[field_.edges[via_[next]].first]});
      brought_[next] = static_cast<std::uint32_t>(found.size() - 1);
      in_tree_[next] = true;
      count(via_[next], 1);
      members_.push_back(next);
      depth_[next] = depth_[field_.edges[via_[next]].first] + 1;
      enter(next);
    }
    return reached;
  }

  const Field& field_;
  double lean_ = 0;
  std::vector<std::vector<Load>> loads_;
  std::vector<Amount> load_;
  std::vector<double> base_;
  std::vector<std::int64_t> sends_;       // by the first edge of an orbit
  std::vector<std::uint32_t> senders_;    // to a rank, by the first rank of its orbit
  std::vector<std::uint32_t> receivers_;  // of a rank
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<double> price_;
  std::vector<double> cost_;            // by rank: of the path from the current tree
  std::vector<std::uint32_t> via_;      // by rank: the last edge of that path
  std::vector<std::uint32_t> brought_;  // by rank: its send in the tree
  std::vector<std::uint32_t> depth_;    // by rank: its sends from the source
  std::vector<std::uint32_t> members_;  // the ranks of the tree
  std::vector<bool> in_tree_;
  using Place = std::pair<double, std::uint32_t>;
  std::priority_queue<Place, std::vector<Place>, std::greater<>> todo_;
};

}  // namespace

std::optional<std::vector<std::vector<Sprout>>> grow_trees(const Field& field, const std::vector<Wanted>& wanted,
                                                           const std::vector<std::uint32_t>& order,
                                                           std::uint32_t passes, double seconds) {
  const Deadline deadline = deadline_in(seconds);
  std::size_t sends = 0;
  for (const std::uint32_t number : order) sends += wanted[number].targets.size();
  const std::size_t visits = std::max<std::size_t>(field.edges.size(), 1) * passes;  // of one search in each pass
  const std::size_t searches = std::clamp<std::size_t>(kVisits / visits, 1, kMostSearches);
  const std::size_t batch = (sends / searches) + 1;
  Growth growth(field);
  std::vector<std::vector<Sprout>> trees(order.size());
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (Clock::now() > deadline) return std::nullopt;
      growth.remove(trees[i]);
      trees[i] = growth.tree(wanted[order[i]], batch);
    }
  }
  return trees;
}

}  // namespace gc3::synth
