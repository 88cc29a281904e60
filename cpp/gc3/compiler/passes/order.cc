#include "gc3/compiler/passes/order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

bool computes(const Trace& trace, std::uint32_t node) { return trace.ops[op_of(node)].kind == OpKind::apply; }

// The nodes that wait for each node: those of its rank, and the receive of what it sends.
class Successors {
 public:
  explicit Successors(const InstructionDag& dag) : begin_(dag.nodes.size() + 1, 0) {
    const auto each = [&](auto visit) {
      for (std::uint32_t i = 0; i < dag.nodes.size(); ++i) {
        if (!dag.exists(i)) continue;
        for (const std::uint32_t p : dag.preds_of(i)) visit(p, i);
        if (dag.sends(i)) visit(i, recv_node(dag.nodes[i].sends));
      }
    };
    each([&](std::uint32_t from, std::uint32_t) { ++begin_[from + 1]; });
    for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    nodes_.resize(begin_.back());
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    each([&](std::uint32_t from, std::uint32_t to) { nodes_[next[from]++] = to; });
  }
  std::span<const std::uint32_t> of(std::uint32_t node) const {
    return std::span(nodes_).subspan(begin_[node], begin_[node + 1] - begin_[node]);
  }
  // For how many others each node waits.
  std::vector<std::uint32_t> waits() const {
    std::vector<std::uint32_t> counts(begin_.size() - 1, 0);
    for (const std::uint32_t node : nodes_) ++counts[node];
    return counts;
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> nodes_;
};

// How many messages are on the longest path that follows each node.
std::vector<std::uint32_t> messages_after(const InstructionDag& dag) {
  std::vector<std::uint32_t> after(dag.nodes.size(), 0);
  for (auto i = static_cast<std::uint32_t>(dag.nodes.size()); i-- > 0;) {
    if (!dag.exists(i)) continue;
    if (dag.sends(i)) after[i] = std::max(after[i], after[recv_node(dag.nodes[i].sends)] + 1);
    for (const std::uint32_t p : dag.preds_of(i)) after[p] = std::max(after[p], after[i]);
  }
  return after;
}

// Depths in a program that computes. An operation holds its rank, so of those that are ready together only one has the
// depth of its operands: the one of the earliest step, then the one that most messages follow, and then the first in
// the program. The others come one level later each. Operations that follow do not count, as the rank has to do them
// anyway: they would put the first of each tile before the second of any, and no message could start. All that is known
// of their times is that they are about as long as a message.
void delay_operations(const Trace& trace, const InstructionDag& dag, Depths& d) {
  const Successors successors(dag);
  const std::vector<std::uint32_t> after = messages_after(dag);
  std::vector<std::uint32_t> waiting = successors.waits();
  std::vector<std::uint32_t> now;
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < dag.nodes.size(); ++i) {
    if (!dag.exists(i)) continue;
    ++total;
    if (waiting[i] == 0) now.push_back(i);
  }
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
  using Ready = std::priority_queue<Key, std::vector<Key>, std::greater<>>;
  std::vector<Ready> of_rank(trace.ranks());
  std::vector<std::uint32_t> busy;  // ranks with an operation that is ready
  Breath breathe;
  for (std::uint32_t level = 0; total != 0; ++level) {
    std::vector<std::uint32_t> begun;
    for (const std::uint32_t i : now) {
      if (!computes(trace, i)) {
        begun.push_back(i);
        continue;
      }
      const std::uint32_t rank = rank_of(trace, i);
      if (of_rank[rank].empty()) busy.push_back(rank);
      of_rank[rank].emplace(trace.ops[op_of(i)].step, kNone - after[i], i);
    }
    for (const std::uint32_t rank : busy) {
      begun.push_back(std::get<2>(of_rank[rank].top()));
      of_rank[rank].pop();
    }
    std::erase_if(busy, [&](std::uint32_t rank) { return of_rank[rank].empty(); });
    now.clear();
    for (const std::uint32_t i : begun) {
      breathe();
      d.depth[i] = level;
      --total;
      for (const std::uint32_t s : successors.of(i)) {
        if (--waiting[s] == 0) now.push_back(s);
      }
    }
  }
}

// Positions of nodes when sorted by step, then by depth, then by reverse depth from high to low, then by number. At one
// depth, messages come before operations, which would hold them up.
std::vector<std::uint32_t> priorities(const Trace& trace, const InstructionDag& dag) {
  Depths d = depths(dag);
  if (!trace.applied.empty()) {
    delay_operations(trace, dag, d);
    for (std::uint32_t i = 0; i < dag.nodes.size(); ++i) {
      if (computes(trace, i)) d.reverse[i] = 0;
    }
  }
  const auto n = static_cast<std::uint32_t>(dag.nodes.size());
  std::vector<std::uint32_t> sorted(n);
  std::vector<std::uint32_t> scratch(n);
  for (std::uint32_t i = 0; i < n; ++i) scratch[i] = i;
  // Stable sorts, the less significant key first.
  const auto counting_sort = [n](const std::vector<std::uint32_t>& in, std::vector<std::uint32_t>& out, auto key) {
    std::vector<std::uint32_t> count(n + 1, 0);
    for (const std::uint32_t i : in) ++count[key(i) + 1];
    for (std::uint32_t k = 0; k < n; ++k) count[k + 1] += count[k];
    for (const std::uint32_t i : in) out[count[key(i)]++] = i;
  };
  std::uint32_t longest = 0;
  for (const std::uint32_t r : d.reverse) longest = std::max(longest, r);
  counting_sort(scratch, sorted, [&](std::uint32_t i) { return longest - d.reverse[i]; });
  counting_sort(sorted, scratch, [&](std::uint32_t i) { return d.depth[i]; });
  std::ranges::stable_sort(scratch, {}, [&](std::uint32_t i) { return trace.ops[op_of(i)].step; });
  std::vector<std::uint32_t>& position = sorted;
  for (std::uint32_t k = 0; k < n; ++k) position[scratch[k]] = k;
  return position;
}

