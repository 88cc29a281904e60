#include "gc3/compiler/chunk_dag.h"

#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

class Builder {
 public:
  explicit Builder(const Trace& trace)
      : trace_(trace),
        slots_(trace.extents),
        writer_(slots_.size(), kNone),
        last_reader_(slots_.size(), kNone),
        seen_(trace.ops.size() * 2, kNone) {}

  ChunkDag run() {
    const std::size_t n = trace_.ops.size();
    dag_.edge_begin.reserve(n + 1);
    dag_.edges.reserve(n * 2);
    dag_.readers.assign(n, 0);
    dag_.live_chunks.assign(n, 0);
    Breath breathe;
    for (std::uint32_t i = 0; i < n; ++i) {
      breathe();
      dag_.edge_begin.push_back(static_cast<std::uint32_t>(dag_.edges.size()));
      add(i, trace_.ops[i]);
    }
    dag_.edge_begin.push_back(static_cast<std::uint32_t>(dag_.edges.size()));
    count_live();
    return std::move(dag_);
  }

 private:
  struct Reader {
    std::uint32_t op;
    std::uint32_t next;  // the reader before it, or kNone
    End end;
  };

  void add(std::uint32_t id, const ChunkOp& op) {
    if (op.kind == OpKind::apply) {
      const Applied& applied = trace_.applied[op.applied];
      for (const Range& range : applied.reads) read(id, End::source, slots_.slot(range));
      for (const Range& range : applied.writes) write(id, slots_.slot(range), false);
      return;
    }
    const std::uint64_t src = slots_.slot(op.src);
    const std::uint64_t dst = slots_.slot(op.dst);
    for (std::uint32_t i = 0; i < op.count; ++i) read(id, End::source, src + i);
    const bool in_dst = op.kind == OpKind::reduce && op.local == op.dst;
    if (op.kind == OpKind::reduce && !in_dst) {
      const std::uint64_t local = slots_.slot(op.local);
      for (std::uint32_t i = 0; i < op.count; ++i) read(id, End::destination, local + i);
    }
    for (std::uint32_t i = 0; i < op.count; ++i) write(id, dst + i, in_dst);
  }

  void read(std::uint32_t id, End end, std::uint64_t slot) {
    if (const std::uint32_t w = writer_[slot]; w != kNone) edge(id, end, w, End::destination, true);
    readers_.push_back({id, last_reader_[slot], end});
    last_reader_[slot] = static_cast<std::uint32_t>(readers_.size() - 1);
  }

  // `adds`: to what is there.
  void write(std::uint32_t id, std::uint64_t slot, bool adds) {
    const std::uint32_t w = writer_[slot];
    if (w != kNone && adds) edge(id, End::destination, w, End::destination, true);
    std::uint32_t reader = last_reader_[slot];
    if (reader == kNone && w != kNone) edge(id, End::destination, w, End::destination, false);
    for (; reader != kNone; reader = readers_[reader].next) {
      if (readers_[reader].op == id) continue;
      edge(id, End::destination, readers_[reader].op, readers_[reader].end, false);
    }
    last_reader_[slot] = kNone;
    writer_[slot] = id;
  }

  // The edges of one end of one operation are added consecutively, so one stamp per predecessor end detects
  // repetitions.
  void edge(std::uint32_t id, End end, std::uint32_t pred, End pred_end, bool carries_data) {
    std::uint32_t& stamp = seen_[pred * 2 + static_cast<std::uint32_t>(pred_end)];
    const std::uint32_t mine = id * 2 + static_cast<std::uint32_t>(end);
    if (stamp == mine) return;
    stamp = mine;
    dag_.edges.push_back({pred, pred_end, end, carries_data});
    if (carries_data) dag_.readers[pred] += 1;
  }

  void count_live() {
    const model::Collective& collective = trace_.collective;
    for (std::uint32_t r = 0; r < trace_.ranks(); ++r) {
      for (std::uint32_t i = 0; i < collective.output_chunks(r); ++i) {
        const model::Place p = collective.canonical(r, {model::Buffer::output, i});
        const std::uint32_t w = writer_[slots_.slot({r, p.index, static_cast<BufferIndex>(p.buffer)})];
        if (w != kNone) dag_.live_chunks[w] += 1;
      }
    }
  }

  const Trace& trace_;
  SlotMap slots_;
  std::vector<std::uint32_t> writer_;       // per slot: the operation that wrote it last
  std::vector<std::uint32_t> last_reader_;  // per slot: head of the list of operations that read it since
  std::vector<std::uint32_t> seen_;         // per operation end: the operation end that last depended on it
  std::vector<Reader> readers_;
  ChunkDag dag_;
};

}  // namespace

ChunkDag build_chunk_dag(const Trace& trace) { return Builder(trace).run(); }

std::string to_text(const Trace& trace, const ChunkDag& dag) {
  std::string out = "chunk DAG of " + trace.name + "\n";
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const ChunkOp& op = trace.ops[i];
    out += std::to_string(i) + ": " + describe(trace, op);
    if (op.factor != 1) out += " lane=" + std::to_string(op.lane) + "/" + std::to_string(op.factor);
    const char* separator = "  after ";
    for (const ChunkEdge& e : dag.edges_of(i)) {
      out += separator + std::to_string(e.pred) + (e.carries_data ? "" : " (reuse)");
      separator = ", ";
    }
    out += "\n";
  }
  return out;
}

}  // namespace gc3::compiler
