#include "gc3/synth/forest.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "gc3/base/ids.h"
#include "gc3/synth/deadline.h"
#include "gc3/synth/split.h"

namespace gc3::synth {
namespace {

// A growing tree, with its number of copies.
struct Growing {
  Tree tree;
  std::vector<std::uint32_t> members;  // in the order in which they were reached
  std::vector<std::uint32_t> depth;    // by rank; kNone: it is not reached yet
  // Arcs that other trees need. They stay reserved while only this tree grows, because capacities only decrease.
  std::vector<bool> needed;
  std::uint32_t deepest = 0;  // the depth to which it has grown
};

class Packing {
 public:
  Packing(std::uint32_t ranks, std::vector<Arc> arcs) : ranks_(ranks), arcs_(std::move(arcs)), out_(ranks) {
    for (std::uint32_t a = 0; a < arcs_.size(); ++a) out_[arcs_[a].tail].push_back(a);
  }

  std::optional<std::vector<Tree>> pack(const std::vector<Root>& roots, Deadline deadline) {
    for (const auto& [rank, copies] : roots) {
      Growing begun{{rank, copies, {}}, {rank}, std::vector<std::uint32_t>(ranks_, kNone), {}, 0};
      begun.depth[rank] = 0;
      waiting_.push_back(std::move(begun));
    }
    // The trees of a single root grow level by level, so that the last ones find near branches, too. With many roots,
    // that takes long, and the depth matters little beside the load.
    std::uint32_t level = roots.size() == 1 ? 1 : ranks_;
    std::vector<Tree> found;
    while (!waiting_.empty()) {
      auto next = waiting_.begin();
      if (roots.size() == 1) {
        next = std::ranges::min_element(waiting_, {},
                                        [](const Growing& g) { return std::pair(g.deepest, g.members.size()); });
      }
      if (next->deepest >= level) {
        if (++level > ranks_) return std::nullopt;
        continue;
      }
      Growing growing = std::move(*next);
      waiting_.erase(next);
      growing.needed.assign(arcs_.size(), false);
      build();
      do {
        if (Clock::now() > deadline) return std::nullopt;
      } while (growing.members.size() < ranks_ && grow(growing, level));
      if (growing.members.size() == ranks_) {
        found.push_back(std::move(growing.tree));
        continue;
      }
      growing.deepest = level;
      waiting_.push_back(std::move(growing));
    }
    return found;
  }

 private:
  // Adds a branch of at most this depth, the nearest to the root first; false: there is none.
  bool grow(Growing& growing, std::uint32_t level) {
    for (std::size_t i = 0; i < growing.members.size(); ++i) {
      const std::uint32_t depth = growing.depth[growing.members[i]] + 1;
      if (depth > level) return false;
      for (const std::uint32_t a : out_[growing.members[i]]) {
        const Arc& arc = arcs_[a];
        if (arc.capacity == 0 || growing.depth[arc.head] != kNone || growing.needed[a]) continue;
        const Amount copies = room(a, growing.tree.copies);
        if (copies <= 0) {
          growing.needed[a] = true;
          continue;
        }
        if (copies < growing.tree.copies) {
          Growing rest = growing;
          rest.tree.copies -= copies;
          waiting_.push_front(std::move(rest));
          growing.tree.copies = copies;
          build();
        }
        arcs_[a].capacity -= copies;
        flow_->set(a, arcs_[a].capacity);
        growing.tree.branches.push_back({arc.tail, arc.head});
        growing.members.push_back(arc.head);
        growing.depth[arc.head] = depth;
        return true;
      }
    }
    return false;
  }

  // How many copies of a tree may use an arc, so that all waiting trees can still be grown.
  //
  // A waiting tree must be able to leave every set of ranks that it has not reached. For all of them together, the set
  // that contains the arc's head and not its tail needs as many arcs into it as there are copies.
  Amount room(std::uint32_t a, Amount copies) {
    const Arc& arc = arcs_[a];
    const Amount most = std::min(copies, arc.capacity);
    flow_->set(over_[arc.tail], kEndless);
    flow_->reset();
    const Amount reached = flow_->run(arc.tail, arc.head, waiting_copies_ + most);
    flow_->set(over_[arc.tail], 0);
    return std::min(most, reached - waiting_copies_);
  }

  // The graph with a vertex for every waiting tree, from which its ranks are reached, and one vertex that leads to all
  // of these.
  void build() {
    const auto hub = ranks_ + static_cast<std::uint32_t>(waiting_.size());
    flow_.emplace(hub + 1);
    for (const Arc& arc : arcs_) flow_->add(arc.tail, arc.head, arc.capacity);
    over_.clear();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) over_.push_back(flow_->add(rank, hub, 0));
    waiting_copies_ = 0;
    for (std::uint32_t w = 0; w < waiting_.size(); ++w) {
      const Growing& other = waiting_[w];
      waiting_copies_ += other.tree.copies;
      flow_->add(hub, ranks_ + w, other.tree.copies);
      for (const std::uint32_t rank : other.members) flow_->add(ranks_ + w, rank, kEndless);
    }
  }

  std::uint32_t ranks_;
  std::vector<Arc> arcs_;
  std::vector<std::vector<std::uint32_t>> out_;
  std::deque<Growing> waiting_;
  Amount waiting_copies_ = 0;
  std::optional<Flow> flow_;
  std::vector<std::uint32_t> over_;  // by rank: its arc to the vertex that leads to all waiting trees
};

}  // namespace

std::optional<std::vector<Tree>> pack_trees(const Graph& graph, const std::vector<Root>& roots, double seconds) {
  const Deadline deadline = deadline_in(seconds);
  std::optional<std::vector<Arc>> arcs = split_off(graph, roots, deadline);
  if (!arcs) return std::nullopt;
  return Packing(graph.ranks, std::move(*arcs)).pack(roots, deadline);
}

}  // namespace gc3::synth
