// The C++ interface: mistakes, asynchronous calls, and the choice of programs. examples/cpp checks results.
#include "gc3/gc3.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/ir/image.h"
#include "gc3/runtime/cpu/test_ranks.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3 {
namespace {

const std::string kFile = "gc3_interface_test.gc3";

// A program of a collective in a file, which exists as long as this object.
class ProgramFile {
 public:
  explicit ProgramFile(std::uint32_t ranks)
      : ProgramFile(testing::allpairs_allreduce(ranks, false, model::Protocol::Simple), kFile) {}
  ProgramFile(const ir::Program& program, std::string path) : path_(std::move(path)) {
    CHECK(ir::save(program, path_).ok());
  }
  ~ProgramFile() { std::remove(path_.c_str()); }
  ProgramFile(const ProgramFile&) = delete;
  ProgramFile& operator=(const ProgramFile&) = delete;

 private:
  std::string path_;
};

Options options_of(std::uint32_t rank, std::uint32_t size) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.job = "interface test " + std::to_string(getppid());
  return options;
}

// Two ranks whose communicators have loaded an AllReduce.
void run_two_loaded(const std::function<bool(Communicator& comm, std::uint32_t rank)>& body) {
  const ProgramFile file(2);
  testing::run_ranks(2, [&](std::uint32_t rank) {
    Result<Communicator> made = init(options_of(rank, 2));
    if (!testing::expect(made.ok(), rank, "init")) return false;
    if (!testing::expect(made.value().load(kFile).ok(), rank, "load")) return false;
    return body(made.value(), rank);
  });
}

ErrorId code_of(const Status& status) { return status.ok() ? ErrorCode::Internal : status.error().code; }

Status status_of(const auto& made) { return made.ok() ? Status() : Status(made.error()); }

TEST_CASE("invalid options are refused") {
  CHECK(init({.rank = 0}).error().code == ErrorCode::BadArgument);
  CHECK(init({.size = 2}).error().code == ErrorCode::BadArgument);
  CHECK(init({.rank = 2, .size = 2}).error().code == ErrorCode::RankOutOfRange);
}

// The number of cores that this thread may use.
int cores_now() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
}

TEST_CASE("options say whether ranks are pinned, and how they wait") {
  Options options = options_of(0, 1);
  options.wait = "nap";
  CHECK(init(options).error().str().find("wait='nap' (GC3_WAIT): expected auto, spin, yield or block") !=
        std::string::npos);

  const int all = cores_now();
  const bool may_use_all = all == sysconf(_SC_NPROCESSORS_ONLN);  // else ranks are not pinned, whatever is asked for
  for (const bool pin : {false, true}) {
    const ProgramFile file(2);
    testing::run_ranks(2, [&](std::uint32_t rank) {
      Options two = options_of(rank, 2);
      two.pin = pin;
      two.wait = rank == 0 ? "block" : "spin";  // ranks need not agree on it
      Result<Communicator> made = init(two);
      if (!testing::expect(made.ok() && made.value().load(kFile).ok(), rank, "init")) return false;
      const int fewer = pin && may_use_all && all > 1 ? (all + 1) / 2 : all;
      const std::vector<float> x(100, 1);
      std::vector<float> y(100);
      const Result<std::string> why = made.value().explain(CollectiveKind::allreduce, 100, DataType::float32);
      return testing::expect(cores_now() <= fewer && (pin || cores_now() == all), rank, "cores") &&
             testing::expect(why.ok() && why.value().find("as told") != std::string::npos, rank, "wait") &&
             testing::expect(made.value().all_reduce(x.data(), y.data(), 100, DataType::float32).ok(), rank, "call") &&
             testing::expect(y[99] == 2, rank, "sum");
    });
  }
}

