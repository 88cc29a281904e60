#include "gc3/synth/flatten.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "gc3/base/ids.h"
#include "gc3/synth/deadline.h"

namespace gc3::synth {
namespace {

// The price of a rank is so many times that of its parent in the tree, so that the deepest ranks count most.
constexpr double kPriceOfLevel = 1.5;
constexpr double kLeast = 1e-6;                   // of a gain, as a part of the price of what moves first
constexpr std::size_t kStride = 7919;             // a prime
constexpr std::uint32_t kMoves = 4;               // at the same time
constexpr std::int64_t kOnce = 4000;              // moves to look at for a rank of a tree in a pass
constexpr std::int64_t kMovesToTry = 20'000'000;  // moves to look at: about half a second
constexpr std::int64_t kVain = 3'000'000;         // of these without any gain before the end

// A tree by ranks.
struct Shape {
  std::uint32_t root = 0;
  Amount copies = 0;
  std::vector<std::uint32_t> edge;   // that reaches each rank
  std::vector<std::uint32_t> depth;  // of each rank
  std::vector<double> price;         // of each rank and all below it
  std::vector<std::vector<std::uint32_t>> children;
};

class Flattening {
 public:
  Flattening(const Plain& network, const std::vector<Tree>& trees)
      : network_(network), left_(network.room), users_(network.room.size()), into_(network.ranks) {
    std::vector<std::uint32_t> number(std::size_t{network.ranks} * network.ranks, kNone);
    for (std::uint32_t e = 0; e < network.edges.size(); ++e) {
      const auto [from, to] = network.edges[e];
      number[(std::size_t{from} * network.ranks) + to] = e;
      into_[to].push_back(e);
    }
    std::size_t deepest = 0;
    for (const Tree& tree : trees) deepest = std::max(deepest, tree.branches.size());
    for (std::size_t d = 0; d <= deepest; ++d) prices_.push_back(std::pow(kPriceOfLevel, d));
    for (const Tree& tree : trees) {
      const std::uint32_t ranks = network.ranks;
      Shape shape{tree.root,
                  tree.copies,
                  std::vector<std::uint32_t>(ranks, kNone),
                  std::vector<std::uint32_t>(ranks),
                  std::vector<double>(ranks),
                  std::vector<std::vector<std::uint32_t>>(ranks)};
      shape.price[tree.root] = 1;
      shapes_.push_back(std::move(shape));
      const auto t = static_cast<std::uint32_t>(shapes_.size() - 1);
      for (const auto& [tail, head] : tree.branches) {
        shapes_[t].depth[head] = shapes_[t].depth[tail] + 1;
        shapes_[t].price[head] = prices_[shapes_[t].depth[head]];
        hang(t, head, number[(std::size_t{tail} * ranks) + head]);
      }
    }
  }

  void run(Deadline deadline) {
    deadline_ = deadline;
    for (most_ = 2; most_ <= kMoves;) {
      const bool better = pass();
      if (effort_ <= 0) return;
      most_ = better ? 2 : most_ + 1;
    }
  }

  std::vector<Tree> trees() const {
    std::vector<Tree> found;
    for (const Shape& shape : shapes_) {
      Tree tree{shape.root, shape.copies, {}};
      std::vector<std::uint32_t> order{shape.root};
      for (std::size_t i = 0; i < order.size(); ++i) {
        for (const std::uint32_t child : shape.children[order[i]]) {
          tree.branches.push_back({order[i], child});
          order.push_back(child);
        }
      }
      found.push_back(std::move(tree));
    }
    return found;
  }

 private:
  std::uint32_t parent(const Shape& shape, std::uint32_t rank) const { return network_.edges[shape.edge[rank]].first; }

