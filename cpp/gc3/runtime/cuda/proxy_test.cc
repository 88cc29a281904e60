// Ranks on several hosts with the fake driver: each rank is a thread here, and hosts are connected over loopback.
#include "gc3/runtime/cuda/proxy.h"

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/cuda/rank_engine.h"
#include "gc3/runtime/cuda/test_engines.h"
#include "gc3/runtime/interp/test_programs.h"
#include "gc3/runtime/interp/test_reference.h"
#include "gc3/transport/fake.h"
#include "gc3/transport/tcp.h"

namespace gc3::cuda {
namespace {

using model::Protocol;
using testing::DataType;
using testing::ReduceOp;

// Where the ranks meet, and what each of them has told the others.
struct World {
  World(std::uint32_t ranks, std::uint32_t per_host)
      : all(ranks), hosts(ranks), addresses(ranks), handles(ranks), statuses(ranks) {
    for (std::uint32_t r = 0; r < ranks; ++r) hosts[r] = r / per_host;
  }
  std::barrier<> all;
  std::vector<std::uint32_t> hosts;
  std::vector<std::string> addresses;
  std::vector<ArenaHandle> handles;
  std::vector<Status> statuses;
  std::shared_ptr<Runtime> shared = runtime();
  std::optional<transport::Fake::Options> delays = {};
  std::atomic<std::uint32_t> lost = ~0U;  // a rank of which all learn that it is lost
};

class TestCarrier final : public transport::Carrier {
 public:
  TestCarrier(World& world, std::uint32_t rank) : world_(world), rank_(rank) {}
  const std::vector<std::uint32_t>& hosts() const override { return world_.hosts; }
  Status connect(const std::vector<std::uint32_t>& peers, const std::function<bool()>& progress,
                 const std::function<bool()>&) override {
    if (transport_ == nullptr) {
      GC3_ASSIGN(transport_, transport::Tcp::create(rank_, "127.0.0.1", "the secret of a test"));
      if (world_.delays) {
        transport::Fake::Options own = *world_.delays;
        own.seed = own.seed * 1000 + rank_;
        if (rank_ != 0) own.loses_after.reset();
        transport_ = std::make_unique<transport::Fake>(std::move(transport_), own);
      }
    }
    world_.addresses[rank_] = transport_->address();
    world_.all.arrive_and_wait();
    for (const std::uint32_t peer : peers) GC3_CHECK(transport_->connect(peer, world_.addresses[peer]));
    for (const std::uint32_t peer : peers) {
      while (!transport_->connected(peer)) {
        progress();
        std::this_thread::yield();
      }
    }
    return {};
  }
  transport::Transport& transport() override { return *transport_; }
  std::optional<Diagnostic> problem() override {
    for (const auto& [peer, failure] : transport_->failures()) {
      if (failure.kind != transport::Failure::Kind::left) world_.lost = peer;
    }
    if (world_.lost == ~0U) return {};
    return Diagnostic(ErrorCode::RankLost, "rank " + std::to_string(world_.lost) + " is lost");
  }
  std::string describe() const override { return transport_->describe(); }

 private:
  World& world_;
  std::uint32_t rank_;
  std::unique_ptr<transport::Transport> transport_;
};

// A rank's programs, on a stream of its own.
class Rank {
 public:
  Rank(World& world, std::uint32_t rank)
      : world_(world),
        rank_(rank),
        proxy_(std::make_shared<Proxy>(std::make_unique<TestCarrier>(world, rank))),
        stream_(Stream::create(world.shared->device(0).value()).value()) {}

