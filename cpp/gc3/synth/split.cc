#include "gc3/synth/split.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gc3::synth {
namespace {

// A step that visits all places of a circle, and is about as long as 0.618 of it: neighbors land far apart.
std::size_t scatter(std::size_t places) {
  std::size_t step = std::max<std::size_t>(places * 618 / 1000, 1);
  while (std::gcd(step, places) > 1) ++step;
  return step;
}

std::uint64_t key(std::uint64_t a, std::uint64_t b) { return (a << 32U) | b; }

// A graph with a flow from the roots to each rank; the flows are maintained while arcs are split off.
class Splitter {
 public:
  Splitter(const Graph& graph, const std::vector<Root>& roots)
      : source_(graph.vertices), out_(graph.vertices + 1), in_(graph.vertices + 1) {
    for (const Arc& arc : graph.arcs) arcs_[arc_between(arc.tail, arc.head)].capacity += arc.capacity;
    for (const auto& [rank, copies] : roots) {
      arcs_[arc_between(source_, rank)].capacity = copies;
      needed_ += copies;
    }
    for (const auto& [tail, via, head] : graph.ways) ways_[via].insert(key(tail, head));
    for (std::uint32_t rank = 0; rank < graph.ranks; ++rank) {
      if (roots.size() > 1 || rank != roots[0].rank) sinks_.push_back({rank, {}});
    }
  }

  // Computes the flows; false: the flow to some rank is too small.
  bool begin() {
    Flow flow(source_ + 1);
    for (const Arc& arc : arcs_) flow.add(arc.tail, arc.head, arc.capacity);
    for (Sink& sink : sinks_) {
      flow.reset();
      if (flow.run(source_, sink.rank, needed_) < needed_) return false;
      sink.flow.resize(arcs_.size());
      for (std::uint32_t a = 0; a < arcs_.size(); ++a) sink.flow[a] = flow.flow(a);
    }
    return true;
  }

  // Replaces a vertex; false: some rank still needs flow over it, or time is up.
  bool remove(std::uint32_t via, Deadline deadline) {
    const std::vector<std::uint32_t> heads = out_[via];
    const std::vector<std::uint32_t> tails = in_[via];
    const std::size_t stride = scatter(tails.size());
    // At first every pair gets its share, so that trees are shallow; then the rest is distributed.
    for (const bool sharing : {true, false}) {
      for (std::size_t shift = 0; shift < tails.size(); ++shift) {
        for (std::size_t i = 0; i < heads.size(); ++i) {
          if (Clock::now() > deadline) return false;
          const std::uint32_t first = tails[((stride * i) + shift) % tails.size()];
          const std::uint32_t second = heads[i];
          if (!allowed(via, first, second)) continue;
          const Amount most = std::min(arcs_[first].capacity, arcs_[second].capacity);
          if (most == 0) continue;
          const auto ways = static_cast<Amount>(std::max(tails.size(), heads.size()));
          split(first, second, sharing ? std::min(most, std::max(share_of(first, second) / ways, Amount{1})) : most);
        }
      }
    }
    cancel_cycles(via);
    return std::ranges::all_of(sinks_, [&](const Sink& sink) {
      return std::ranges::all_of(heads, [&](std::uint32_t a) { return sink.flow[a] == 0; });
    });
  }

  // Removes the arcs to a replaced vertex; no flow uses them.
  void drop(std::uint32_t via) {
    for (const std::uint32_t a : out_[via]) arcs_[a].capacity = 0;
    for (const std::uint32_t a : in_[via]) arcs_[a].capacity = 0;
  }

  std::vector<Arc> between(std::uint32_t ranks) const {
    std::vector<Arc> found;
    for (const Arc& arc : arcs_) {
      if (arc.tail < ranks && arc.head < ranks && arc.capacity > 0) found.push_back(arc);
    }
    return found;
  }

  // Whether cycles of the flows through a vertex are removed, so that only arriving flow counts.
  void cancel_cycles(std::uint32_t via) {
    for (Sink& sink : sinks_) {
      for (const std::uint32_t a : out_[via]) {
        while (sink.flow[a] > 0 && undo_cycle(sink, a)) {
        }
      }
    }
  }