TEST_CASE("a call may have a time-out of its own") {
  run_two_loaded([](Communicator& comm, std::uint32_t rank) {
    constexpr double kShort = 0.05;
    std::vector<float> x(100, 1);
    std::vector<float> y(100);
    const CollectiveCall limited{.input = x.data(), .output = y.data(), .count = 100, .timeout_s = kShort};
    const std::vector<std::function<Status(Communicator&)>> calls = {
        [&](Communicator& c) { return c.all_reduce(x.data(), y.data(), 100, DataType::float32, {}, kShort); },
        [&](Communicator& c) { return c.barrier(kShort); },
        [&](Communicator& c) { return c.start(limited).wait(); },
        [&](Communicator& c) { return c.run({limited}); },
        [&](Communicator& c) {
          return status_of(c.agree_counts(CollectiveKind::allgather, {3}, {}, DataType::float32, 0, kShort));
        },
    };
    for (const auto& call : calls) {
      auto group = comm.group({0, 1}, "pair");
      if (!testing::expect(group.ok(), rank, "group")) return false;
      if (rank == 0) {
        const Status late = call(group.value());
        if (!testing::expect(code_of(late) == ErrorCode::Timeout, rank, "time-out")) return false;
        const std::string told = late.error().str();
        if (!testing::expect(told.find("not called yet by rank 1") != std::string::npos, rank, told)) return false;
      }
      if (!testing::expect(comm.barrier().ok(), rank, "others go on")) return false;
      if (!testing::expect(code_of(group.value().barrier()) == ErrorCode::Timeout, rank, "later calls")) return false;
      if (!testing::expect(comm.barrier().ok(), rank, "both have found it")) return false;
    }
    return testing::expect(code_of(comm.barrier(-1.0)) == ErrorCode::BadOption, rank, "mistake") &&
           testing::expect(comm.all_reduce(x.data(), y.data(), 100, DataType::float32, {}, 50.0).ok(), rank, "in time");
  });
}

// What follows runs under the sanitizers, in threads of each rank beside each other.
constexpr std::uint32_t kRanks = 3;
constexpr std::size_t kTurns = 20;

// Blocks of lengths that differ from turn to turn; those of rank r are of the value r.
bool exchange_blocks(Communicator& comm) {
  const std::uint32_t rank = comm.rank();
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const auto length = [&](std::uint32_t from, std::uint32_t to) { return (turn + from + 2 * to) % 5 * 300; };
    Counts own;
    Counts all;
    std::size_t gets = 0;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      own.push_back(length(rank, r));
      gets += length(r, rank);
      for (std::uint32_t s = 0; s < kRanks; ++s) all.push_back(length(r, s));
    }
    const Result<Counts> agreed = comm.agree_counts(CollectiveKind::alltoall, own, {}, DataType::int32);
    if (!testing::expect(agreed.ok() && agreed.value() == all, rank, "counts")) return false;
    const std::vector<std::int32_t> x(3 * 1200, static_cast<std::int32_t>(rank));
    std::vector<std::int32_t> y(3 * 1200, -1);
    const Status done = comm.all_to_all_v(x.data(), y.data(), all, DataType::int32);
    if (!testing::expect(done.ok(), rank, done.ok() ? "" : done.error().str())) return false;
    std::size_t at = 0;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      for (std::size_t i = 0; i < length(r, rank); ++i, ++at) {
        if (y[at] != static_cast<std::int32_t>(r)) return testing::expect(false, rank, "blocks");
      }
    }
    const bool kept = at == gets && std::ranges::count(y, -1) == static_cast<std::ptrdiff_t>(y.size() - gets);
    if (!testing::expect(kept, rank, "what lies behind")) return false;
  }
  return true;
}

bool reduce_several(Communicator& comm) {
  const std::uint32_t rank = comm.rank();
  std::atomic<std::size_t> ended = 0;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const std::vector<float> x(5000, static_cast<float>(rank + turn));
    std::vector<float> a(5000);
    std::vector<float> b(7);
    const std::vector<CollectiveCall> calls = {{.input = x.data(), .output = a.data(), .count = 5000},
                                               {.input = x.data(), .output = b.data(), .count = 7}};
    const Handle handle = comm.start(calls, [&](const Status& status) { ended += status.ok() ? 1 : 1000; });
    if (!testing::expect(handle.wait().ok() && comm.run(calls).ok(), rank, "calls at once")) return false;
    const auto sum = static_cast<float>(3 + 3 * turn);
    const auto right = [&](float value) { return value == sum; };
    if (!testing::expect(std::ranges::all_of(a, right) && std::ranges::all_of(b, right), rank, "sums")) return false;
  }
  return testing::expect(ended == kTurns, rank, "functions called");
}