  // Hangs a rank, which hangs nowhere, and all below it on the sender of an edge.
  void hang(std::uint32_t tree, std::uint32_t rank, std::uint32_t edge) {
    Shape& shape = shapes_[tree];
    shape.edge[rank] = edge;
    for (const std::uint32_t b : network_.bounds_of[edge]) {
      left_[b] -= shape.copies;
      users_[b].emplace_back(tree, rank);
    }
    const std::uint32_t above = parent(shape, rank);
    shape.children[above].push_back(rank);
    if (shape.depth[rank] != shape.depth[above] + 1) {
      const std::uint32_t by = shape.depth[above] + 1 - shape.depth[rank];  // may wrap around
      below_.assign(1, rank);
      for (std::size_t i = 0; i < below_.size(); ++i) {
        const std::uint32_t at = below_[i];
        shape.depth[at] += by;
        below_.insert(below_.end(), shape.children[at].begin(), shape.children[at].end());
      }
      for (std::size_t i = below_.size(); i-- > 0;) price_at(shape, below_[i]);
    }
    update_above(shape, rank);
  }

  void take(std::uint32_t tree, std::uint32_t rank) {
    Shape& shape = shapes_[tree];
    for (const std::uint32_t b : network_.bounds_of[shape.edge[rank]]) {
      left_[b] += shape.copies;
      auto& users = users_[b];
      *std::ranges::find(users, std::pair(tree, rank)) = users.back();
      users.pop_back();
    }
    auto& siblings = shape.children[parent(shape, rank)];
    *std::ranges::find(siblings, rank) = siblings.back();
    siblings.pop_back();
    update_above(shape, rank);
  }

  // Adds up the prices of all ranks above one; sums and differences would lose small prices beside large ones.
  void update_above(Shape& shape, std::uint32_t rank) const {
    while (rank != shape.root) {
      rank = parent(shape, rank);
      price_at(shape, rank);
    }
  }

  void price_at(Shape& shape, std::uint32_t rank) const {
    shape.price[rank] = prices_[shape.depth[rank]];
    for (const std::uint32_t child : shape.children[rank]) shape.price[rank] += shape.price[child];
  }

  bool below(const Shape& shape, std::uint32_t top, std::uint32_t rank) const {
    while (shape.depth[rank] > shape.depth[top]) rank = parent(shape, rank);
    return rank == top;
  }

  // How much the price of all trees grows if a rank hangs on another edge.
  double cost(const Shape& shape, std::uint32_t rank, std::uint32_t edge) const {
    const std::uint32_t now = shape.depth[rank];
    const std::uint32_t then = shape.depth[network_.edges[edge].first] + 1;
    const double factor = then > now ? prices_[then - now] - 1 : (1 / prices_[now - then]) - 1;
    return static_cast<double>(shape.copies) * shape.price[rank] * factor;
  }

  // Tries to improve on every rank of every tree once.
  bool pass() {
    ++passes_;
    bool better = false;
    for (std::uint32_t t = 0; t < shapes_.size(); ++t) {
      for (std::uint32_t rank = 0; rank < network_.ranks; ++rank) {
        if (rank == shapes_[t].root) continue;
        if (Clock::now() > deadline_) effort_ = 0;
        if (effort_ <= 0) return better;
        order_.clear();
        const Shape& shape = shapes_[t];
        for (const std::uint32_t e : into_[rank]) {
          if (shape.depth[network_.edges[e].first] + 1 < shape.depth[rank]) order_.push_back(e);
        }
        // Of those at the same depth, another one is the first in each pass.
        if (!order_.empty())
          std::ranges::rotate(order_, order_.begin() + static_cast<std::ptrdiff_t>(passes_ * kStride % order_.size()));
        std::ranges::stable_sort(order_, {}, [&](std::uint32_t e) { return shape.depth[network_.edges[e].first]; });
        const std::vector<std::uint32_t> edges = order_;
        enough_ = -kLeast * shape.price[rank] * static_cast<double>(shape.copies);
        const std::int64_t others = std::max<std::int64_t>(effort_ - kOnce, 0);
        effort_ -= others;
        for (const std::uint32_t e : edges) {
          if (moved(t, rank, e, 0, 1)) {
            better = true;
            gained_ = others + effort_;
            break;
          }
          if (effort_ <= 0) break;
        }
        effort_ = std::max<std::int64_t>(effort_, 0) + others;
        if (effort_ < gained_ - kVain) effort_ = 0;
      }
    }
    return better;
  }