 private:
  struct Sink {
    std::uint32_t rank = 0;
    std::vector<Amount> flow;  // over each arc
  };

  std::uint32_t arc_between(std::uint32_t tail, std::uint32_t head) {
    const auto [at, added] = index_.try_emplace(key(tail, head), static_cast<std::uint32_t>(arcs_.size()));
    if (added) {
      arcs_.push_back({tail, head, 0});
      out_[tail].push_back(at->second);
      in_[head].push_back(at->second);
      for (Sink& sink : sinks_) {
        if (!sink.flow.empty()) sink.flow.push_back(0);
      }
      whole_.push_back(0);
    }
    return at->second;
  }

  bool allowed(std::uint32_t via, std::uint32_t first, std::uint32_t second) const {
    const auto at = ways_.find(via);
    return at != ways_.end() && at->second.contains(key(arcs_[first].tail, arcs_[second].head));
  }

  // The capacity of an arc when the replacement of its vertex began.
  Amount share_of(std::uint32_t first, std::uint32_t second) {
    for (const std::uint32_t a : {first, second}) whole_[a] = std::max(whole_[a], arcs_[a].capacity);
    return std::min(whole_[first], whole_[second]);
  }

  // Moves up to `most` from two consecutive arcs to one past their vertex: as much as leaves every flow at its value.
  void split(std::uint32_t first, std::uint32_t second, Amount most) {
    const std::uint32_t past = arc_between(arcs_[first].tail, arcs_[second].head);
    Amount amount = most;
    // The sink that limited the last move is checked first.
    for (std::size_t i = 0; i < sinks_.size() && amount > 0; ++i) {
      const std::size_t s = i == 0 ? objector_ : i <= objector_ ? i - 1 : i;
      Sink& sink = sinks_[s];
      if (sink.flow[first] <= arcs_[first].capacity - amount && sink.flow[second] <= arcs_[second].capacity - amount) {
        continue;
      }
      changed_.clear();
      change_capacity(first, second, past, amount);
      const Amount short_of = move(sink, first, second, past, amount);
      change_capacity(first, second, past, -amount);
      for (auto at = changed_.rbegin(); at != changed_.rend(); ++at) sink.flow[at->first] = at->second;
      // Every cut that becomes smaller loses exactly the amount that is split off, so the shortfall is the excess.
      amount -= short_of;
      if (short_of > 0) objector_ = s;
    }
    if (amount <= 0) return;
    change_capacity(first, second, past, amount);
    for (Sink& sink : sinks_) move(sink, first, second, past, amount);
  }

  void change_capacity(std::uint32_t first, std::uint32_t second, std::uint32_t past, Amount amount) {
    arcs_[first].capacity -= amount;
    arcs_[second].capacity -= amount;
    arcs_[past].capacity += amount;
  }

  // Adapts the flow of a sink to changed capacities; returns the loss.
  Amount move(Sink& sink, std::uint32_t first, std::uint32_t second, std::uint32_t past, Amount amount) {
    if (sink.flow[first] <= arcs_[first].capacity && sink.flow[second] <= arcs_[second].capacity) return 0;
    const Amount along = std::min({sink.flow[first], sink.flow[second], amount});
    add(sink, first, -along);
    add(sink, second, -along);
    add(sink, past, along);
    Amount lost = 0;
    for (const std::uint32_t a : {first, second}) {
      const Amount excess = sink.flow[a] - arcs_[a].capacity;
      if (excess <= 0) continue;
      add(sink, a, -excess);
      lost += excess - reroute(sink, arcs_[a].tail, arcs_[a].head, excess);
    }
    return lost;
  }

  void add(Sink& sink, std::uint32_t arc, Amount amount) {
    changed_.emplace_back(arc, sink.flow[arc]);
    sink.flow[arc] += amount;
  }