bool pass_on(Communicator& comm) {
  const std::uint32_t rank = comm.rank();
  const std::uint32_t next = (rank + 1) % kRanks;
  const std::uint32_t before = (rank + kRanks - 1) % kRanks;
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    const std::size_t count = turn % 2 == 0 ? 3 : 60'000;  // sent at once, and read where they lie
    const std::vector<std::int32_t> x(count, static_cast<std::int32_t>(rank));
    std::vector<std::int32_t> y(count, -1);
    const auto tag = static_cast<std::int32_t>(turn);
    const Result<Transfer> sent = comm.isend(x.data(), count, DataType::int32, next, tag);
    const Result<Transferred> got = comm.recv(y.data(), count, DataType::int32, before, tag);
    if (!testing::expect(sent.ok() && got.ok() && sent.value().wait().ok(), rank, "messages")) return false;
    const bool right = std::ranges::count(y, static_cast<std::int32_t>(before)) == std::ssize(y);
    if (!testing::expect(right, rank, "values")) return false;
  }
  return true;
}

TEST_CASE("threads of a rank make calls of blocks, of groups, of several arrays, and send, beside each other") {
  const ProgramFile reduces(kRanks);
  const ProgramFile exchanges(testing::direct_alltoall(kRanks, 1, model::Protocol::Simple), kFile + ".blocks");
  testing::run_ranks(kRanks, [](std::uint32_t rank) {
    Result<Communicator> made = init(options_of(rank, kRanks));
    if (!testing::expect(made.ok(), rank, "init")) return false;
    Communicator& comm = made.value();
    if (!testing::expect(comm.load(kFile).ok() && comm.load(kFile + ".blocks").ok(), rank, "load")) return false;
    Result<Communicator> group = comm.group({0, 1, 2}, "beside");
    if (!testing::expect(group.ok(), rank, "group")) return false;
    bool reduced = false;
    bool passed = false;
    std::thread beside([&] { reduced = reduce_several(group.value()); });
    std::thread messages([&] { passed = pass_on(comm); });
    const bool exchanged = exchange_blocks(comm);
    beside.join();
    messages.join();
    return exchanged && reduced && passed;
  });
}

TEST_CASE("options say whether programs are learned while calls run") {
  Options options = options_of(0, 1);
  options.adapt = "maybe";
  CHECK(init(options).error().str().find("adapt='maybe' (GC3_ADAPT): expected 0, rows, 1 or exact") !=
        std::string::npos);
  options.adapt = "1";
  options.adapt_share = 2;
  CHECK(init(options).error().code == ErrorCode::BadOption);
  const ProgramFile file(2);
  testing::run_ranks(2, [&](std::uint32_t rank) {
    for (const bool alike : {true, false}) {
      Options two = options_of(rank, 2);
      if (alike || rank == 0) two.adapt = "exact";
      Result<Communicator> made = init(two);
      if (!testing::expect(made.ok(), rank, made.ok() ? "" : made.error().str())) return false;
      if (!testing::expect(made.value().load(kFile).ok(), rank, "load")) return false;
      const Result<std::string> why = made.value().explain(CollectiveKind::allreduce, 100, DataType::float32);
      // Nothing is learned about calls of a program that was loaded for them.
      const bool told = why.ok() && why.value().find("learned: nothing, because the ranks differ") != std::string::npos;
      if (!testing::expect(told == !alike, rank, why.ok() ? why.value() : "explain")) return false;
    }
    return true;
  });
}

