#include "gc3/verify/split.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/ir/builder.h"

namespace gc3::verify {
namespace {

using ir::Instruction;

constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 27U;

// How many steps an instruction becomes.
std::uint32_t parts(const Instruction& i) {
  const ir::OpcodeInfo& op = ir::info(i.opcode);
  return op.sends || op.receives ? i.count : 1;
}

}  // namespace

bool has_long_messages(const ir::Program& program) {
  return std::ranges::any_of(program.instructions, [](const Instruction& i) { return parts(i) > 1; });
}

Result<ir::Program> split_messages(const ir::Program& program) {
  std::uint64_t steps = 0;
  for (const Instruction& i : program.instructions) steps += parts(i);
  if (steps > kMaxSteps) {
    return Diagnostic(ErrorCode::ProgramTooLarge, std::to_string(steps) + " chunks in all messages; at most " +
                                                      std::to_string(kMaxSteps) + " can be verified one by one");
  }
  // The last step of each instruction, within its threadblock.
  std::vector<std::uint32_t> last;
  last.reserve(program.instructions.size());
  for (const ir::Threadblock& tb : program.threadblocks) {
    std::uint32_t next = 0;
    for (const Instruction& i : program.steps(tb)) last.push_back((next += parts(i)) - 1);
  }
  ir::Builder builder;
  std::vector<ir::Dependency> deps;
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    builder.rank(program.ranks[r].scratch_chunks);
    const auto tbs = program.tbs(r);
    for (const ir::Threadblock& tb : tbs) {
      builder.threadblock(tb.send_peer, tb.recv_peer, tb.channel);
      for (const Instruction& i : program.steps(tb)) {
        deps.clear();
        for (const ir::Dependency& d : program.deps(i)) {
          deps.push_back({d.tb, last[tbs[d.tb].first_instruction + d.step]});
        }
        Instruction part = i;
        const std::uint32_t count = parts(i);
        if (count > 1) part.count = 1;
        for (std::uint32_t k = 0; k < count; ++k) {
          const ir::OpcodeInfo& op = ir::info(i.opcode);
          if (op.reads_local) part.src_chunk = i.src_chunk + k;
          if (op.writes_local) part.dst_chunk = i.dst_chunk + k;
          part.has_dependents = k + 1 == count ? i.has_dependents : std::uint8_t{0};
          builder.step(part, deps);
          deps.clear();
        }
      }
    }
  }
  ir::Program split = std::move(builder.program());
  split.name = program.name;
  split.collective = program.collective;
  split.protocol = program.protocol;
  split.slots = program.slots;
  split.compute = program.compute;
  return split;
}

}  // namespace gc3::verify
