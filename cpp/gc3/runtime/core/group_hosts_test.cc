// Groups of ranks on several hosts, here simulated by processes that meet through the loopback interface.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "gc3/runtime/core/test_hosts.h"

namespace gc3::core {
namespace {

using testing::blocks;
using testing::Hosting;
using testing::run_hosts;
using testing::start_rank;

std::string exchanges(Group& group) {
  const std::uint32_t rank = group.rank();
  if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto all = group.exchange({rank, i, i * rank, 7}, {});
    if (!all.ok()) return all.error().str();
    for (std::uint32_t r = 0; r < group.size(); ++r) {
      if (all.value()[r] != Group::Payload{r, i, i * r, 7}) return "wrong words of rank " + std::to_string(r);
    }
  }
  const std::string own(rank * 11, static_cast<char>('a' + rank));
  const auto texts = group.exchange_bytes(own, {});
  if (!texts.ok()) return texts.error().str();
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    if (texts.value()[r] != std::string(r * 11, static_cast<char>('a' + r))) return "wrong bytes";
  }
  const auto words = group.exchange_words({rank, 1, 2, 3, rank + 100U}, {});
  if (!words.ok()) return words.error().str();
  for (std::uint32_t r = 0; r < group.size(); ++r) {
    if (words.value()[5 * r] != r || words.value()[5 * r + 4] != r + 100) return "wrong many words";
  }
  group.finish();
  return "";
}

TEST_CASE("ranks of several hosts exchange words and bytes") {
  for (const auto& layout : {blocks(2, 2), blocks(3, 1), testing::Layout{{0, 3}, {1}, {2, 4}}}) {
    run_hosts(Hosting(layout), exchanges);
  }
}

TEST_CASE("a job of one host may have met as one of several does") {
  for (const auto& layout : {blocks(1, 1), blocks(1, 2)}) run_hosts(Hosting(layout), exchanges);
}

TEST_CASE("many hosts meet") { run_hosts(Hosting(blocks(16, 2)), exchanges); }

// Not part of the tests: run with `--no-skip --test-case="64 hosts*"`.
TEST_CASE("64 hosts of 4 ranks meet within 10 s" * doctest::skip()) {
  const auto start = std::chrono::steady_clock::now();
  run_hosts(Hosting(blocks(64, 4), 60), [&](Group& group) -> std::string {
    const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    const double met = since();
    std::string wrong = exchanges(group);
    if (group.rank() == 0) std::fprintf(stderr, "met after %.2f s, 40 exchanges in %.2f s\n", met, since() - met);
    if (wrong.empty() && met > 10) wrong = "met after " + std::to_string(met) + " s";
    return wrong;
  });
}

TEST_CASE("ranks wait for their leader as long as it waits for other hosts, whatever the time for a call is") {
  const Hosting hosting(blocks(2, 2));
  std::vector<pid_t> ranks;
  for (const std::uint32_t r : {0U, 1U, 2U, 3U}) {
    if (r == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    ranks.push_back(start_rank(hosting, r, exchanges, 1));
  }
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("a leader stays while a rank of its host needs it, also after another one has left and ended") {
  run_hosts(Hosting({{0}, {1, 2, 3}}), [](Group& group) -> std::string {
    if (group.rank() % 2 == 1) return "";
    auto pair = group.subgroup({0, 2}, "pair", {}, {});
    if (!pair.ok()) return pair.error().str();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    bool more = true;
    while (more) {
      if (std::string wrong = exchanges(*pair.value()); !wrong.empty()) return wrong;
      // Both have to make the same number of calls, so that one of them says when it is enough.
      if (Status status = pair.value()->begin({CallKind::barrier}); !status.ok()) return status.error().str();
      const auto said = pair.value()->exchange({std::chrono::steady_clock::now() < until ? 1U : 0U}, {});
      if (!said.ok()) return said.error().str();
      more = said.value()[0][0] == 1;
      pair.value()->finish();
    }
    return "";
  });
}

TEST_CASE("a group knows where its ranks are") {
  run_hosts(Hosting({{0, 3}, {1}, {2, 4}}), [](Group& group) -> std::string {
    const Group::Placement& where = group.placement();
    if (where.host_of != std::vector<std::uint32_t>{0, 1, 2, 0, 2}) return "hosts";
    if (where.ranks_of != testing::Layout{{0, 3}, {1}, {2, 4}} || where.ranks_per_node != 0) return "ranks";
    if (where.hosts.size() != 3 || where.hosts[2].ranks != std::vector<std::uint32_t>{2, 4}) return "names";
    return "";
  });
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    if (group.placement().ranks_per_node != 2 || group.ranks_here().size() != 2) return "blocks";
    return group.is_here(group.rank() ^ 1U) && !group.is_here(group.rank() ^ 2U) ? "" : "here";
  });
}