  Result<std::shared_ptr<RankEngine>> prepare(const ir::Program& program, const Options& options) {
    GC3_ASSIGN(std::shared_ptr<RankEngine> engine,
               RankEngine::create(world_.shared, program, rank_, 0, options, nullptr, proxy_));
    GC3_ASSIGN(world_.handles[rank_], engine->handle());
    world_.all.arrive_and_wait();
    GC3_CHECK(engine->connect(world_.handles));
    world_.all.arrive_and_wait();
    return engine;
  }
  Status enqueue(RankEngine& engine, const interp::Call& call) {
    return engine.enqueue(call.inputs[rank_], call.outputs[rank_], call.count, call.type, call.op, {}, stream_.get());
  }
  void wait() { world_.all.arrive_and_wait(); }
  std::uint32_t rank() const { return rank_; }
  Proxy& proxy() { return *proxy_; }
  World& world() { return world_; }

 private:
  World& world_;
  std::uint32_t rank_;
  std::shared_ptr<Proxy> proxy_;
  Stream stream_;
};

// Runs `body` on each rank. What it returns is in World::statuses.
void run(World& world, const std::function<Status(Rank&)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < world.hosts.size(); ++r) {
    threads.emplace_back([&world, &body, r] {
      Rank rank(world, r);
      world.statuses[r] = body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Messages of several slots, of a part of one, and none.
void check_results(World& world, const ir::Program& program, const Options& options, std::vector<std::size_t> counts) {
  std::vector<std::unique_ptr<testing::Buffers>> buffers;
  const interp::Plan plan = interp::Plan::create(program).value();
  for (const std::size_t count : counts) {
    buffers.push_back(std::make_unique<testing::Buffers>(plan.collective, count, DataType::int32, ReduceOp::sum));
  }
  run(world, [&](Rank& me) -> Status {
    GC3_ASSIGN(const auto engine, me.prepare(program, options));
    Status status;
    // Without a wait between the calls.
    for (const auto& one : buffers) {
      if (status.ok()) status = me.enqueue(*engine, one->call());
    }
    if (status.ok()) status = engine->synchronize();
    me.wait();
    return status;
  });
  for (const Status& status : world.statuses) REQUIRE_MESSAGE(status.ok(), status.error().str());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto difference = buffers[i]->difference();
    CHECK_MESSAGE(!difference.has_value(), "count ", counts[i], ": ", *difference);
  }
}

const std::vector<std::size_t> kCounts = {1, 0, 13, 1000, 5000, testing::kSanitized ? 9000U : 30'000U};

TEST_CASE("kernels on several hosts get right results through their proxies") {
  for (const auto& [ranks, per_host] : {std::pair{2U, 1U}, std::pair{4U, 2U}}) {
    CAPTURE(ranks);
    for (const ir::Program& program : {testing::ring_allreduce(ranks, false, Protocol::Simple),
                                       testing::allpairs_allreduce(ranks, true, Protocol::Simple),
                                       testing::direct_alltoall(ranks, 3, Protocol::Simple)}) {
      for (const std::uint32_t slots : {0U, 2U}) {
        World world(ranks, per_host);
        check_results(world, program, {slots, 4096, 60}, kCounts);
      }
    }
  }
}

TEST_CASE("messages between hosts that are late and pass each other change no result") {
  for (std::uint64_t seed = 0; seed < (testing::kSanitized ? 1 : 4); ++seed) {
    World world(4, 1 + seed % 2);
    world.delays = transport::Fake::Options{seed, 20};
    check_results(world, testing::allpairs_allreduce(4, false, Protocol::Simple), {2, 4096, 60}, kCounts);
  }
}

TEST_CASE("several programs share the connections, and one that runs goes on while another is prepared") {
  World world(2, 1);
  const ir::Program ring = testing::ring_allreduce(2, false, Protocol::Simple);
  const interp::Plan plan = interp::Plan::create(ring).value();
  testing::Buffers first(plan.collective, 20'000, DataType::int32, ReduceOp::sum);
  testing::Buffers second(plan.collective, 300, DataType::int32, ReduceOp::sum);
  run(world, [&](Rank& me) -> Status {
    GC3_ASSIGN(const auto one, me.prepare(ring, {2, 4096, 60}));
    GC3_CHECK(me.enqueue(*one, first.call()));
    // Rank 1 prepares only when its first call has ended, which needs the proxy of rank 0.
    if (me.rank() == 1) GC3_CHECK(one->synchronize());
    GC3_ASSIGN(const auto other, me.prepare(ring, {8, 8192, 60}));
    GC3_CHECK(me.enqueue(*other, second.call()));
    Status status = one->synchronize();
    if (status.ok()) status = other->synchronize();
    me.wait();
    return status;
  });
  for (const Status& status : world.statuses) REQUIRE_MESSAGE(status.ok(), status.error().str());
  CHECK(!first.difference().has_value());
  CHECK(!second.difference().has_value());
}

TEST_CASE("a host that is lost ends the kernels of the others, and their calls name it") {
  World world(4, 2);
  world.delays = transport::Fake::Options{3, 4, 40};  // rank 0 loses a peer
  const ir::Program program = testing::allpairs_allreduce(4, false, Protocol::Simple);
  const interp::Plan plan = interp::Plan::create(program).value();
  testing::Buffers buffers(plan.collective, 30'000, DataType::int32, ReduceOp::sum);
  run(world, [&](Rank& me) -> Status {
    GC3_ASSIGN(const auto engine, me.prepare(program, {2, 4096, 600}));
    Status status;
    while (status.ok()) {
      status = me.enqueue(*engine, buffers.call());
      if (status.ok()) status = engine->synchronize();
    }
    const Status again = me.enqueue(*engine, buffers.call());
    const bool stays = !again.ok() && again.error().message == status.error().message;
    me.wait();
    return stays ? status : Status(Diagnostic(ErrorCode::Internal, "the error does not stay"));
  });
  for (const Status& status : world.statuses) {
    REQUIRE(!status.ok());
    CHECK_MESSAGE(status.error().code == ErrorCode::RankLost, status.error().str());
    CHECK(status.error().message.find("is lost") != std::string::npos);
  }
}

TEST_CASE("a proxy that is closed stops the calls that need it") {
  World world(2, 1);
  const ir::Program ring = testing::ring_allreduce(2, false, Protocol::Simple);
  const interp::Plan plan = interp::Plan::create(ring).value();
  testing::Buffers buffers(plan.collective, 1000, DataType::int32, ReduceOp::sum);
  run(world, [&](Rank& me) -> Status {
    GC3_ASSIGN(const auto engine, me.prepare(ring, {2, 4096, 600}));
    Status status;
    if (me.rank() == 0) {
      status = me.enqueue(*engine, buffers.call());  // rank 1 does not make this call
      me.proxy().close();
      if (status.ok()) status = engine->synchronize();
    }
    me.wait();
    return status;
  });
  REQUIRE(!world.statuses[0].ok());
  CHECK(world.statuses[0].error().code == ErrorCode::CommunicatorClosed);
}

TEST_CASE("programs that are not possible between hosts are refused with the reason") {
  World world(2, 1);
  const std::shared_ptr<Proxy> proxy = std::make_shared<Proxy>(std::make_unique<TestCarrier>(world, 0));
  const auto refused = [&](const ir::Program& program, const Options& options) {
    const auto made = RankEngine::create(world.shared, program, 0, 0, options, nullptr, proxy);
    REQUIRE(!made.ok());
    return made.error();
  };
  for (const Protocol protocol : {Protocol::LL, Protocol::LL128}) {
    const Diagnostic why = refused(testing::ring_allreduce(2, false, protocol), {});
    CHECK(why.code == ErrorCode::BetweenHosts);
    CHECK(why.message.find("between hosts messages have the protocol Simple") != std::string::npos);
  }
  CHECK(refused(testing::ring_allreduce(3, false, Protocol::Simple), {}).code == ErrorCode::BadArgument);
  // Within a host they run.
  World one(2, 2);
  const auto within = std::make_shared<Proxy>(std::make_unique<TestCarrier>(one, 0));
  CHECK(
      RankEngine::create(one.shared, testing::ring_allreduce(2, false, Protocol::LL), 0, 0, {}, nullptr, within).ok());
}

}  // namespace
}  // namespace gc3::cuda
