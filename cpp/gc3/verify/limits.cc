#include "gc3/verify/limits.h"

#include <cstdint>
#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/ir/index.h"

namespace gc3::verify {
namespace {

// Bounds on the memory and work of the checks, far above any real program, so that a small file cannot ask for much.
constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 27U;
constexpr std::uint64_t kMaxChunkAccesses = std::uint64_t{1} << 30U;
// Each dependency may merge clocks of all threadblocks of its rank; clocks.h bounds those that are alive at a time.
constexpr std::uint64_t kMaxClocks = std::uint64_t{1} << 33U;

using ir::plural;

Diagnostic too_large(std::string message) { return {ErrorCode::ProgramTooLarge, std::move(message)}; }

// Checks the threadblocks and channels of each rank against the caller's limits.
void check_counts(const ir::Program& program, const Options& options, Findings& findings) {
  for (std::uint32_t r = 0; r < program.ranks.size() && !findings.full(); ++r) {
    const std::string name = "rank " + std::to_string(r);
    const auto tbs = program.tbs(r);
    if (options.max_threadblocks != 0 && tbs.size() > options.max_threadblocks) {
      findings.add({ErrorCode::LimitExceeded, name + " has " + plural(tbs.size(), "threadblock") + "; the limit is " +
                                                  std::to_string(options.max_threadblocks)});
    }
    for (std::size_t t = 0; t < tbs.size() && options.max_channels != 0; ++t) {
      const bool connected = tbs[t].send_peer != ir::kNoRank || tbs[t].recv_peer != ir::kNoRank;
      if (!connected || tbs[t].channel < options.max_channels) continue;
      findings.add({ErrorCode::LimitExceeded, name + " threadblock " + std::to_string(t) + " uses channel " +
                                                  std::to_string(tbs[t].channel) + "; the limit is " +
                                                  plural(options.max_channels, "channel") + ", counted from 0"});
    }
  }
}

bool check_clocks(const ir::Program& program, Findings& findings) {
  std::uint64_t clocks = 0;
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    std::uint64_t waits = 0;
    for (const ir::Threadblock& tb : program.tbs(r)) {
      for (const ir::Instruction& i : program.steps(tb)) waits += i.dep_count;
    }
    const std::uint64_t tbs = program.ranks[r].tb_count;
    clocks += waits * tbs;
    if (waits * tbs <= kMaxClocks && clocks <= kMaxClocks) continue;
    findings.add(too_large("rank " + std::to_string(r) + " has " + plural(tbs, "threadblock") + " and " +
                           std::to_string(waits) + " dependencies; what can be verified is a product of at most " +
                           std::to_string(kMaxClocks) + " over all ranks"));
    return false;
  }
  return true;
}

}  // namespace

bool check_limits(const ir::Program& program, const Options& options, Findings& findings) {
  check_counts(program, options, findings);
  std::uint64_t slots = 0;
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    for (const std::uint64_t size : ir::buffer_sizes(program, r)) slots += size;
  }
  std::uint64_t accesses = 0;
  for (const ir::Instruction& i : program.instructions) accesses += i.count;
  if (slots <= kMaxSlots && accesses <= kMaxChunkAccesses) return check_clocks(program, findings);
  findings.add(too_large(plural(slots, "chunk") + " in all buffers, " + plural(accesses, "chunk") + " moved; at most " +
                         std::to_string(kMaxSlots) + " and " + std::to_string(kMaxChunkAccesses) + " can be verified"));
  return false;
}

}  // namespace gc3::verify
