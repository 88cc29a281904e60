#include "gc3/verify/direct/verify.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/ir/index.h"
#include "gc3/verify/direct/run.h"

namespace gc3::verify::direct {
namespace {

using ir::direct::Op;
using ir::direct::Operand;
using ir::direct::Program;
using ir::direct::Step;
using model::Buffer;

// Calls visit(rank, operand) for each rank whose buffer an operand of the step is.
template <class Visit>
void each_operand(const Program& p, const Step& s, Visit visit) {
  for (std::uint32_t k = 0; k < s.sources + s.targets; ++k) {
    const Operand& o = p.operands[s.first + k];
    if (!is_multicast(o.access)) {
      visit(o.owner, o, k >= s.sources);
      continue;
    }
    for (const std::uint32_t member : p.groups[o.owner].ranks) visit(member, o, k >= s.sources);
  }
}

void check_writes(const Program& p, Findings& findings) {
  p.each_step([&](std::uint32_t r, std::uint32_t t, std::uint32_t number, std::uint32_t at) {
    const Step& s = p.steps[at];
    if (s.op != Op::move) return;
    each_operand(p, s, [&](std::uint32_t rank, const Operand& o, bool writes) {
      if (!writes || o.buffer == Buffer::scratch) return;
      for (std::uint32_t k = 0; k < s.count; ++k) {
        const model::Place place = p.collective.canonical(rank, {o.buffer, o.chunk + k});
        if (p.collective.writable(rank, place)) continue;
        findings.add({ErrorCode::InputOverwritten, ir::step_name(r, t, number) + " writes " + ir::place_name(place) +
                                                       " of rank " + std::to_string(rank)});
        return;
      }
    });
  });
}

// A packet's flag is in the middle of its data, so what is stored plainly there, by this program or another that uses
// the scratch, may be taken for a flag.
void check_packets_apart(const Program& p, Findings& findings) {
  std::vector<std::vector<bool>> packets;
  for (const ir::direct::RankProgram& rank : p.ranks) packets.emplace_back(2 * std::size_t{rank.scratch_chunks});
  const auto visit_all = [&](bool wanted, auto&& visit) {
    p.each_step([&](std::uint32_t r, std::uint32_t t, std::uint32_t number, std::uint32_t at) {
      const Step& s = p.steps[at];
      if (s.op != Op::move) return;
      each_operand(p, s, [&](std::uint32_t rank, const Operand& o, bool /*writes*/) {
        if (o.buffer != Buffer::scratch || is_packet(o.access) != wanted) return;
        for (std::uint32_t k = 0; k < s.count; ++k) visit(rank, std::size_t{o.chunk} + k, r, t, number);
      });
    });
  };
  visit_all(true, [&](std::uint32_t, std::size_t chunk, std::uint32_t r, std::uint32_t t, std::uint32_t number) {
    if (!p.shared_scratch || !findings.empty()) return;
    findings.add({ErrorCode::DataRace, ir::step_name(r, t, number) + " uses packets in scratch[" +
                                           std::to_string(chunk) +
                                           "], which other programs use too: their data may be taken for a flag"});
  });
  visit_all(true, [&](std::uint32_t rank, std::size_t chunk, auto...) {
    packets[rank][2 * chunk] = packets[rank][2 * chunk + 1] = true;
  });
  visit_all(false, [&](std::uint32_t rank, std::size_t chunk, std::uint32_t r, std::uint32_t t, std::uint32_t number) {
    if (!packets[rank][chunk]) return;
    findings.add({ErrorCode::DataRace, ir::step_name(r, t, number) + " uses scratch[" + std::to_string(chunk) +
                                           "] of rank " + std::to_string(rank) +
                                           " without packets, where others use packets: data may be taken for a flag"});
  });
}

// The proof has an event for each chunk that a move stores, and a number for each place.
constexpr std::uint64_t kMostMoved = std::uint64_t{1} << 26U;

bool small_enough(const Program& p, Findings& findings) {
  std::uint64_t moved = 0;
  for (const Step& s : p.steps) {
    if (s.op != Op::move) continue;
    std::uint64_t places = 0;
    for (std::uint32_t k = 0; k < s.sources + s.targets; ++k) {
      const Operand& o = p.operands[s.first + k];
      places += is_multicast(o.access) ? p.groups[o.owner].ranks.size() : 1;
    }
    moved = std::min(kMostMoved + 1, moved + std::min(kMostMoved + 1, places * s.count));
  }
  if (moved <= kMostMoved) return true;
  findings.add(
      {ErrorCode::ProgramTooLarge, "a call loads and stores more than 2^26 chunks, which is too much to prove"});
  return false;
}

void check(const Program& p, const Options& options, Report& report, Findings& findings) {
  if (!ir::direct::check_structure(p, findings) || !small_enough(p, findings)) return;
  for (std::uint32_t r = 0; r < p.ranks.size() && options.max_threadblocks != 0; ++r) {
    if (p.ranks[r].tb_count <= options.max_threadblocks) continue;
    findings.add({ErrorCode::LimitExceeded, "rank " + std::to_string(r) + " has " +
                                                ir::plural(p.ranks[r].tb_count, "threadblock") + "; the target has " +
                                                std::to_string(options.max_threadblocks)});
    return;
  }
  check_writes(p, findings);
  check_packets_apart(p, findings);
  Counters counters = pair_signals(p, findings);
  if (!findings.empty()) return;
  // Each call is related to the next that uses the same scratch. Where semaphores begin above zero, the first call is
  // not like the others.
  const bool begins_apart = std::ranges::any_of(p.semaphores, [](const auto& s) { return s.initial != 0; });
  const std::uint32_t calls = p.halves + 1 + (begins_apart ? 1 : 0);
  std::vector<Weights> weights;
  for (std::uint32_t call = 0; call < calls; ++call) {
    Result<Weights> drawn = Weights::draw(p.collective);
    if (!drawn.ok()) {
      findings.add(std::move(drawn.error()));
      return;
    }
    weights.push_back(std::move(drawn).value());
  }
  Execution execution(p, calls, std::move(weights), std::move(counters));
  const bool ended = execution.run(findings);
  report.transfers = execution.transfers() / calls;
  if (!ended) return;
  execution.report_races(findings);
  if (findings.empty()) execution.report_values(findings);  // with races they depend on the run
}

}  // namespace

Report verify(const Program& program, const Options& options) {
  Report report;
  Findings findings(options.max_diagnostics);
  check(program, options, report, findings);
  report.diagnostics = findings.take();
  return report;
}

}  // namespace gc3::verify::direct