  // Hangs a rank on another edge, and moves branches that are in the way if that is better altogether; false: nothing
  // has changed. `so_far`: the cost of the moves before, `moves`: their number with this one.
  bool moved(std::uint32_t tree, std::uint32_t rank, std::uint32_t edge, double so_far, std::uint32_t moves) {
    const Shape& shape = shapes_[tree];
    --effort_;
    const double sum = so_far + cost(shape, rank, edge);
    if (sum >= enough_ || effort_ <= 0 || below(shape, rank, network_.edges[edge].first)) return false;
    const std::uint32_t before = shape.edge[rank];
    if (moves == most_ && !fits(shape, before, edge)) return false;
    take(tree, rank);
    hang(tree, rank, edge);
    changed_.emplace_back(tree, rank);
    const bool good = cleared(sum, moves);
    changed_.pop_back();
    if (!good) {
      take(tree, rank);
      hang(tree, rank, before);
    }
    return good;
  }

  bool fits(const Shape& shape, std::uint32_t before, std::uint32_t edge) const {
    const auto& old = network_.bounds_of[before];
    return std::ranges::all_of(network_.bounds_of[edge], [&](std::uint32_t b) {
      return left_[b] >= shape.copies || std::ranges::find(old, b) != old.end();
    });
  }

  // Moves branches until no bound carries too much.
  bool cleared(double sum, std::uint32_t moves) {
    std::uint32_t narrow = kNone;
    for (const auto& [tree, rank] : changed_) {
      for (const std::uint32_t b : network_.bounds_of[shapes_[tree].edge[rank]]) {
        if (left_[b] < 0) narrow = b;
      }
    }
    if (narrow == kNone) return true;
    if (moves == most_) return false;
    const std::vector<std::pair<std::uint32_t, std::uint32_t>> users = users_[narrow];
    for (const auto& [tree, rank] : users) {
      const std::uint32_t now = shapes_[tree].edge[rank];
      if (std::ranges::find(changed_, std::pair(tree, rank)) != changed_.end()) continue;
      for (const std::uint32_t e : into_[rank]) {
        const auto& bounds = network_.bounds_of[e];
        if (e == now || std::ranges::find(bounds, narrow) != bounds.end()) continue;
        if (moved(tree, rank, e, sum, moves + 1)) return true;
        if (effort_ <= 0) return false;
      }
    }
    return false;
  }

  const Plain& network_;
  std::vector<Amount> left_;
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> users_;  // by bound: (tree, rank)
  std::vector<std::vector<std::uint32_t>> into_;                             // by rank: the edges to it
  std::vector<double> prices_;                                               // by depth
  std::vector<Shape> shapes_;
  std::vector<std::uint32_t> below_;
  std::vector<std::uint32_t> order_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> changed_;  // (tree, rank) of the moves under way
  std::uint32_t most_ = 2;                                        // moves at the same time
  std::size_t passes_ = 0;
  double enough_ = 0;  // the cost that all moves together must stay below
  std::int64_t effort_ = kMovesToTry;
  std::int64_t gained_ = kMovesToTry;  // what was left at the last gain
  Deadline deadline_;
};

}  // namespace

std::vector<Tree> flatten(const Plain& network, const std::vector<Tree>& trees, double seconds) {
  const Deadline deadline = deadline_in(seconds);
  Flattening flattening(network, trees);
  flattening.run(deadline);
  return flattening.trees();
}

}  // namespace gc3::synth