  // Sends up to `most` more from one vertex to another in the residual graph of a flow; returns the amount.
  Amount reroute(Sink& sink, std::uint32_t from, std::uint32_t to, Amount most) {
    Amount total = 0;
    while (total < most && find_way(sink, from, to)) {
      Amount amount = most - total;
      for (std::uint32_t v = to; v != from;) {
        const auto [a, forward] = came_[v];
        amount = std::min(amount, forward ? arcs_[a].capacity - sink.flow[a] : sink.flow[a]);
        v = forward ? arcs_[a].tail : arcs_[a].head;
      }
      for (std::uint32_t v = to; v != from;) {
        const auto [a, forward] = came_[v];
        add(sink, a, forward ? amount : -amount);
        v = forward ? arcs_[a].tail : arcs_[a].head;
      }
      total += amount;
    }
    return total;
  }

  bool find_way(const Sink& sink, std::uint32_t from, std::uint32_t to) {
    came_.resize(out_.size());
    seen_.assign(out_.size(), false);
    seen_[from] = true;
    queue_.assign(1, from);
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const std::uint32_t v = queue_[i];
      const auto reach = [&](std::uint32_t a, std::uint32_t next, bool forward) {
        if (seen_[next]) return;
        seen_[next] = true;
        came_[next] = {a, forward};
        queue_.push_back(next);
      };
      for (const std::uint32_t a : out_[v]) {
        if (sink.flow[a] < arcs_[a].capacity) reach(a, arcs_[a].head, true);
      }
      for (const std::uint32_t a : in_[v]) {
        if (sink.flow[a] > 0) reach(a, arcs_[a].tail, false);
      }
      if (seen_[to]) return true;
    }
    return false;
  }

  // Removes one cycle of a flow that uses an arc; false: there is none.
  bool undo_cycle(Sink& sink, std::uint32_t arc) {
    came_.resize(out_.size());
    seen_.assign(out_.size(), false);
    const std::uint32_t from = arcs_[arc].head;
    const std::uint32_t to = arcs_[arc].tail;
    seen_[from] = true;
    queue_.assign(1, from);
    for (std::size_t i = 0; i < queue_.size() && !seen_[to]; ++i) {
      for (const std::uint32_t a : out_[queue_[i]]) {
        const std::uint32_t next = arcs_[a].head;
        if (sink.flow[a] == 0 || seen_[next]) continue;
        seen_[next] = true;
        came_[next] = {a, true};
        queue_.push_back(next);
      }
    }
    if (!seen_[to]) return false;
    Amount amount = sink.flow[arc];
    for (std::uint32_t v = to; v != from; v = arcs_[came_[v].first].tail) {
      amount = std::min(amount, sink.flow[came_[v].first]);
    }
    sink.flow[arc] -= amount;
    for (std::uint32_t v = to; v != from; v = arcs_[came_[v].first].tail) sink.flow[came_[v].first] -= amount;
    return true;
  }

  std::uint32_t source_;
  Amount needed_ = 0;
  std::size_t objector_ = 0;
  std::vector<Arc> arcs_;
  std::vector<Amount> whole_;
  std::vector<std::vector<std::uint32_t>> out_;
  std::vector<std::vector<std::uint32_t>> in_;
  std::unordered_map<std::uint64_t, std::uint32_t> index_;
  std::unordered_map<std::uint32_t, std::unordered_set<std::uint64_t>> ways_;
  std::vector<Sink> sinks_;
  std::vector<std::pair<std::uint32_t, Amount>> changed_;  // arcs and their previous capacities
  std::vector<std::pair<std::uint32_t, bool>> came_;       // by vertex: the arc, and whether in its direction
  std::vector<bool> seen_;
  std::vector<std::uint32_t> queue_;
};

}  // namespace

std::optional<std::vector<Arc>> split_off(const Graph& graph, const std::vector<Root>& roots, Deadline deadline) {
  Splitter splitter(graph, roots);
  if (!splitter.begin()) return std::nullopt;
  for (std::uint32_t via = graph.ranks; via < graph.vertices; ++via) {
    splitter.cancel_cycles(via);
    if (!splitter.remove(via, deadline)) return std::nullopt;
    splitter.drop(via);
  }
  return splitter.between(graph.ranks);
}

}  // namespace gc3::synth
