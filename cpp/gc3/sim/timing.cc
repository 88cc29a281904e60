#include "gc3/sim/timing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "gc3/base/errors/simulator.h"
#include "gc3/ir/blocks.h"

namespace gc3::sim {
namespace {

constexpr std::uint64_t kLine = 64;     // tiles consist of whole cache lines, as the runtime's do
constexpr std::uint64_t kGranule = 16;  // and slices of whole 16-byte words
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 44U;
constexpr std::uint64_t kMostMessage = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMostSlotBytes = std::uint64_t{1} << 30U;
constexpr double kMostTraffic = 1000;
constexpr std::uint32_t kMostUnits = 1U << 12U;  // slots times slices of a connection

constexpr std::uint64_t up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

const std::string kTimes = " a number of seconds, from 0 to 1000000";

// An instruction of `chunks` chunks, sent as messages of at most `most` of them.
MessageCut cut_instruction(std::uint64_t chunks, std::uint64_t most, std::uint64_t chunk_bytes,
                           const ProtocolTiming& protocol) {
  if (chunks <= most) return cut_message(chunks * chunk_bytes, protocol);
  const std::uint64_t messages = (chunks + most - 1) / most;
  const MessageCut each = cut_message(most * chunk_bytes, protocol);
  MessageCut cut = cut_message((chunks - (messages - 1) * most) * chunk_bytes, protocol);
  cut.per_message = each.slices;
  cut.slice_bytes = each.last_slice_bytes;
  cut.end_bytes = each.last_bytes;
  cut.slices += static_cast<std::uint32_t>((messages - 1) * each.slices);
  return cut;
}

}  // namespace

MessageCut cut_message(std::uint64_t bytes, const ProtocolTiming& protocol) {
  if (bytes == 0) return {};
  const std::uint64_t even = up((bytes + protocol.slices - 1) / protocol.slices, kGranule);
  const std::uint64_t slice = std::min(std::max(even, protocol.min_slice_bytes), bytes);
  const std::uint64_t slices = (bytes + slice - 1) / slice;
  MessageCut cut;
  cut.slices = static_cast<std::uint32_t>(slices);
  cut.last_slice_bytes = static_cast<std::uint32_t>(slice);
  cut.last_bytes = static_cast<std::uint32_t>(bytes - (slices - 1) * slice);
  return cut;
}

Tiles cut(const Call& call, const ProtocolTiming& protocol, std::uint32_t max_count) {
  Tiles tiles;
  if (call.chunk_bytes == 0) return tiles;
  // Only GC3's runtime has calls of blocks that differ in length.
  const bool split = protocol.split && call.lengths.empty();
  const std::uint64_t room = protocol.slot_bytes / (split ? 1 : max_count);
  // At least one element: a slot that is too small for one would never move any data.
  std::uint64_t tile =
      call.whole ? call.chunk_bytes : std::max(room / call.elem_bytes, std::uint64_t{1}) * call.elem_bytes;
  tile = std::min(tile, call.chunk_bytes);
  if (tile < call.chunk_bytes && tile > kLine) tile -= tile % kLine;
  tiles.count = (call.chunk_bytes + tile - 1) / tile;
  tiles.bytes = tile;
  tiles.rest = call.chunk_bytes - (tiles.count - 1) * tile;
  const std::uint64_t most = split ? std::max(protocol.slot_bytes / tile, std::uint64_t{1}) : max_count;
  tiles.full.reserve(max_count + std::size_t{1});
  tiles.last.reserve(max_count + std::size_t{1});
  for (std::uint64_t chunks = 0; chunks <= max_count; ++chunks) {
    tiles.full.push_back(cut_instruction(chunks, most, tiles.bytes, protocol));
    tiles.last.push_back(cut_instruction(chunks, most, tiles.rest, protocol));
  }
  return tiles;
}

Result<Call> v_call(const ir::Program& program, const std::vector<std::uint64_t>& counts, std::uint64_t elem_bytes) {
  GC3_ASSIGN(ir::Blocks blocks, ir::trace_v_form(program));
  const model::Collective& collective = program.collective;
  if (counts.size() != collective.v_counts()) {
    return bad_simulation(std::to_string(counts.size()) + " counts; " + std::string(collective.name()) + " of " +
                          std::to_string(collective.ranks()) + " ranks has " + std::to_string(collective.v_counts()));
  }
  const std::uint64_t most = std::ranges::max(counts);
  if (most > kMostElements) return bad_simulation("a block of " + std::to_string(most) + " elements");
  const std::uint64_t chunks = collective.chunks();
  const auto unit = [&](std::uint64_t count) { return count / chunks + (count % chunks != 0 ? 1 : 0); };
  Call call;
  call.elem_bytes = elem_bytes;
  call.chunk_bytes = unit(most) * elem_bytes;
  call.first = std::move(blocks.first);
  for (const std::uint32_t piece : blocks.pieces) {
    const std::uint64_t count = counts[piece / chunks];
    const std::uint64_t first = std::min(count, piece % chunks * unit(count));
    call.lengths.push_back(std::min(unit(count), count - first) * elem_bytes);
  }
  return call;
}

Result<Call> tensor_call(const ir::Program& program, const std::vector<std::uint64_t>& counts, std::uint64_t elem_bytes,
                         const std::vector<double>& applied_s) {
  GC3_ASSIGN(ir::Blocks blocks, ir::trace_blocks(program));
  const std::size_t lengths = program.compute.lengths.size();
  const std::size_t applications = program.compute.applications.size();
  if (counts.size() != lengths || applied_s.size() != applications) {
    return bad_simulation(std::to_string(counts.size()) + " lengths and " + std::to_string(applied_s.size()) +
                          " times of operations; " + program.name + " has " + std::to_string(lengths) + " and " +
                          std::to_string(applications));
  }
  if (!std::ranges::all_of(applied_s, is_time)) return bad_simulation("the time of an operation is" + kTimes);
  std::uint32_t most = 1;
  for (const ir::Instruction& i : program.instructions)
    most = std::max(most, i.opcode == ir::Opcode::apply ? 1 : i.count);
  const std::uint64_t longest = std::ranges::max(counts);
  if (longest > kMostMessage / elem_bytes / most) {
    return bad_simulation("chunks of " + std::to_string(longest) + " elements, of which a message has " +
                          std::to_string(most) + ": it has less than 4 GiB");
  }
  Call call;
  call.elem_bytes = elem_bytes;
  call.chunk_bytes = longest * elem_bytes;
  call.first = std::move(blocks.first);
  for (const std::uint32_t piece : blocks.pieces) call.lengths.push_back(counts[piece] * elem_bytes);
  call.whole = true;
  for (const double s : applied_s) call.applied.push_back(picoseconds(s));
  return call;
}

Status check(const ProtocolTiming& p) {
  if (p.slot_bytes == 0 || p.slot_bytes > kMostSlotBytes) return bad_simulation("a slot holds from 1 byte to 1 GiB");
  if (p.slots == 0 || p.slices == 0 || std::uint64_t{p.slots} * p.slices > kMostUnits) {
    return bad_simulation("slots and slices are from 1 to " + std::to_string(kMostUnits) + " together");
  }
  if (p.min_slice_bytes == 0) return bad_simulation("a slice has at least 1 byte");
  if (!is_time(p.op_s)) return bad_simulation("the time of an operation is" + kTimes);
  for (std::size_t i = 1; i < ir::kOpcodeCount; ++i) {
    if (!std::isfinite(p.bytes_per_s[i]) || p.bytes_per_s[i] <= 0) {
      return bad_simulation("the rate of " + std::string(ir::kOpcodes[i].name) +
                            " is a number of bytes per second above 0");
    }
  }
  const auto traffic = [](double x) { return std::isfinite(x) && x >= 0 && x <= kMostTraffic; };
  if (!std::ranges::all_of(p.memory_bytes, traffic))
    return bad_simulation("the memory traffic of a byte is from 0 to 1000 bytes");
  if (p.lends_any() && (!std::isfinite(p.lend_bytes_per_s) || p.lend_bytes_per_s <= 0)) {
    return bad_simulation("the rate of reading lent data is a number of bytes per second above 0");
  }
  return {};
}

Status check(const Start& start, std::uint64_t chunk_bytes, std::uint32_t ranks) {
  if (!is_time(start.launch_s)) return bad_simulation("the time of a launch is" + kTimes);
  if (!start.delay_s.empty() && start.delay_s.size() != ranks)
    return bad_simulation("expected one delay per rank, or none");
  if (!std::ranges::all_of(start.delay_s, is_time)) return bad_simulation("a delay is" + kTimes);
  if (!start.slowdown.empty() && start.slowdown.size() != ranks)
    return bad_simulation("expected one slowdown per rank, or none");
  const auto sensible = [](double x) { return std::isfinite(x) && x > 0 && x <= kLongestSeconds; };
  if (!std::ranges::all_of(start.slowdown, sensible))
    return bad_simulation("a slowdown is a factor above 0, 1000000 at most");
  if (chunk_bytes > std::uint64_t{1} << 50U) return bad_simulation("a chunk of more than 2^50 bytes");
  return {};
}

Status check(const Options& options, const Call& call, std::uint32_t ranks) {
  GC3_CHECK(check(options.protocol));
  GC3_CHECK(check(options.start, call.chunk_bytes, ranks));
  if (call.elem_bytes == 0 || call.elem_bytes > kLine) return bad_simulation("an element has from 1 to 64 bytes");
  if (!call.copied.empty() && call.copied.size() != ranks)
    return bad_simulation("expected what each rank copies, or nothing");
  return {};
}

}  // namespace gc3::sim
