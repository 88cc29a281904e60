// From a call to its program: keys, recipes, and programs that do not match their row.
#include "gc3/comm/communicator.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::comm {
namespace {

using model::DataType;
using model::Protocol;
using select::CallShape;
using select::Recipe;
using select::Row;
using select::Selection;

std::unique_ptr<Communicator> alone(std::vector<Row> rows, const std::string& job) {
  core::Meeting meeting;
  meeting.rank = 0;
  meeting.size = 1;
  meeting.job = job + std::to_string(getpid());
  Result<std::unique_ptr<Communicator>> made =
      Communicator::init(meeting, {10.0, false, false}, Selection(std::move(rows)));
  REQUIRE_MESSAGE(made.ok(), made.error().str());
  return std::move(made).value();
}

// A row whose recipe records the calls of its function.
Row counting(std::vector<CallShape>& asked, std::optional<std::uint64_t> end = {}) {
  Row row;
  row.limits.size.last = end;
  row.source = "a row";
  const auto make = [&asked](const CallShape& call) -> Result<ir::ClassProgram> {
    asked.push_back(call);
    return ir::as_read(testing::allpairs_allreduce(call.ranks, call.in_place, Protocol::Simple));
  };
  row.recipe = std::make_shared<const Recipe>(Recipe{make, "counted"});
  return row;
}

TEST_CASE("a recipe makes its program on first use, once in place and once out of place") {
  std::vector<CallShape> asked;
  const auto comm = alone({counting(asked)}, "recipes");
  std::vector<float> x(100, 3);
  std::vector<float> y(100);
  for (const std::size_t count : {1U, 10U, 100U, 10U}) {
    y.assign(100, 0);
    CHECK(comm->run({CollectiveKind::allreduce, x.data(), y.data(), count}).ok());
    CHECK(y[count - 1] == 3);
  }
  CHECK(asked.size() == 1);
  CHECK(comm->run({CollectiveKind::allreduce, x.data(), x.data(), 100}).ok());
  CHECK(asked.size() == 2);
  CHECK(asked[1].in_place);
  const auto other = comm->split(0, 0);  // has the rows, and programs of its own
  REQUIRE(other.ok());
  CHECK(other.value()->run({CollectiveKind::allreduce, x.data(), y.data(), 100}).ok());
  CHECK(asked.size() == 3);
}

TEST_CASE("each size is served by its row, whichever sizes come before it") {
  std::vector<CallShape> asked;
  Row large;
  large.source = "a row";
  const auto fails = [](const CallShape&) -> Result<ir::ClassProgram> {
    return Diagnostic(ErrorCode::FileUnreadable, "gone");
  };
  large.recipe = std::make_shared<const Recipe>(Recipe{fails, "failing"});
  const auto comm = alone({counting(asked, 401), large}, "sizes");
  std::vector<float> x(200);
  for (std::size_t count = 1; count <= 200; ++count) {
    CHECK(comm->run({CollectiveKind::allreduce, x.data(), x.data(), count}).ok() == (count <= 100));
    if (count > 100) continue;
    CHECK(comm->run({CollectiveKind::allreduce, x.data(), x.data(), count, DataType::float64}).ok() == (count <= 50));
  }
}

TEST_CASE("a recipe that has failed is tried again by the next call") {
  std::size_t asked = 0;
  Row row;
  row.source = "a row";
  const auto fails = [&asked](const CallShape&) -> Result<ir::ClassProgram> {
    ++asked;
    return Diagnostic(ErrorCode::FileUnreadable, "gone");
  };
  row.recipe = std::make_shared<const Recipe>(Recipe{fails, "failing"});
  const auto comm = alone({row}, "failing");
  std::vector<float> x(4);
  for (int i = 0; i < 2; ++i) {
    CHECK(comm->run({CollectiveKind::allreduce, x.data(), x.data(), 4}).error().code == ErrorCode::FileUnreadable);
  }
  CHECK(asked == 2);
}

TEST_CASE("a program that does not match the call is refused before it accesses a buffer") {
  for (const bool wrong_ranks : {false, true}) {
    Row row;
    row.source = "a row";
    row.kind = wrong_ranks ? CollectiveKind::allreduce : CollectiveKind::allgather;
    const auto make = [wrong_ranks](const CallShape& call) -> Result<ir::ClassProgram> {
      return ir::as_read(testing::allpairs_allreduce(wrong_ranks ? 2 : 1, call.in_place, Protocol::Simple));
    };
    row.recipe = std::make_shared<const Recipe>(Recipe{make, "another"});
    const auto comm = alone({row}, "another");
    std::vector<float> x(4);
    std::vector<float> y(4);
    const Status status = comm->run({row.kind, x.data(), y.data(), 4});
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == ErrorCode::BadTable);
    CHECK(status.error().message.find("another is not for") != std::string::npos);
  }
}

