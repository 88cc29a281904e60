#include "gc3/runtime/interp/fifo_geometry.h"

#include <algorithm>
#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/interp/checked_bytes.h"
#include "gc3/runtime/interp/ll.h"
#include "gc3/runtime/interp/ll128.h"
#include "gc3/runtime/interp/simple.h"

namespace gc3::interp {
namespace {

constexpr std::uint32_t kDefaultSlots = 8;
constexpr std::uint64_t kLeastSlot = 4096;                            // bytes, unless a smaller size is requested
constexpr std::uint64_t kMostBetweenHosts = std::uint64_t{1} << 30U;  // bytes of a slot of a connection between hosts

struct LineFormat {
  std::uint64_t bytes;         // of a line
  std::uint64_t data;          // of them data
  std::uint64_t default_slot;  // bytes
};

LineFormat lines_of(model::Protocol protocol) {
  switch (protocol) {
    case model::Protocol::Simple:
    case model::Protocol::Pull:
    case model::Protocol::Copy:
      return {Simple::kLineBytes, Simple::kLineData, 128 * 1024};
    case model::Protocol::LL:
      return {LL::kLineBytes, LL::kLineData, 64 * 1024};
    case model::Protocol::LL128:
      return {LL128::kLineBytes, LL128::kLineData, 128 * 1024};
  }
  return {};
}

}  // namespace

Result<FifoGeometry> FifoGeometry::choose(const Plan& plan, std::uint32_t slots, std::uint64_t slot_bytes,
                                          std::uint64_t budget_bytes) {
  FifoGeometry geometry;
  geometry.protocol = plan.protocol;
  geometry.slots = slots != 0 ? slots : std::max(plan.slots, kDefaultSlots);
  if (geometry.slots < plan.slots) {
    return Diagnostic(ErrorCode::BadOption, "the program needs " + std::to_string(plan.slots) +
                                                " slots per connection and would deadlock with " +
                                                std::to_string(geometry.slots));
  }
  if (geometry.slots > kMaxSlots) {
    return Diagnostic(ErrorCode::BadOption, std::to_string(geometry.slots) + " slots per connection; at most " +
                                                std::to_string(kMaxSlots) + " are possible");
  }
  const LineFormat format = lines_of(plan.protocol);
  geometry.slot_bytes = slot_bytes;
  if (slot_bytes == 0) {
    // One element of the widest type per chunk must fit; apart from that, many connections share a bounded total.
    const std::uint64_t least_data = std::uint64_t{plan.max_count} * model::kMostElemBytes;
    const std::uint64_t least = (least_data + format.data - 1) / format.data * format.bytes;
    const std::uint64_t all_slots = std::max<std::uint64_t>(plan.connections.size(), 1) * geometry.slots;
    geometry.slot_bytes = std::max({least, std::min(format.default_slot, budget_bytes / all_slots), kLeastSlot});
    geometry.slot_bytes = round_up(geometry.slot_bytes, kCacheLine);
  }
  geometry.slot_bytes -= geometry.slot_bytes % format.bytes;
  if (geometry.slot_bytes == 0) {
    return Diagnostic(ErrorCode::BadOption, "a slot of " + std::to_string(slot_bytes) + " bytes holds no " +
                                                std::string(model::name_of(plan.protocol)) + " line of " +
                                                std::to_string(format.bytes));
  }
  geometry.slot_data = geometry.slot_bytes / format.bytes * format.data;
  GC3_CHECK(checked_bytes(geometry.slot_bytes, geometry.slots, "the slots of a connection"));
  return geometry;
}

Status FifoGeometry::check_between_hosts() const {
  if (protocol != model::Protocol::Simple) {
    return Diagnostic(ErrorCode::BetweenHosts, "a program with connections between hosts and the protocol " +
                                                   std::string(model::name_of(protocol)) +
                                                   "; between hosts messages have the protocol Simple");
  }
  if (slot_bytes > kMostBetweenHosts) {
    return Diagnostic(ErrorCode::BetweenHosts, "slots of " + std::to_string(slot_bytes) + " bytes; at most " +
                                                   std::to_string(kMostBetweenHosts));
  }
  return {};
}

Result<Tiling> FifoGeometry::tiling(const Plan& plan, std::uint64_t count, std::size_t elem_bytes) const {
  const Tiling tiling = plan.tiling(count, elem_bytes, slot_data);
  if (tiling.chunk_elems != 0 && tiling.tiles == 0) {
    return Diagnostic(ErrorCode::BadOption, "a slot of " + std::to_string(slot_bytes) +
                                                " bytes cannot hold an element of each of " +
                                                std::to_string(plan.max_count) + " chunks");
  }
  return tiling;
}

Result<Run> make_run(const Plan& plan, const FifoGeometry& geometry, std::uint64_t count, std::size_t elem_bytes) {
  GC3_ASSIGN(const Tiling tiling, geometry.tiling(plan, count, elem_bytes));
  Run run;
  run.chunk_elems = tiling.chunk_elems;
  run.tile_elems = tiling.tile_elems;
  run.tiles = tiling.tiles;
  run.slot_stride = geometry.slot_stride();
  run.slot_bytes = geometry.slot_bytes;
  run.slots = geometry.slots;
  run.elem_bytes = static_cast<std::uint32_t>(elem_bytes);
  run.regular = plan.regular(count) ? 1 : 0;
  return run;
}

}  // namespace gc3::interp