TEST_CASE("a misspelt environment variable is reported") {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    setenv("GC3_JOIN_TIMOUT", "3", 1);
    _exit(init(options_of(0, 1)).ok() ? 0 : 1);
  }
  close(pipes[1]);
  std::string told(1000, '\0');
  const ssize_t got = read(pipes[0], told.data(), told.size());
  close(pipes[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  told.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  CHECK(told.find("GC3_JOIN_TIMOUT") != std::string::npos);
  CHECK(told.find("did you mean GC3_JOIN_TIMEOUT?") != std::string::npos);
}

TEST_CASE("ranks send each other elements, and a transfer outlives its communicator") {
  testing::run_ranks(2, [](std::uint32_t rank) {
    Result<Communicator> made = init(options_of(rank, 2));
    if (!testing::expect(made.ok(), rank, made.ok() ? "" : made.error().str())) return false;
    std::optional<Communicator> comm(std::move(made).value());
    const std::uint32_t other = 1 - rank;
    std::vector<float> x(50'000, static_cast<float>(rank + 1));
    std::vector<float> y(60'000);
    const auto both = comm->sendrecv(send_of(x.data(), x.size(), DataType::float32, other, 4),
                                     receive_of(y.data(), y.size(), DataType::float32));
    if (!testing::expect(both.ok() && both.value().peer == other && both.value().tag == 4 &&
                             both.value().count == x.size() && y[49'999] == static_cast<float>(other + 1),
                         rank, "sendrecv")) {
      return false;
    }
    std::atomic<bool> called = false;
    const auto receive = comm->start(receive_of(y.data(), 3, DataType::float32, other, 1),
                                     [&](const Status& status) { called = status.ok(); });
    const auto never = comm->irecv(y.data() + 3, 1, DataType::float32, other, 2);
    if (!receive.ok() || !never.ok() || !comm->send(x.data(), 2, DataType::float32, other, 1).ok()) return false;
    const Result<Transferred> got = receive.value().wait();
    while (!called) std::this_thread::yield();
    const Result<Transferred> late = comm->recv(y.data(), 1, DataType::float32, other, 3, 0.02);
    const bool right =
        got.ok() && got.value().count == 2 && !late.ok() && late.error().code == ErrorCode::Timeout &&
        comm->send(x.data(), std::numeric_limits<std::size_t>::max(), DataType::float32, other).error().code ==
            ErrorCode::BadBuffer;
    if (!testing::expect(right && comm->barrier().ok(), rank, "irecv and recv")) return false;
    comm.reset();
    return testing::expect(never.value().test() && never.value().wait().error().code == ErrorCode::CommunicatorClosed,
                           rank, "after the end");
  });
}

TEST_CASE("premulsum multiplies a copy of the input") {
  run_two_loaded([](Communicator& comm, std::uint32_t rank) {
    std::vector<float> x(10, 3);
    std::vector<float> y(10);
    std::vector<int> z(10);
    std::vector<int> sums(10);
    const float factor = static_cast<float>(rank) + 0.5F;
    const Reduction scaled = Reduction::pre_mul_sum(&factor, DataType::float32);
    const std::vector<float> six(10, 6);
    bool good = testing::expect(comm.all_reduce(x.data(), y.data(), 10, DataType::float32, scaled).ok(), rank, "call");
    good = testing::expect(y == six && x == std::vector<float>(10, 3), rank, "values") && good;
    good = testing::expect(comm.all_reduce_async(x.data(), y.data(), 10, DataType::float32, scaled).wait().ok(), rank,
                           "an asynchronous call") &&
           good;
    good = testing::expect(y == six, rank, "its values") && good;
    const Status other = comm.all_reduce(z.data(), sums.data(), 10, DataType::int32, scaled);
    const Status none = comm.all_reduce(x.data(), y.data(), 10, DataType::float32, ReduceOp::premulsum);
    return testing::expect(code_of(other) == ErrorCode::BadReduceOp && code_of(none) == ErrorCode::BadReduceOp, rank,
                           "invalid factors") &&
           good;
  });
}

TEST_CASE("invalid calls are refused, and later calls work") {
  const ProgramFile file(1);
  Result<Communicator> made = init(options_of(0, 1));
  REQUIRE(made.ok());
  Communicator& comm = made.value();
  std::vector<float> x(10, 3);
  std::vector<float> y(10);
  CHECK(code_of(comm.all_reduce(x.data(), y.data(), 10, DataType::float32)) == ErrorCode::BadTable);
  const Status loaded = comm.load(kFile, 8, 1000);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().str());
  CHECK(code_of(comm.all_reduce(nullptr, y.data(), 10, DataType::float32)) == ErrorCode::BadBuffer);
  CHECK(code_of(comm.all_reduce(x.data(), nullptr, 10, DataType::float32)) == ErrorCode::BadBuffer);
  CHECK(code_of(comm.all_reduce(x.data(), x.data() + 1, 5, DataType::float32)) == ErrorCode::BadBuffer);
  const auto most = std::numeric_limits<std::size_t>::max();
  CHECK(code_of(comm.all_reduce(x.data(), y.data(), most, DataType::float32)) == ErrorCode::BadBuffer);
  CHECK(code_of(comm.all_reduce(x.data(), y.data(), most / 4 + 2, DataType::float32)) == ErrorCode::BadBuffer);
  CHECK(code_of(comm.broadcast(x.data(), 10, DataType::float32, 1)) == ErrorCode::RankOutOfRange);
  CHECK(code_of(comm.load("no such file")) == ErrorCode::FileUnreadable);
  CHECK(comm.all_reduce(x.data(), y.data(), 10, DataType::float32).ok());
  CHECK(y == x);

  const auto why = comm.explain(CollectiveKind::allreduce, 10, DataType::float32);
  REQUIRE(why.ok());
  // The rest of the text is how messages are copied, which depends on the machine.
  CHECK(why.value().starts_with("allreduce of 40 B on 1 rank, out of place: " + kFile + "\n  chosen by load of " +
                                kFile));
  CHECK(comm.explain(CollectiveKind::allreduce, 1, DataType::float32).error().code == ErrorCode::BadTable);
  CHECK(comm.explain(CollectiveKind::allreduce, most, DataType::int8).error().code == ErrorCode::BadBuffer);
  REQUIRE(comm.load(kFile, 0, 8).ok());
  const auto other = comm.explain(CollectiveKind::allreduce, 10, DataType::float32);
  CHECK(other.value().find("not load of " + kFile + ": for less than 8 B") != std::string::npos);
}

TEST_CASE("a call that one rank has made wrongly is told to the others") {
  using Call = std::function<Status(Communicator&, float*, float*)>;
  const Call calls[] = {
      [](Communicator& comm, float* x, float*) { return comm.broadcast(x, 10, DataType::float32, 7); },
      [](Communicator& comm, float* x, float* y) { return comm.all_gather_v(x, y, {1, 1, 1}, DataType::float32); },
      [](Communicator& comm, float*, float* y) {
        return comm.all_reduce_async(nullptr, y, 10, DataType::float32).wait();
      },
      [](Communicator& comm, float*, float* y) {
        CollectiveCall call{.collective = CollectiveKind::allreduce, .output = y, .count = 10};
        return comm.run({call, call});
      },
      [](Communicator& comm, float*, float*) {
        return status_of(comm.agree_counts(CollectiveKind::alltoall, {1}, {}, DataType::float32));
      },
      [](Communicator& comm, float*, float*) { return comm.barrier(-1.0); },
      [](Communicator& comm, float*, float*) { return comm.load("no such file"); },
      [](Communicator& comm, float*, float*) { return status_of(comm.group({0, 0})); },
  };
  for (const Call& wrong : calls) {
    run_two_loaded([&](Communicator& comm, std::uint32_t rank) {
      std::vector<float> x(10, 3);
      std::vector<float> y(10);
      if (rank == 0) {
        const Status refused = wrong(comm, x.data(), y.data());
        return testing::expect(!refused.ok() && error_info(refused.error().code).kind == ErrorKind::User, rank, "user");
      }
      const Status told = comm.all_reduce(x.data(), y.data(), 10, DataType::float32);
      return testing::expect(code_of(told) == ErrorCode::CallsDiffer, rank, told.ok() ? "ok" : told.error().str());
    });
  }
}

TEST_CASE("groups without a name that ranks make at other lines are told apart") {
  run_two_loaded([](Communicator& comm, std::uint32_t rank) {
    if (rank == 0) return code_of(status_of(comm.group({0, 1}))) == ErrorCode::CallsDiffer;
    return code_of(status_of(comm.group({0, 1}))) == ErrorCode::CallsDiffer;
  });
}

TEST_CASE("a group has the programs of the communicator from which it was made") {
  const ProgramFile file(1);
  Result<Communicator> made = init(options_of(0, 1));
  REQUIRE(made.ok());
  REQUIRE(made.value().load(kFile).ok());
  Result<Communicator> group = made.value().group({0}, "alone", 5.0);
  REQUIRE(group.ok());
  std::vector<float> x(10, 3);
  std::vector<float> y(10);
  CHECK(group.value().all_reduce(x.data(), y.data(), 10, DataType::float32).ok());
  CHECK(y == x);
  CHECK(made.value().group({1}).error().code == ErrorCode::RankOutOfRange);
  CHECK(made.value().group({}).error().code == ErrorCode::BadArgument);
}

TEST_CASE("asynchronous calls run in the order in which they were started") {
  const testing::SharedNumber looked;
  run_two_loaded([&](Communicator& comm, std::uint32_t rank) {
    constexpr std::size_t kCalls = 20;
    std::vector<std::vector<float>> x(kCalls, std::vector<float>(1000));
    std::vector<std::vector<float>> y = x;
    std::vector<Handle> handles;
    if (rank == 1) looked.wait_for(1);
    for (std::size_t i = 0; i < kCalls; ++i) {
      x[i].assign(1000, static_cast<float>(i));
      handles.push_back(comm.all_reduce_async(x[i].data(), y[i].data(), 1000, DataType::float32));
    }
    bool good = true;
    if (rank == 0) {
      good = testing::expect(!handles[0].test() && code_of(handles[0].wait(0.01)) == ErrorCode::Timeout, rank, "early");
      (*looked).store(1);
      const pid_t child = fork();  // has neither the thread nor the calls
      if (child == 0) {
        alarm(20);
        comm.abort();
        _exit(code_of(handles[kCalls - 1].wait()) == ErrorCode::UsedAfterFork ? 0 : 1);
      }
      int status = -1;
      waitpid(child, &status, 0);
      good = testing::expect(status == 0, rank, "a fork") && good;
    }
    good = testing::expect(comm.barrier().ok(), rank, "barrier") && good;  // runs after all of them
    for (std::size_t i = 0; i < kCalls; ++i) {
      good = testing::expect(handles[i].test() && handles[i].wait().ok() && y[i][999] == 2 * static_cast<float>(i),
                             rank, "call " + std::to_string(i)) &&
             good;
    }
    // No wait for the last one: the destructor of the communicator finishes it.
    const Handle last = comm.all_reduce_async(x[1].data(), y[0].data(), 1000, DataType::float32);
    {
      const Communicator gone = std::move(comm);
    }
    return testing::expect(last.test() && last.wait().ok() && y[0][0] == 2, rank, "the last one") && good;
  });
}

TEST_CASE("several calls are made at once, and functions are called when calls have ended") {
  run_two_loaded([](Communicator& comm, std::uint32_t rank) {
    const auto one = static_cast<float>(rank + 1);
    const std::vector<float> x(1000, one);
    std::vector<float> in_place(70'000, one);
    std::vector<float> a(1000);
    std::vector<float> b(3);
    const auto call = [](const void* input, void* output, std::size_t count) {
      return CollectiveCall{CollectiveKind::allreduce, input, output, count, DataType::float32};
    };
    const auto all_are = [](const std::vector<float>& of, float value) {
      return std::ranges::all_of(of, [&](float v) { return v == value; });
    };
    bool good = comm.run({call(x.data(), a.data(), 1000), call(x.data() + 7, b.data(), 3)}).ok();
    good = good && all_are(a, 3) && all_are(b, 3);
    good = good && comm.run({call(in_place.data(), in_place.data(), 70'000)}).error().code == ErrorCode::BadTable;
    good = good && comm.run(std::vector<CollectiveCall>()).ok();
    const Status twice = comm.run({call(x.data(), a.data(), 10), call(x.data(), a.data() + 9, 10)});
    good = good && code_of(twice) == ErrorCode::BadBuffer;

    std::atomic<int> ended = 0;
    const auto note = [&](const Status& status) { ended += status.ok() ? 1 : 100; };
    const Handle first = comm.start(call(x.data(), a.data(), 1000), note);
    const Handle second = comm.start(std::vector{call(x.data(), b.data(), 3)}, note);
    good = good && first.wait().ok() && second.wait().ok() && ended == 2 && all_are(b, 3);
    const Handle wrong = comm.start(call(nullptr, b.data(), 3), note);
    return good && code_of(wrong.wait()) == ErrorCode::BadBuffer && ended == 102;
  });
}

}  // namespace
}  // namespace gc3