TEST_CASE("for its sizes, a loaded program comes before the rows, and the last one loaded comes first") {
  std::vector<CallShape> asked;
  const auto comm = alone({counting(asked)}, "loaded");
  for (const char* name : {"one", "two"}) {
    CHECK(comm->load(ir::as_read(testing::allpairs_allreduce(1, false, Protocol::Simple)), 40, 80, name, name).ok());
    const auto shape = comm->shape(CollectiveKind::allreduce, 10, DataType::float32, false, 0);
    CHECK(comm->explain(shape.value()).value().row->source == name);
    CHECK(comm->program(shape.value()).ok());
  }
  CHECK(asked.empty());
  std::vector<float> x(20);
  std::vector<float> y(20);
  CHECK(comm->run({CollectiveKind::allreduce, x.data(), y.data(), 20}).ok());  // 80 bytes: the row
  CHECK(comm->run({CollectiveKind::allreduce, x.data(), x.data(), 10}).ok());  // in place: the row
  CHECK(asked.size() == 2);
}

TEST_CASE("a program that is loaded after a call with the same key serves the next one") {
  std::vector<CallShape> asked;
  const auto comm = alone({counting(asked)}, "later");
  std::vector<float> x(20);
  std::vector<float> y(20);
  const Call call{CollectiveKind::allreduce, x.data(), y.data(), 20};
  const auto shape = comm->shape(call).value();
  CHECK(comm->run(call).ok());
  ProcessProgram* const before = comm->program(shape).value();
  // The same program would be the same object.
  CHECK(comm->load(ir::as_read(testing::ring_allreduce(1, false, Protocol::LL)), 0, {}, "later", "later").ok());
  ProcessProgram* const loaded = comm->program(shape).value();
  CHECK(loaded != before);
  CHECK(loaded->tasks()[0].tile == 0);
  CHECK(comm->run(call).ok());
  CHECK(loaded->tasks()[0].tile == 1);
}

TEST_CASE("a call that differs from those before is checked, whatever differs") {
  std::vector<CallShape> asked;
  const auto comm = alone({counting(asked)}, "repeated");
  std::vector<float> x(40, 1);
  std::vector<float> y(40);
  const Call apart{CollectiveKind::allreduce, x.data(), y.data(), 20};
  Call together = apart;
  together.output = x.data();
  for (const Call& first : {apart, together, apart}) {
    REQUIRE(comm->run(first).ok());
    for (const auto& change : std::vector<std::function<void(Call&)>>{
             [&](Call& call) { call.input = nullptr; },
             [&](Call& call) { call.output = nullptr; },
             [&](Call& call) { call.output = x.data() + 1; },
             [&](Call& call) { call.output = x.data() + 19; },
             [&](Call& call) { call.input = y.data() + 19, call.output = y.data(); },
             [&](Call& call) { call.count = std::numeric_limits<std::size_t>::max(); },
         }) {
      Call wrong = first;
      change(wrong);
      CHECK(comm->run(wrong).error().code == ErrorCode::BadBuffer);
    }
    Call wrong = first;
    wrong.root = 1;
    CHECK(comm->run(wrong).error().code == ErrorCode::RankOutOfRange);
    wrong = first;
    wrong.op = model::ReduceOp::premulsum;
    CHECK(comm->run(wrong).error().code == ErrorCode::BadReduceOp);
    wrong = first;
    wrong.timeout_s = -1;
    CHECK(comm->run(wrong).error().code == ErrorCode::BadOption);
    Call other = first;
    other.input = x.data() + 20;
    other.output = first.output == first.input ? x.data() + 20 : y.data() + 20;
    y[39] = 0;
    CHECK(comm->run(other).ok());
    CHECK(static_cast<const float*>(other.output)[19] == 1);
  }
  CHECK(asked.size() == 2);
}

