#include "gc3/sim/simulator.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "gc3/base/errors/simulator.h"
#include "gc3/sim/fluid.h"
#include "gc3/sim/serial.h"

namespace gc3::sim {
namespace {

constexpr std::uint32_t kMostSlices = std::numeric_limits<decltype(Record::slice)>::max();

// What has happened to the first of each class happens to all of it.
void spread(const Classes& classes, Outcome& outcome) {
  std::vector<Time> ends;
  for (const std::uint32_t c : classes.of) ends.push_back(outcome.rank_end[c]);
  outcome.rank_end = std::move(ends);
  for (std::size_t r = 0; r < classes.first.size(); ++r) outcome.use[r] = outcome.use[classes.first[r]];
}

}  // namespace

Result<Simulator> Simulator::create(const ir::Program& program, const Machine& machine,
                                    const std::vector<std::uint32_t>& places) {
  Simulator simulator(program, machine);
  GC3_ASSIGN(simulator.wiring_, wire(program, machine, places));
  return simulator;
}

Result<Simulator> Simulator::create(const ir::ClassProgram& program, const Machine& machine,
                                    const std::vector<std::uint32_t>& places, bool apart) {
  GC3_ASSIGN(Classes found, find_classes(program, machine, places, apart));
  const auto classes = std::make_shared<const Classes>(std::move(found));
  Simulator simulator(classes->program, machine);
  simulator.classes_ = classes;
  return simulator;
}

Result<Outcome> Simulator::run(const Call& call, const Options& options) const {
  GC3_CHECK(check(options, call, static_cast<std::uint32_t>(program_->ranks.size())));
  if (program_->has_tensors() != call.whole) return bad_simulation("chunks of named tensors have lengths of their own");
  GC3_CHECK(check_work(call, options.protocol));
  if (options.sharing != Sharing::serial && !wiring().pushed) {
    return Diagnostic(ErrorCode::BadSimulation,
                      "messages of protocol Pull and Copy share links one after the other: choose --sharing serial");
  }
  Result<Outcome> outcome =
      options.sharing == Sharing::serial ? run_serial(*this, call, options) : run_fluid(*this, call, options);
  if (classes_ && outcome.ok()) spread(*classes_, outcome.value());
  return outcome;
}

Status Simulator::check_work(const Call& call, const ProtocolTiming& protocol) const {
  if (work(call, protocol) > std::numeric_limits<std::uint32_t>::max()) {
    return Diagnostic(ErrorCode::BadSimulation, "more than 2^32 operations: use larger slots or a smaller size");
  }
  const Tiles tiles = cut(call, protocol, wiring().max_count);
  if (tiles.count == 0 || tiles.message(0, wiring().max_count).slices <= kMostSlices) return {};
  return Diagnostic(ErrorCode::BadSimulation, "an instruction of " + std::to_string(wiring().max_count) +
                                                  " chunks is sent in more than " + std::to_string(kMostSlices) +
                                                  " slices: use larger slots or a smaller size");
}

std::uint64_t Simulator::work(const Call& call, const ProtocolTiming& protocol) const {
  const Tiles tiles = cut(call, protocol, wiring().max_count);
  return tiles.count * wiring().instructions * (tiles.count == 0 ? 0 : tiles.message(0, wiring().max_count).slices);
}

std::uint64_t Simulator::slot_bytes(const Call& call, const ProtocolTiming& protocol) const {
  const Tiles tiles = cut(call, protocol, wiring().max_count);
  if (tiles.count == 0) return 0;
  std::uint64_t bytes = 0;
  for (const Wire& wire : wiring().wires) {
    const std::uint64_t chunks =
        (protocol.lends(tiles.bytes, false) ? 0 : wire.moved) + (protocol.lends(tiles.bytes, true) ? 0 : wire.combined);
    bytes += std::min(protocol.slots * protocol.slot_bytes, chunks * call.chunk_bytes);
  }
  return bytes;
}

}  // namespace gc3::sim
