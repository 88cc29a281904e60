// One defect at a time, made by hand: the code that the verifier gives, and what its message names.
#include "gc3/verify/verify.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/verify/test_programs.h"

namespace gc3::verify::test {
namespace {

using ir::Instruction;
using ir::Opcode;
using ir::Program;
using model::CollectiveKind;

// Rank 0 sends its input to rank 1, which receives it into scratch in one threadblock and copies it to its output in
// another. Every kind of defect can be made in it.
Program relay(std::uint32_t chunks = 2) {
  Weaver w("relay", collective(CollectiveKind::alltonext, 2, chunks, false));
  w.scratch(1, chunks);
  for (std::uint32_t c = 0; c < chunks; ++c) {
    w.send(0, w.tb(0, 1, kNobody), in(c));
    w.recv(1, w.tb(1, kNobody, 0), sc(c));
    w.copy(1, w.tb(1, kNobody, kNobody), sc(c), out(c));
  }
  return w.finish(1);
}

Instruction& step(Program& p, std::uint32_t rank, std::uint32_t tb, std::uint32_t s) {
  return p.instructions[p.tbs(rank)[tb].first_instruction + s];
}
ir::Threadblock& threadblock(Program& p, std::uint32_t rank, std::uint32_t tb) {
  return p.threadblocks[p.ranks[rank].first_tb + tb];
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The first finding has this code, and its text contains all of `parts`.
void check_found(const Program& p, ErrorId code, const std::vector<std::string>& parts, const Options& options = {}) {
  const Report report = verify(p, options);
  REQUIRE_FALSE(report.ok());
  const Diagnostic& d = report.diagnostics.front();
  CAPTURE(d.str());
  CHECK(std::string(d.info().name) == std::string(error_info(code).name));
  for (const std::string& part : parts) CHECK_MESSAGE(contains(d.str(), part), part);
}

}  // namespace

TEST_CASE("a correct program: the report") {
  const Report report = verify(relay());
  CHECK(report.ok());
  CHECK(report.slots == 1);
  CHECK(report.transfers == 2);
  CHECK(verify(relay(), {.slots = 5}).slots == 5);
}

TEST_CASE("malformed: the parts of the program do not fit together") {
  Program p = relay();
  p.ranks.pop_back();
  check_found(p, ErrorCode::BadStructure, {"2 ranks", "the program 1"});
  p = relay();
  p.slots = 0;
  check_found(p, ErrorCode::BadStructure, {"at least one FIFO slot"});
  CHECK(verify(p, {.slots = 1}).ok());
  p = relay();
  p.ranks[1].first_tb = 0;
  check_found(p, ErrorCode::BadStructure, {"threadblocks of rank 1"});
  p = relay();
  p.ranks[1].tb_count = 0xffffffffU;
  check_found(p, ErrorCode::BadStructure, {"threadblocks of rank 1"});
  p = relay();
  threadblock(p, 1, 0).first_instruction = 1;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 0"});
  p = relay();
  threadblock(p, 1, 1).instruction_count = 3;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1"});
  p = relay();
  threadblock(p, 1, 1).instruction_count = 1;
  check_found(p, ErrorCode::BadStructure, {"belong to no rank"});
  p = relay();
  step(p, 1, 1, 0).dep_begin = 0xffffffffU;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 0", "table of dependencies"});
  p = relay();
  step(p, 1, 0, 1).dep_count = 1;
  check_found(p, ErrorCode::BadStructure, {"share records"});
}

TEST_CASE("malformed: an instruction breaks a rule") {
  Program p = relay();
  step(p, 1, 1, 0).opcode = static_cast<Opcode>(200);
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 0", "opcode"});
  p = relay();
  step(p, 1, 1, 0).src_buffer = static_cast<Buffer>(7);
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 0", "buffer that does not exist"});
  p = relay();
  step(p, 1, 1, 1).opcode = Opcode::recv;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 1 (recv)", "no receive peer"});
  p = relay();
  step(p, 1, 1, 1).opcode = Opcode::send;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 1 (send)", "no send peer"});
  p = relay();
  step(p, 0, 0, 1).count = 0;
  check_found(p, ErrorCode::BadStructure, {"rank 0 threadblock 0 step 1", "count is 0"});
  p = relay();
  step(p, 0, 0, 1).opcode = Opcode::nop;
  check_found(p, ErrorCode::BadStructure, {"rank 0 threadblock 0 step 1 (nop)", "count must be 0"});
  p = relay();
  step(p, 0, 0, 1).src_chunk = 2;
  check_found(p, ErrorCode::BadStructure, {"rank 0 threadblock 0 step 1", "input[2]", "has 2 chunks"});
  p = relay();
  step(p, 1, 0, 1).count = 0xffffffffU;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 0 step 1", "scratch[1..4294967295]"});
  p = relay(3);
  step(p, 1, 1, 1).src_buffer = Buffer::output;
  step(p, 1, 1, 1).src_chunk = 0;
  step(p, 1, 1, 1).count = 2;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 1", "output[0..1]", "output[1..2]", "overlap"});
}

TEST_CASE("malformed: in place, only the larger buffer is named") {
  Program p = ring_allreduce(3, 1, true, true);
  CHECK(verify(p).ok());
  step(p, 1, 0, 0).src_buffer = Buffer::input;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 0 step 0 (send)", "input[1]", "part of output"});
}

TEST_CASE("malformed: peers") {
  Program p = relay();
  threadblock(p, 0, 0).send_peer = 0;
  check_found(p, ErrorCode::BadStructure, {"rank 0 threadblock 0", "send peer", "itself"});
  p = relay();
  threadblock(p, 1, 0).recv_peer = 2;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 0", "rank 2", "receive peer"});
}

TEST_CASE("malformed: dependencies") {
  Program p = relay();
  p.dependencies[1] = {2, 0};
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 1", "threadblock 2 step 0", "does not exist"});
  p = relay();
  p.dependencies[1] = {0, 2};
  check_found(p, ErrorCode::BadStructure, {"threadblock 0 step 2", "does not exist"});
  p = relay();
  p.dependencies[0] = {1, 0};
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 0", "itself"});
  p = relay();
  p.dependencies[0] = {1, 1};
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 0", "a later step"});
  p = relay();
  step(p, 1, 0, 0).has_dependents = 0;
  check_found(p, ErrorCode::BadStructure, {"rank 1 threadblock 1 step 0", "threadblock 0 step 0", "not marked"});
}

TEST_CASE("transfers without a partner") {
  Program p = relay();
  step(p, 1, 0, 1).opcode = Opcode::nop;
  step(p, 1, 0, 1).count = 0;
  check_found(
      p, ErrorCode::UnmatchedTransfer,
      {"from rank 0 to rank 1 on channel 0", "rank 0 threadblock 0 step 1", "message 1", "rank 1 threadblock 0"});
  p = relay();
  step(p, 0, 0, 0).opcode = Opcode::nop;
  step(p, 0, 0, 0).count = 0;
  check_found(p, ErrorCode::UnmatchedTransfer, {"rank 1 threadblock 0 step 1", "receives", "rank 0 threadblock 0"});
  p = relay();
  threadblock(p, 0, 0).channel = 3;
  check_found(p, ErrorCode::UnmatchedTransfer,
              {"channel 0", "rank 1 threadblock 0 step 0", "no threadblock of rank 0"});
  CHECK(verify(p).diagnostics.size() == 2);  // and the send on channel 3
  p = relay();
  step(p, 0, 0, 0).count = 2;
  check_found(p, ErrorCode::UnmatchedTransfer,
              {"rank 0 threadblock 0 step 0", "sends 2", "rank 1 threadblock 0 step 0", "receives 1"});
}

TEST_CASE("a connection with two threadblocks at one end") {
  Program p = direct_alltoall(3, 1, false);
  CHECK(verify(p).ok());
  for (std::uint32_t t = 0; t < p.ranks[1].tb_count; ++t) {
    if (p.tbs(1)[t].send_peer == 0) threadblock(p, 1, t).send_peer = 2;
  }
  check_found(p, ErrorCode::SharedConnection, {"of rank 1 both send", "from rank 1 to rank 2 on channel 0"});
}

TEST_CASE("deadlock in the order of steps, with any number of slots") {
  // Each rank receives before it sends.
  Program p = direct_alltoall(2, 1, false);
  Weaver w("stuck", p.collective);
  for (std::uint32_t r = 0; r < 2; ++r) {
    w.copy(r, w.tb(r, kNobody, kNobody), in(r), out(r));
    w.recv(r, w.tb(r, 1 - r, 1 - r), out(1 - r));
    w.send(r, w.tb(r, 1 - r, 1 - r), in(1 - r));
  }
  check_found(
      w.finish(1), ErrorCode::OrderDeadlock,
      {"2 threadblocks wait", "rank 0 threadblock 1 step 0", "waits for the message of rank 1 threadblock 1 step 1",
       "waits for the message of rank 0 threadblock 1 step 1"});
  // Two threadblocks wait for each other's next step.
  p = relay();
  p.dependencies.push_back({1, 1});
  step(p, 1, 1, 1).has_dependents = 1;
  step(p, 1, 0, 1).dep_begin = 2;
  step(p, 1, 0, 1).dep_count = 1;
  check_found(p, ErrorCode::OrderDeadlock,
              {"rank 1 threadblock 0 step 1", "waits for rank 1 threadblock 1 step 1",
               "waits for rank 1 threadblock 0 step 1"});
}

TEST_CASE("deadlock with too few slots, and the sufficient number") {
  const Program p = burst_alltoall(5);
  CHECK(verify(p).ok());
  check_found(p, ErrorCode::SlotDeadlock,
              {"with 3 slots", "rank 0 threadblock 1 step 3", "a slot to be freed by rank 1 threadblock 1 step 5",
               "smallest number that works is 5"},
              {.slots = 3});
}

TEST_CASE("reading an unwritten chunk") {
  Program p = relay();
  step(p, 1, 1, 1).src_chunk = 0;
  step(p, 1, 1, 1).src_buffer = Buffer::output;
  CHECK_FALSE(verify(p).ok());  // a wrong result only: output[0] has been written
  step(p, 1, 1, 0).src_chunk = 1;
  step(p, 1, 1, 0).src_buffer = Buffer::output;
  check_found(p, ErrorCode::UninitializedRead, {"rank 1 threadblock 1 step 0", "output[1]"});
  CHECK(verify(p).diagnostics.size() == 1);  // consequences are not reported again
}

TEST_CASE("races: read after write, write after read, write after write") {
  Program p = relay();
  step(p, 1, 1, 0).dep_count = 0;
  check_found(
      p, ErrorCode::DataRace,
      {"rank 1 scratch[0]", "rank 1 threadblock 0 step 0", "writes it", "rank 1 threadblock 1 step 0", "reads it"});
  CHECK(verify(p).diagnostics.size() == 1);

  // The second message arrives where the first one is still being read.
  p = relay();
  step(p, 1, 0, 1).dst_chunk = 0;
  step(p, 1, 1, 1).src_chunk = 0;
  check_found(
      p, ErrorCode::DataRace,
      {"rank 1 scratch[0]", "rank 1 threadblock 1 step 0", "reads it", "rank 1 threadblock 0 step 1", "writes it"});

  Weaver w("two writers", collective(CollectiveKind::alltonext, 2, 1, false));
  w.synchronise(false);
  w.send(0, w.tb(0, 1, kNobody), in(0));
  w.recv(1, w.tb(1, kNobody, 0), out(0));
  w.copy(1, w.tb(1, kNobody, kNobody), in(0), out(0));
  check_found(w.finish(1), ErrorCode::DataRace,
              {"rank 1 output[0]", "rank 1 threadblock 0 step 0", "rank 1 threadblock 1 step 0"});
}

TEST_CASE("an order through other ranks counts, an order through slots does not") {
  CHECK(verify(round_trip_allreduce(3, 2), {.slots = 8}).ok());
  // With one slot, rank 0 sends its second message after the first has been received, and the third after that. That is
  // late enough for the copy on rank 1. With more slots nothing delays it.
  Weaver w("borrowed order", collective(CollectiveKind::alltonext, 2, 2, false));
  w.scratch(0, 1);
  w.scratch(1, 1);
  w.send(0, w.tb(0, 1, kNobody), in(0));
  w.send(0, w.tb(0, 1, kNobody), in(1));
  w.copy(0, w.tb(0, 1, kNobody), in(0), sc(0));
  w.send(0, w.tb(0, 1, kNobody, 1), sc(0));
  w.copy(1, w.tb(1, kNobody, 0), in(0), sc(0));
  w.recv(1, w.tb(1, kNobody, 0), out(0));
  w.recv(1, w.tb(1, kNobody, 0), out(1));
  w.synchronise(false);
  w.recv(1, w.tb(1, kNobody, 0, 1), sc(0));
  check_found(w.finish(1), ErrorCode::DataRace, {"rank 1 scratch[0]"});
}

TEST_CASE("a message may arrive while it is still being sent") {
  CHECK(verify(there_and_back(0, false)).ok());
  CHECK(verify(there_and_back(1, true)).ok());
  check_found(
      there_and_back(1, false), ErrorCode::DataRace,
      {"rank 0 scratch[1]", "rank 0 threadblock 1 step 1", "reads it", "rank 0 threadblock 2 step 0", "writes it"});
}

TEST_CASE("a wrong result names the output, its value and the required value") {
  Program p = ring_allreduce(3, 1, false, true);
  step(p, 1, 0, 1).src_chunk = 1;
  check_found(p, ErrorCode::WrongResult,
              {"rank 0 output[0] holds rank 0 input[0] + rank 1 input[1] + rank 2 input[0]",
               "instead of rank 0 input[0] + rank 1 input[0] + rank 2 input[0]", "missing: rank 1 input[0]",
               "too much: rank 1 input[1]", "last written by rank 0 threadblock 0 step "});
  p = relay();
  step(p, 1, 1, 1).dst_chunk = 0;
  check_found(p, ErrorCode::WrongResult, {"rank 1 output[0] holds rank 0 input[1] instead of rank 0 input[0]"});
  const Report report = verify(p);
  REQUIRE(report.diagnostics.size() == 2);
  CHECK(contains(report.diagnostics[0].str(), "last written by rank 1 threadblock 1 step 1 (copy sc[1] -> out[0]"));
  CHECK(contains(report.diagnostics[1].message, "rank 1 output[1] holds nothing instead of rank 0 input[1]"));
  CHECK(contains(report.diagnostics[1].str(), "no step writes it"));
}

TEST_CASE("the multiplicity of an input counts") {
  Weaver w("twice", collective(CollectiveKind::reduce, 2, 1, false));
  w.copy(0, w.tb(0, kNobody, kNobody), in(0), out(0));
  w.reduce(0, w.tb(0, kNobody, kNobody), out(0), out(0));
  w.send(1, w.tb(1, 0, kNobody), in(0));
  w.rrc(0, w.tb(0, kNobody, 1), out(0), out(0));
  check_found(w.finish(1), ErrorCode::WrongResult,
              {"rank 0 output[0] holds 2 x rank 0 input[0] + rank 1 input[0]", "too much: rank 0 input[0]"});
}

TEST_CASE("chunks of a block may differ in length, and can still take each other's place") {
  Weaver w("detour", collective(CollectiveKind::alltonext, 2, 3, false));
  w.send(0, w.tb(0, 1, kNobody), in(0));
  w.send(0, w.tb(0, 1, kNobody), in(1), 2);
  const std::uint32_t tb = w.tb(1, kNobody, 0);
  w.recv(1, tb, out(2));
  w.copy(1, tb, out(2), out(0));
  w.recv(1, tb, out(1), 2);
  CHECK(verify(w.finish(1)).ok());
}

TEST_CASE("a read-only input must not be written") {
  Program p = relay();
  step(p, 1, 0, 1).dst_buffer = Buffer::input;
  check_found(p, ErrorCode::InputOverwritten, {"rank 1 threadblock 0 step 1 (recv)", "input[1]"});
}

TEST_CASE("limits of the target") {
  const Program p = direct_alltoall(4, 1, false);
  CHECK(verify(p, {.max_threadblocks = 7, .max_channels = 1}).ok());
  check_found(p, ErrorCode::LimitExceeded, {"rank 0 has 7 threadblocks", "limit is 6"}, {.max_threadblocks = 6});
  CHECK(verify(p, {.max_threadblocks = 6}).diagnostics.size() == 4);  // each rank, and nothing else
  check_found(chain_broadcast(3, 4, 2, false), ErrorCode::LimitExceeded, {"uses channel 1", "1 channel"},
              {.max_channels = 1});
}

TEST_CASE("a small program cannot ask for unlimited memory or time") {
  Program p = relay();
  p.ranks[0].scratch_chunks = 0xffffffffU;
  check_found(p, ErrorCode::ProgramTooLarge, {"134217728"});

  // Steps that wait for each other across very many threadblocks.
  const auto chain = [](std::uint32_t tbs, bool again) {
    Weaver w("chain", collective(CollectiveKind::broadcast, 1, 1, true));
    w.scratch(0, 2 * tbs);
    for (std::uint32_t t = 0; t < tbs; ++t) {
      w.copy(0, w.tb(0, kNobody, kNobody, 0, t), t == 0 ? out(0) : sc(t - 1), sc(t));
    }
    for (std::uint32_t t = 0; t < tbs && again; ++t) {
      w.copy(0, w.tb(0, kNobody, kNobody, 0, t), sc(tbs - 1), sc(tbs + t));
    }
    return w.finish(1);
  };
  CHECK(verify(chain(4000, true)).ok());
  CHECK(verify(chain(12000, false)).ok());
  check_found(chain(12000, true), ErrorCode::ProgramTooLarge, {"too many threadblocks that wait for each other"});
  check_found(chain(100000, false), ErrorCode::ProgramTooLarge, {"rank 0 has 100000 threadblocks and 99999 dependenc"});
}

TEST_CASE("as many findings as requested, at least one, and always the same") {
  Program p = relay(20);
  for (std::uint32_t c = 0; c < 20; ++c) step(p, 1, 1, c).dep_count = 0;
  CHECK(verify(p).diagnostics.size() == 10);
  CHECK(verify(p, {.max_diagnostics = 100}).diagnostics.size() == 20);
  CHECK(verify(p, {.max_diagnostics = 1}).diagnostics.size() == 1);
  CHECK_FALSE(verify(p, {.max_diagnostics = 0}).ok());
  const Report a = verify(p);
  const Report b = verify(p);
  for (std::size_t k = 0; k < 10; ++k) CHECK(a.diagnostics[k].str() == b.diagnostics[k].str());
}

}  // namespace gc3::verify::test