TEST_CASE("a call of a v-form that differs from those before is checked, whatever differs") {
  Row row;
  row.kind = CollectiveKind::alltoall;
  row.source = "a row";
  const auto make = [](const CallShape&) -> Result<ir::ClassProgram> {
    return ir::as_read(testing::direct_alltoall(1, 2, Protocol::Simple));
  };
  row.recipe = std::make_shared<const Recipe>(Recipe{make, "alltoall"});
  const auto comm = alone({row}, "checked");
  std::vector<std::uint8_t> x(100);
  const auto call = [&](std::uint64_t count, std::size_t from, std::size_t to, DataType type = DataType::uint8) {
    return VCall{CollectiveKind::alltoall, {count}, {x.data() + from}, {x.data() + to}, type};
  };
  const VCall first = call(10, 0, 10);
  for (std::uint8_t turn = 1; turn < 4; ++turn) {
    x[3] = turn;
    CHECK(comm->run(first).ok());
    CHECK(x[13] == turn);
  }
  for (const VCall& wrong : {call(11, 0, 10), call(10, 1, 10), call(10, 0, 9), call(10, 0, 10, DataType::float32)}) {
    CHECK(comm->run(wrong).error().code == ErrorCode::BadBuffer);
    CHECK(comm->run(wrong).error().code == ErrorCode::BadBuffer);
  }
  VCall other = first;
  other.op = model::ReduceOp::premulsum;
  CHECK(comm->run(other).error().code == ErrorCode::BadReduceOp);
  other = first;
  other.root = 1;
  CHECK(comm->run(other).error().code == ErrorCode::RankOutOfRange);
  CHECK(comm->run(first).ok());
  // A program that is loaded now is the one of the next call. This one adds two blocks.
  testing::ProgramBuilder adds(CollectiveKind::alltoall, 1, 2, false, Protocol::Simple);
  adds.scratch_chunks(0, 1);
  adds.tb(0);
  adds.step(ir::Opcode::copy, testing::in(0), testing::out(0), 2);
  adds.step(ir::Opcode::copy, testing::in(0), testing::scratch(0));
  adds.step(ir::Opcode::reduce, testing::in(1), testing::scratch(0));
  REQUIRE(comm->load(ir::as_read(adds.build()), 0, {}, "adds", "adds").ok());
  CHECK(comm->run(first).error().code == ErrorCode::NoVForm);
}

TEST_CASE("buffers must overlap as the in-place collective requires, or not at all") {
  const auto comm = alone({}, "overlap");
  std::vector<float> x(10);
  const auto key = [&](CollectiveKind kind, const float* in, float* out) { return comm->shape({kind, in, out, 5}); };
  CHECK_FALSE(key(CollectiveKind::allreduce, x.data(), x.data() + 5).value().in_place);
  CHECK(key(CollectiveKind::allreduce, x.data(), x.data()).value().in_place);
  CHECK(key(CollectiveKind::broadcast, x.data(), x.data()).value().in_place);
  const auto shifted = key(CollectiveKind::allreduce, x.data(), x.data() + 1);
  CHECK(shifted.error().code == ErrorCode::BadBuffer);
  CHECK(shifted.error().message.find("lies at byte 0") != std::string::npos);
  CHECK(key(CollectiveKind::gather, x.data(), x.data()).error().message.find("never in place") != std::string::npos);
  const auto most = std::numeric_limits<std::size_t>::max();
  CHECK(comm->shape(CollectiveKind::allreduce, most, DataType::int8, false, 0).error().code == ErrorCode::BadBuffer);
}

TEST_CASE("a closed communicator and one of a forked process refuse calls, busy or not") {
  std::vector<CallShape> asked;
  auto comm = alone({counting(asked)}, "closed");
  std::vector<float> x(4);
  const Call call{CollectiveKind::allreduce, x.data(), x.data(), 4};
  auto started = comm->start(call);
  REQUIRE(started.ok());
  CHECK(started.value().get().ok());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = comm->start(call).error().code == ErrorCode::UsedAfterFork &&
                         comm->run(call).error().code == ErrorCode::UsedAfterFork;
    comm.reset();  // does not wait for a thread of the parent
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(comm->close().ok());
  CHECK(comm->run(call).error().code == ErrorCode::CommunicatorClosed);
  CHECK(comm->start(call).error().code == ErrorCode::CommunicatorClosed);
  CHECK(comm->barrier().error().code == ErrorCode::CommunicatorClosed);
}

}  // namespace
}  // namespace gc3::comm
