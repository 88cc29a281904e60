// Which chunk of which block a step moves, and programs of which that cannot be said.
#include "gc3/ir/blocks.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gc3/ir/builder.h"

namespace gc3::ir {
namespace {

using model::Buffer;
using model::CollectiveKind;

// Two ranks exchange a block each; rank 0 sends from `source`, and first copies input[`copied`] to scratch[0].
Program exchange(CollectiveKind kind, Opcode local, std::uint32_t copied, Buffer source) {
  Builder builder;
  for (std::uint32_t r = 0; r < 2; ++r) {
    builder.rank(1);
    builder.threadblock(1 - r, 1 - r, 0);
    const std::uint32_t own = kind == CollectiveKind::alltoall ? 1 - r : 0;
    if (r == 0) builder.step({Opcode::copy, Buffer::input, Buffer::scratch, 0, own, 0, 1, 0, 0}, {});
    if (r == 0 && local != Opcode::nop) {
      builder.step({local, Buffer::input, Buffer::scratch, 0, copied, 0, 1, 0, 0}, {});
    }
    const Buffer from = r == 0 ? source : Buffer::input;
    builder.step({Opcode::send, from, Buffer::input, 0, from == Buffer::scratch ? 0 : own, 0, 1, 0, 0}, {});
    builder.step({Opcode::recv, Buffer::input, Buffer::output, 0, 0, 1 - r, 1, 0, 0}, {});
    const std::uint32_t kept = kind == CollectiveKind::alltoall ? r : 0;
    builder.step({Opcode::copy, Buffer::input, Buffer::output, 0, kept, r, 1, 0, 0}, {});
  }
  Program program = std::move(builder.program());
  program.name = "exchange";
  program.collective = model::Collective::builtin(kind, 2, 1, 0, false).value();
  return program;
}

TEST_CASE("a chunk keeps its block on its way") {
  const Result<Blocks> found = trace_blocks(exchange(CollectiveKind::alltoall, Opcode::nop, 0, Buffer::scratch));
  REQUIRE_MESSAGE(found.ok(), (found.ok() ? "" : found.error().str()));
  // Rank 0: to scratch, sent, received, kept; rank 1: sent, received, kept. Block (s, d) has number 2 s + d.
  CHECK(found.value().pieces == std::vector<std::uint32_t>{1, 1, 2, 0, 2, 1, 3});
  const Result<Blocks> gathered = trace_blocks(exchange(CollectiveKind::allgather, Opcode::nop, 0, Buffer::scratch));
  REQUIRE(gathered.ok());
  CHECK(gathered.value().pieces == std::vector<std::uint32_t>{0, 0, 1, 0, 1, 0, 1});
}

TEST_CASE("where a chunk has no single block, the step is named") {
  const auto refusal = [](const Program& program) {
    const Result<Blocks> found = trace_blocks(program);
    REQUIRE(!found.ok());
    return found.error().str();
  };
  const std::string mixed = refusal(exchange(CollectiveKind::alltoall, Opcode::reduce, 0, Buffer::scratch));
  CHECK(mixed.find("GC3-V012") != std::string::npos);
  CHECK(mixed.find("rank 0 threadblock 0 step 1") != std::string::npos);
  CHECK(mixed.find("the block from rank 0 to rank 1") != std::string::npos);
  CHECK(mixed.find("the block from rank 0 to rank 0") != std::string::npos);
  // The wrong block arrives.
  CHECK(refusal(exchange(CollectiveKind::alltoall, Opcode::copy, 0, Buffer::scratch)).find("instead of") !=
        std::string::npos);
  Program unwritten = exchange(CollectiveKind::alltoall, Opcode::nop, 0, Buffer::scratch);
  unwritten.instructions[0].opcode = Opcode::nop;
  unwritten.instructions[0].count = 0;
  CHECK(refusal(unwritten).find("which nothing has written") != std::string::npos);
  Program equal = unwritten;
  equal.collective = model::Collective::builtin(CollectiveKind::allreduce, 2, 2, 0, false).value();
  CHECK(trace_v_form(equal).error().str().find("allreduce has no v-form") != std::string::npos);
  Program waiting = exchange(CollectiveKind::alltoall, Opcode::nop, 0, Buffer::scratch);
  std::swap(waiting.instructions[1], waiting.instructions[2]);  // rank 0 receives first
  std::swap(waiting.instructions[4], waiting.instructions[5]);  // and so does rank 1
  CHECK(refusal(waiting).find("waits for ever") != std::string::npos);
}

}  // namespace
}  // namespace gc3::ir