// Gives local instructions to the block of their rank whose latest instruction is earliest in the order. An exception:
// an instruction that continues the work of another local instruction on the same chunks stays in its block. A sum of
// many terms then waits only for its terms, and not for each of its own steps in another block. Compute operations of a
// rank share its block without connections, if it has one: they hold up no message.
class BlockChooser {
 public:
  BlockChooser(const Trace& trace, const InstructionDag& dag, const Threadblocks& threadblocks)
      : trace_(trace),
        dag_(dag),
        threadblocks_(threadblocks),
        latest_(threadblocks.blocks.size(), 0),
        block_of_(threadblocks.block_of) {}

  void place(std::uint32_t node) {
    std::uint32_t& block = block_of_[node];
    if (block == kNone && computes(trace_, node)) block = block_of_operations(rank_of(trace_, node));
    if (block == kNone) block = block_of_continued(node);
    if (block == kNone) {
      const std::uint32_t rank = rank_of(trace_, node);
      const std::uint32_t end = threadblocks_.first_of_rank[rank + 1];
      const bool shared =
          threadblocks_.count(rank) > 1 && block_of_operations(rank) != kNone;  // a wait would hold them
      const auto first = latest_.begin() + threadblocks_.first_of_rank[rank];
      const auto last = latest_.begin() + (shared ? end - 1 : end);
      block = static_cast<std::uint32_t>(std::min_element(first, last) - latest_.begin());
    }
    latest_[block] = ++placed_;
  }
  std::vector<std::uint32_t> take() { return std::move(block_of_); }

 private:
  std::uint32_t block_of_operations(std::uint32_t rank) const {
    const std::uint32_t last = threadblocks_.first_of_rank[rank + 1] - 1;
    const Block& block = threadblocks_.blocks[last];
    return block.send_connection == kNone && block.recv_connection == kNone ? last : kNone;
  }

  std::uint32_t block_of_continued(std::uint32_t node) const {
    const ChunkOp& op = trace_.ops[op_of(node)];
    for (const std::uint32_t p : dag_.preds_of(node)) {
      const ChunkOp& before = trace_.ops[op_of(p)];
      if (!before.remote() && before.dst == op.dst && before.count == op.count) return block_of_[p];
    }
    return kNone;
  }

  const Trace& trace_;
  const InstructionDag& dag_;
  const Threadblocks& threadblocks_;
  std::vector<std::uint32_t> latest_;  // per block: 1 + position of its latest instruction
  std::vector<std::uint32_t> block_of_;
  std::uint32_t placed_ = 0;
};

class Scheduler {
 public:
  Scheduler(const Trace& trace, const InstructionDag& dag, const Channels& channels, const Threadblocks& threadblocks,
            std::uint32_t slots)
      : dag_(dag),
        channels_(channels),
        slots_(slots),
        chooser_(trace, dag, threadblocks),
        priority_(priorities(trace, dag)),
        node_at_(dag.nodes.size()),
        successors_(dag),
        waiting_(successors_.waits()),
        fifo_next_(trace.ops.size(), kNone),
        at_front_(trace.ops.size(), false),
        fifos_(channels.connections.size()) {
    for (std::uint32_t i = 0; i < priority_.size(); ++i) node_at_[priority_[i]] = i;
  }

  Order run() {
    std::uint32_t total = 0;
    Breath breathe;
    for (std::uint32_t n = 0; n < dag_.nodes.size(); ++n) {
      breathe();
      if (!dag_.exists(n)) continue;
      ++total;
      if (waiting_[n] == 0) ready_.push(priority_[n]);
    }
    out_.nodes.reserve(total);
    while (!ready_.empty()) {
      breathe();
      const std::uint32_t n = node_at_[ready_.top()];
      ready_.pop();
      if (may_run(n)) execute(n);
    }
    out_.complete = out_.nodes.size() == total;
    if (!out_.complete) find_stuck();
    out_.block_of = chooser_.take();
    return std::move(out_);
  }

 private:
  struct Fifo {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    std::uint32_t under_way = 0;
    std::vector<std::uint32_t> parked;  // priorities of nodes that wait for a free slot, as a heap
  };