TEST_CASE("memory is shared by the ranks of each host") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
    Result<Mapping> memory = group.allocate(4096, "a test", {});
    if (!memory.ok()) return memory.error().str();
    memory.value().data()[group.rank() % 2] = static_cast<std::uint8_t>(10 + group.rank());
    if (!group.exchange({}, {}).ok()) return "exchange";
    const std::uint8_t first = group.rank() < 2 ? 10 : 12;
    const bool right = memory.value().data()[0] == first && memory.value().data()[1] == first + 1;
    group.finish();
    return right ? "" : "another host's memory";
  });
}

TEST_CASE("groups of some ranks") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    auto crossing = group.split(group.rank() % 2, 0, {});
    if (!crossing.ok()) return crossing.error().str();
    if (crossing.value()->size() != 2 || !crossing.value()->placement().several()) return "crossing";
    if (const std::string wrong = exchanges(*crossing.value()); !wrong.empty()) return wrong;
    auto near = group.split(group.placement().host_of[group.rank()], 0, {});
    if (!near.ok()) return near.error().str();
    if (near.value()->placement().several()) return "near";
    if (const std::string wrong = exchanges(*near.value()); !wrong.empty()) return wrong;
    if (group.rank() != 0) {  // neither all ranks nor the one that leads
      auto three = group.subgroup({3, 1, 2}, "three", {}, {});
      if (!three.ok()) return three.error().str();
      if (const std::string wrong = exchanges(*three.value()); !wrong.empty()) return wrong;
    }
    return exchanges(group);
  });
}

TEST_CASE("ranks of other hosts that make another call are named") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    CallRecord record;
    record.count = group.rank() == 3 ? 20 : 10;
    if (Status status = group.begin(record); !status.ok()) return status.error().str();
    const auto all = group.exchange({}, {});
    if (all.ok()) return "no difference";
    const std::string said = all.error().str();
    const bool named = said.find("rank 3: allreduce of 20") != std::string::npos &&
                       said.find("rank 0, 1, 2: allreduce of 10") != std::string::npos;
    return named ? "" : said;
  });
}

TEST_CASE("a lost rank, leader or rank 0 is named on all hosts") {
  for (const std::uint32_t victim : {3U, 2U, 0U}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      CAPTURE(victim);
      CAPTURE(signal);
      const auto survives = [&](std::uint32_t r) { return r != victim; };
      const auto body = [&](Group& group) -> std::string {
        const auto start = std::chrono::steady_clock::now();
        // A leader that is killed may not have sent its last words.
        std::string said = exchanges(group);
        if (said.empty() && group.rank() == victim) kill(getpid(), signal);
        if (said.empty()) said = exchanges(group);
        const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const bool named =
            said.find("rank " + std::to_string(victim)) != std::string::npos || said.find("host ") != std::string::npos;
        if (!named || said.find("GC3-R009") == std::string::npos) return said;
        return took < 8 ? "" : "after " + std::to_string(took) + " s";
      };
      run_hosts(Hosting(blocks(2, 2)), body, survives);
    }
  }
}

TEST_CASE("one rank that gives up ends the call of all") {
  run_hosts(Hosting(blocks(2, 2)), [](Group& group) -> std::string {
    if (Status status = group.begin({CallKind::barrier}); !status.ok()) return status.error().str();
    if (group.rank() == 3) {
      while (!group.all_here()) std::this_thread::yield();  // before, they would fail earlier
      group.abort();
      return group.check().ok() ? "still usable" : "";
    }
    const auto all = group.exchange({}, {});
    return !all.ok() && all.error().str().find("has aborted the communicator") != std::string::npos ? "" : "no reason";
  });
}

}  // namespace
}  // namespace gc3::core
