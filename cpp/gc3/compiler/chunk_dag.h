// The chunk DAG: which chunk operation must wait for which, and why (002 section 4.1).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gc3/compiler/trace.h"

namespace gc3::compiler {

// The end of an operation that touches memory: where it reads its source, or where it writes its destination.
enum class End : std::uint8_t { source, destination };

// "`end` of this operation runs after `pred_end` of operation `pred`."
struct ChunkEdge {
  std::uint32_t pred;
  End pred_end;
  End end;
  bool carries_data;  // a true dependency; else a reuse of a location (false dependency)
};

struct ChunkDag {
  std::vector<std::uint32_t> edge_begin;  // edges[edge_begin[i] .. edge_begin[i + 1]) are those of operation i
  std::vector<ChunkEdge> edges;
  std::vector<std::uint32_t> readers;      // per operation: how many operations read its result
  std::vector<std::uint32_t> live_chunks;  // per operation: chunks it wrote that are part of the collective's result

  std::span<const ChunkEdge> edges_of(std::size_t op) const {
    return std::span(edges).subspan(edge_begin[op], edge_begin[op + 1] - edge_begin[op]);
  }
};

// The operations of a trace stand in an order that respects every edge. Linear in the chunks that they cover.
ChunkDag build_chunk_dag(const Trace& trace);

std::string to_text(const Trace& trace, const ChunkDag& dag);

}  // namespace gc3::compiler