  // Whether a node whose predecessors have run may run now. If not, it is added to the queue that will wake it.
  bool may_run(std::uint32_t n) {
    if (dag_.receives(n)) {
      const std::uint32_t op = op_of(n);
      if (fifos_[channels_.connection_of[op]].head != op) {
        at_front_[op] = true;  // woken when its message reaches the front
        return false;
      }
    }
    if (dag_.sends(n)) {
      Fifo& fifo = fifos_[channels_.connection_of[dag_.nodes[n].sends]];
      if (fifo.under_way == slots_) {
        fifo.parked.push_back(priority_[n]);
        std::push_heap(fifo.parked.begin(), fifo.parked.end(), std::greater<>());
        return false;
      }
    }
    return true;
  }

  void execute(std::uint32_t n) {
    out_.nodes.push_back(n);
    chooser_.place(n);
    if (dag_.receives(n)) pop(fifos_[channels_.connection_of[op_of(n)]]);
    if (dag_.sends(n)) {
      const std::uint32_t op = dag_.nodes[n].sends;
      push(fifos_[channels_.connection_of[op]], op);
    }
    for (const std::uint32_t s : successors_.of(n)) done(s);
  }

  void done(std::uint32_t successor) {
    if (--waiting_[successor] == 0) ready_.push(priority_[successor]);
  }

  static void link(Fifo& fifo, std::uint32_t op, std::vector<std::uint32_t>& next) {
    if (fifo.head == kNone) {
      fifo.head = op;
    } else {
      next[fifo.tail] = op;
    }
    fifo.tail = op;
  }

  void push(Fifo& fifo, std::uint32_t op) {
    link(fifo, op, fifo_next_);
    ++fifo.under_way;
  }

  void pop(Fifo& fifo) {
    fifo.head = fifo_next_[fifo.head];
    --fifo.under_way;
    if (!fifo.parked.empty()) {
      std::pop_heap(fifo.parked.begin(), fifo.parked.end(), std::greater<>());
      ready_.push(fifo.parked.back());
      fifo.parked.pop_back();
    }
    if (fifo.head != kNone && at_front_[fifo.head]) {
      at_front_[fifo.head] = false;
      ready_.push(priority_[recv_node(fifo.head)]);
    }
  }

  // Fused instructions that wait for a free slot occupy the slot of their receive; unfusing them frees it.
  void find_stuck() {
    for (const Fifo& fifo : fifos_) {
      for (const std::uint32_t p : fifo.parked) {
        if (dag_.receives(node_at_[p])) out_.stuck.push_back(op_of(node_at_[p]));
      }
    }
    std::sort(out_.stuck.begin(), out_.stuck.end());
  }

  const InstructionDag& dag_;
  const Channels& channels_;
  std::uint32_t slots_;
  BlockChooser chooser_;
  std::vector<std::uint32_t> priority_;
  std::vector<std::uint32_t> node_at_;  // the inverse of priority_
  Successors successors_;
  std::vector<std::uint32_t> waiting_;    // per node: predecessors that have not run
  std::vector<std::uint32_t> fifo_next_;  // per operation: the one sent after it on its connection
  std::vector<bool> at_front_;            // per operation: nodes to wake when its message reaches the front
  std::vector<Fifo> fifos_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready_;
  Order out_;
};

}  // namespace

Order order_instructions(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                         const Threadblocks& threadblocks, std::uint32_t slots) {
  return Scheduler(trace, dag, channels, threadblocks, slots).run();
}

Order trace_order(const Trace& trace, const InstructionDag& dag, const Threadblocks& threadblocks) {
  Order out;
  BlockChooser chooser(trace, dag, threadblocks);
  for (std::uint32_t n = 0; n < dag.nodes.size(); ++n) {
    if (!dag.exists(n)) continue;
    out.nodes.push_back(n);
    chooser.place(n);
  }
  out.block_of = chooser.take();
  out.complete = true;
  return out;
}

std::string to_text(const Trace& trace, const InstructionDag& dag, const Channels& channels,
                    const Threadblocks& threadblocks, const Order& order) {
  std::string out = "schedule of " + trace.name + ", in global order\n";
  for (std::size_t k = 0; k < order.nodes.size(); ++k) {
    const std::uint32_t n = order.nodes[k];
    const std::uint32_t rank = rank_of(trace, n);
    const std::uint32_t block = order.block_of[n];
    out += std::to_string(k) + ": rank " + std::to_string(rank) + " tb " +
           std::to_string(block - threadblocks.first_of_rank[rank]) + " " +
           std::string(ir::info(dag.nodes[n].opcode).name) + " node " + std::to_string(n);
    if (dag.receives(n)) {
      const Connection& c = channels.connections[channels.connection_of[op_of(n)]];
      out += " from " + std::to_string(c.sender) + " ch " + std::to_string(c.channel);
    }
    if (dag.sends(n)) {
      const Connection& c = channels.connections[channels.connection_of[dag.nodes[n].sends]];
      out += " to " + std::to_string(c.receiver) + " ch " + std::to_string(c.channel);
    }
    out += "\n";
  }
  return out;
}

}  // namespace gc3::compiler
