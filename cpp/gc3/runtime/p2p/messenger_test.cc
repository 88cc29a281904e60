// Messages arrive whole, once, in order and at the right receive.
#include "gc3/runtime/p2p/messenger.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "gc3/runtime/p2p/test_pairs.h"

namespace gc3::p2p {
namespace {

using testing::Bytes;
using testing::content;
using testing::failed;
using testing::Rank;
using testing::run;
using testing::run_anywhere;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
// Around what is in the first cache line, one record, a message sent unasked, and a piece that is read at a time.
constexpr std::uint64_t kSizes[] = {0,     1,     32,    33,    4096, kPayload,     kPayload + 1,
                                    40000, 65536, 65793, 70001, kMiB, 2 * kMiB + 1, 9 * kMiB};

std::string right(const Bytes& got, std::uint64_t bytes, std::uint64_t seed) {
  const Bytes wanted = content(bytes, seed);
  if (got.size() >= bytes && (bytes == 0 || std::memcmp(got.data(), wanted.data(), bytes) == 0)) return "";
  const auto differs = std::ranges::mismatch(got, wanted).in1;
  return std::to_string(bytes) + " bytes: wrong from byte " + std::to_string(differs - got.begin());
}

std::string every_size(Rank& me) {
  Messenger& messages = *me.messages;
  for (const bool posted : {true, false}) {
    for (const std::uint64_t bytes : kSizes) {
      if (me.rank() == 0) {
        if (posted) GC3_EXPECT_OK(me.barrier());
        const Bytes data = content(bytes, bytes);
        const Operation sends[] = {send_of(data.data(), bytes, 1, 7), send_of(nullptr, 0, 1, 8)};
        GC3_EXPECT_OK(messages.run(sends));
      } else {
        Bytes got(bytes + 5, 0xee);
        if (!posted) GC3_EXPECT_OK(messages.receive(nullptr, 0, 0, 8));  // sent later: the other one is there
        auto started = messages.start(receive_of(got.data(), got.size(), 0, 7));
        GC3_EXPECT_OK(started);
        if (posted) GC3_EXPECT_OK(me.barrier());
        GC3_EXPECT_OK(messages.wait(*started.value()));
        const Envelope& envelope = started.value()->got;
        GC3_EXPECT(envelope.peer == 0 && envelope.tag == 7 && envelope.bytes == bytes, std::to_string(envelope.bytes));
        GC3_EXPECT(right(got, bytes, bytes).empty(), right(got, bytes, bytes));
        GC3_EXPECT(std::all_of(got.end() - 5, got.end(), [](std::uint8_t b) { return b == 0xee; }), "written beyond");
        if (posted) GC3_EXPECT_OK(messages.receive(nullptr, 0, 0, 8));
      }
    }
  }
  return "";
}

// Threads that take the same messages get each of them whole.
std::string whole_by_threads(Rank& me) {
  if (me.rank() == 0) {
    for (const std::uint64_t bytes : kSizes) {
      const Bytes data = content(bytes, bytes);
      GC3_EXPECT_OK(me.messages->send(data.data(), bytes, 1, 3));
    }
    return "";
  }
  std::string wrong[2];
  const auto receive = [&](std::size_t thread) {
    for (std::size_t i = 0; i < std::size(kSizes) / 2; ++i) {
      const Result<Whole> got = me.messages->receive_whole(thread == 0 ? 0 : kAnySource, 3);
      if (!got.ok()) return got.error().str();
      const std::uint64_t bytes = got.value().got.bytes;
      const Bytes is(got.value().data.get(), got.value().data.get() + bytes);
      if (std::string differs = right(is, bytes, bytes); !differs.empty()) return differs;
    }
    return std::string();
  };
  std::thread beside([&] { wrong[1] = receive(1); });
  wrong[0] = receive(0);
  beside.join();
  return wrong[0] + wrong[1];
}

// What a rank waits for while the other one is at the message: a collective, a new group, a message of another group.
using Meet = std::string (*)(Rank& me, Messenger& inner);
constexpr Meet kMeetings[] = {
    [](Rank& me, Messenger&) { return failed(me.barrier()); },
    [](Rank& me, Messenger&) -> std::string {
      const auto made = me.group->subgroup({1, 0}, "", {}, {});
      return made.ok() ? "" : made.error().str();
    },
    [](Rank& me, Messenger& inner) -> std::string {
      std::uint8_t one = 1;
      const Operation half = me.rank() == 0 ? send_of(&one, 1, 1, 0) : receive_of(&one, 1, 0, 0);
      const auto done = inner.run({&half, 1});
      return done.ok() ? "" : done.error().str();
    },
};

TEST_CASE("whoever waits for something else goes on with the messages that it has started") {
  run({2, false, 20}, [](Rank& me) -> std::string {
    const std::uint32_t other = 1 - me.rank();
    const auto pair = me.group->subgroup({0, 1}, "", {}, {});
    GC3_EXPECT(pair.ok(), "a group");
    Messenger inner(*pair.value());
    const Bytes sent = content(3'000'000, 7);
    for (const Meet meet : kMeetings) {
      for (const std::uint32_t starter : {0U, 1U}) {
        for (const bool sends : {true, false}) {
          Bytes got(sent.size());
          const bool starts = me.rank() == starter;
          const bool is_send = sends == starts;
          const Operation mine =
              is_send ? send_of(sent.data(), sent.size(), other, 0) : receive_of(got.data(), got.size(), other, 0);
          std::shared_ptr<Request> started;
          if (starts) {
            auto made = me.messages->start(mine);
            GC3_EXPECT_OK(made);
            started = made.value();
          } else {
            // Comes to the meeting when the message is through, which the starter has to move there.
            GC3_EXPECT_OK(me.messages->run({&mine, 1}));
          }
          const std::string wrong = meet(me, inner);
          GC3_EXPECT(wrong.empty(), wrong);
          if (started) GC3_EXPECT_OK(me.messages->wait(*started));
          GC3_EXPECT(is_send || got == sent, "the message");
        }
      }
    }
    return "";
  });
}

TEST_CASE("messages of every size, received before and after they come, read and copied") {
  run({2, true}, every_size);
  run({2, false}, every_size);
  run({2, true, 30, 2 * kMiB}, every_size);
  run(testing::apart(2, 1), every_size);
  run(testing::apart(2, 1, transport::Fake::Options{1}), every_size);
}

TEST_CASE("messages of any length get the memory that they need, each by one of several threads") {
  run_anywhere(2, whole_by_threads);
}

TEST_CASE("a message in memory that all ranks can read needs no system call") {
  run({2, false}, [](Rank& me) -> std::string {
    const std::shared_ptr<std::uint8_t> shared = me.group->job()->allocate_shared(kMiB).value();
    if (me.rank() == 0) {
      std::ranges::copy(content(kMiB, 5), shared.get());
      GC3_EXPECT_OK(me.messages->send(shared.get(), kMiB, 1, 0));
      return "";
    }
    Bytes got(kMiB);
    GC3_EXPECT_OK(me.messages->receive(got.data(), kMiB, 0, 0));
    return right(got, kMiB, 5);
  });
}

TEST_CASE("where copying is faster, a message is read nevertheless if its sender does something else") {
  run({2, true, 30, Thresholds::kNever}, [](Rank& me) -> std::string {
    for (const std::uint64_t bytes : {kMiB, 9 * kMiB}) {
      const Bytes data = content(bytes, bytes);
      Bytes got(bytes);
      if (me.rank() == 0) {
        const auto sent = me.messages->start(send_of(data.data(), bytes, 1, 0));
        GC3_EXPECT_OK(sent);
        GC3_EXPECT_OK(me.barrier());  // which the other enters with the message
        GC3_EXPECT_OK(me.messages->wait(*sent.value()));
      } else {
        GC3_EXPECT_OK(me.messages->receive(got.data(), bytes, 0, 0));
        GC3_EXPECT_OK(me.barrier());
        GC3_EXPECT(got == data, std::to_string(bytes));
      }
    }
    return "";
  });
}

// Those that it offers at once are asked for, except for the first one; it answers while it waits, or is away.
TEST_CASE("many long messages under way in both directions, to ranks that are there and away") {
  constexpr std::int32_t kMessages = 24;
  const auto bytes_of = [](std::int32_t i) { return std::uint64_t{20'000} << static_cast<unsigned>(i % 8); };
  for (const bool away : {false, true}) {
    run({2, true}, [&](Rank& me) -> std::string {
      const std::uint32_t other = 1 - me.rank();
      std::vector<Bytes> sent, got;
      for (std::int32_t i = 0; i < kMessages; ++i) {
        sent.push_back(content(bytes_of(i), 100 * me.rank() + i));
        got.emplace_back(bytes_of(i));
      }
      std::vector<std::shared_ptr<Request>> all;
      for (std::int32_t i = 0; i < kMessages; ++i) {
        auto started = me.messages->start(send_of(sent[i].data(), sent[i].size(), other, i));
        GC3_EXPECT_OK(started);
        all.push_back(std::move(started).value());
      }
      GC3_EXPECT_OK(me.barrier());
      // Rank 1 looks at nothing until rank 0 has what it has sent.
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(away && me.rank() == 1 ? 300 : 0);
      while (std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      for (std::int32_t i = kMessages - 1; i >= 0; --i) {
        auto started = me.messages->start(receive_of(got[i].data(), got[i].size(), other, i));
        GC3_EXPECT_OK(started);
        all.push_back(std::move(started).value());
      }
      for (const auto& request : all) GC3_EXPECT_OK(me.messages->wait(*request));
      for (std::int32_t i = 0; i < kMessages; ++i) {
        const std::string wrong = right(got[i], bytes_of(i), 100 * other + i);
        GC3_EXPECT(wrong.empty(), wrong);
      }
      return "";
    });
  }
}

TEST_CASE("a sender that has answered and then does something else is not waited for" * doctest::test_suite("waits")) {
  constexpr std::int32_t kMessages = 8;
  constexpr std::uint64_t kBytes = 4 * kMiB;
  // Rank 0 comes back after the time-out of rank 1.
  run({2, true, 2}, [](Rank& me) -> std::string {
    std::vector<Bytes> data;
    std::vector<std::shared_ptr<Request>> all;
    for (std::int32_t i = 0; i < kMessages; ++i) data.push_back(me.rank() == 0 ? content(kBytes, i) : Bytes(kBytes));
    GC3_EXPECT_OK(me.barrier());
    if (me.rank() == 0) {
      for (std::int32_t i = 0; i < kMessages; ++i) {
        auto started = me.messages->start(send_of(data[i].data(), kBytes, 1, i));
        GC3_EXPECT_OK(started);
        all.push_back(std::move(started).value());
      }
      GC3_EXPECT_OK(me.messages->wait(*all[0]));
      std::this_thread::sleep_for(std::chrono::seconds(4));
      for (const auto& request : all) GC3_EXPECT_OK(me.messages->wait(*request));
      return "";
    }
    std::vector<Operation> receives;
    for (std::int32_t i = 0; i < kMessages; ++i) receives.push_back(receive_of(data[i].data(), kBytes, 0, i));
    GC3_EXPECT_OK(me.messages->run(receives));
    for (std::int32_t i = 0; i < kMessages; ++i) {
      const std::string wrong = right(data[i], kBytes, i);
      GC3_EXPECT(wrong.empty(), wrong);
    }
    return "";
  });
}

TEST_CASE("tags and sources choose the message; those of one sender and tag do not overtake") {
  run_anywhere(3, [](Rank& me) -> std::string {
    Messenger& messages = *me.messages;
    if (me.rank() != 0) {
      for (std::uint32_t i = 0; i < 20; ++i) {
        const std::uint32_t value[] = {me.rank(), i};
        // Of one tag short and long messages in turn.
        Bytes data(i % 2 == 0 ? sizeof value : 3 * kMiB);
        std::memcpy(data.data(), value, sizeof value);
        GC3_EXPECT_OK(messages.send(data.data(), data.size(), 0, static_cast<std::int32_t>(i % 4 / 2)));
      }
      return "";
    }
    Bytes got(3 * kMiB);
    const auto next = [&](std::uint32_t source, std::int32_t tag, std::uint32_t number) -> std::string {
      auto envelope = messages.receive(got.data(), got.size(), source, tag);
      GC3_EXPECT_OK(envelope);
      std::uint32_t value[2];
      std::memcpy(value, got.data(), sizeof value);
      GC3_EXPECT(value[0] == envelope.value().peer, std::to_string(value[0]));
      GC3_EXPECT(source == kAnySource || value[0] == source, std::to_string(value[0]));
      GC3_EXPECT(value[1] == number, std::to_string(value[1]) + " not " + std::to_string(number));
      return "";
    };
    // Rank 1 waits in its first long message: only tag 0 can be received before it.
    for (const std::uint32_t i : {0U, 1U, 2U, 3U, 4U}) {
      if (const auto wrong = next(1, static_cast<std::int32_t>(i % 4 / 2), i); !wrong.empty()) return wrong;
    }
    for (std::uint32_t i = 0; i < 20; ++i) {
      if (const auto wrong = next(2, kAnyTag, i); !wrong.empty()) return wrong;
    }
    for (std::uint32_t i = 5; i < 20; ++i) {
      if (const auto wrong = next(kAnySource, kAnyTag, i); !wrong.empty()) return wrong;
    }
    return "";
  });
}

TEST_CASE("a rank sends itself short and long messages, received before and after") {
  run({1}, [](Rank& me) -> std::string {
    Messenger& messages = *me.messages;
    for (const std::uint64_t bytes : kSizes) {
      Bytes got(bytes);
      const Bytes data = content(bytes, 3);
      const auto sent = messages.start(send_of(data.data(), bytes, 0, 1));
      GC3_EXPECT_OK(sent);
      GC3_EXPECT_OK(messages.receive(got.data(), bytes, kAnySource, 1));
      GC3_EXPECT(right(got, bytes, 3).empty() && sent.value()->is_done(), std::to_string(bytes));
      std::ranges::fill(got, std::uint8_t{0});
      const Operation both[] = {send_of(data.data(), bytes, 0, 2), receive_of(got.data(), bytes, 0, 2)};
      const auto found = messages.run(both);
      GC3_EXPECT_OK(found);
      GC3_EXPECT(right(got, bytes, 3).empty() && found.value()[1].bytes == bytes, std::to_string(bytes));
    }
    return "";
  });
}

// Every rank sends every rank messages of random sizes and tags, starts sends and receives in an order of its own, and
// waits for them in another.
std::string mixed(Rank& me) {
  struct Message {
    std::uint32_t from, to;
    std::int32_t tag;
    std::uint64_t bytes, seed;
  };
  for (std::uint64_t round = 0; round < (testing::kSanitized ? 2 : 6); ++round) {
    std::mt19937_64 agreed(round);
    std::vector<Message> all;
    for (std::uint64_t i = 0; i < 150; ++i) {
      const std::uint64_t most = std::uint64_t{1} << agreed() % 21;
      all.push_back({static_cast<std::uint32_t>(agreed() % me.size()), static_cast<std::uint32_t>(agreed() % me.size()),
                     static_cast<std::int32_t>(agreed() % 3), agreed() % most, i});
    }
    std::mt19937_64 own(100 * round + me.rank());
    struct Open {
      Message message;
      Bytes data;
      std::shared_ptr<Request> request;
    };
    std::vector<Open> open;
    // Of one peer and tag in the agreed order; otherwise in any.
    std::map<std::tuple<bool, std::uint32_t, std::int32_t>, std::deque<Message>> queues;
    for (const Message& m : all) {
      if (m.from == me.rank()) queues[{true, m.to, m.tag}].push_back(m);
      if (m.to == me.rank()) queues[{false, m.from, m.tag}].push_back(m);
    }
    while (!queues.empty()) {
      const auto queue = std::next(queues.begin(), static_cast<std::ptrdiff_t>(own() % queues.size()));
      const Message m = queue->second.front();
      const bool sends = std::get<0>(queue->first);
      open.push_back({m, sends ? content(m.bytes, m.seed) : Bytes(m.bytes), {}});
      Bytes& data = open.back().data;
      auto made = me.messages->start(sends ? send_of(data.data(), m.bytes, m.to, m.tag)
                                           : receive_of(data.data(), m.bytes, m.from, m.tag));
      GC3_EXPECT_OK(made);
      open.back().request = made.value();
      queue->second.pop_front();
      if (queue->second.empty()) queues.erase(queue);
    }
    std::ranges::shuffle(open, own);
    for (const Open& o : open) {
      GC3_EXPECT_OK(me.messages->wait(*o.request));
      GC3_EXPECT(right(o.data, o.message.bytes, o.message.seed).empty(),
                 "round " + std::to_string(round) + " message " + std::to_string(o.message.seed));
    }
  }
  return "";
}

TEST_CASE("random messages among all ranks, started in any order") {
  run({4, true}, mixed);
  run({4, false}, mixed);
  run({4, true, 30, Thresholds::kNever}, mixed);
  run(testing::apart(4, 2), mixed);
  run(testing::apart(4, 1, transport::Fake::Options{2}), mixed);
}

TEST_CASE("messages that nobody receives are held within a bound, and all arrive") {
  run_anywhere(2, [](Rank& me) -> std::string {
    // Fewer and longer ones under sanitizers, where 20,000 are 30 s of processor time.
    constexpr std::uint64_t kMessages = testing::kSanitized ? 2'500 : 20'000;
    using Value = std::array<std::uint64_t, testing::kSanitized ? 128 : 1>;
    std::vector<Value> values(kMessages);
    if (me.rank() == 0) {
      std::vector<std::shared_ptr<Request>> sent;
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        values[i].fill(i);
        sent.push_back(
            me.messages->start(send_of(&values[i], sizeof values[i], 1, static_cast<std::int32_t>(i % 2))).value());
      }
      std::uint64_t waiting = 0;
      for (const auto& request : sent) waiting += request->is_done() ? 0 : 1;
      // 1 MiB of them, with 128 bytes each for keeping them, is less than a half.
      GC3_EXPECT(waiting > kMessages / 2, std::to_string(waiting));
      GC3_EXPECT_OK(me.barrier());
      for (const auto& request : sent) GC3_EXPECT_OK(me.messages->wait(*request));
      return "";
    }
    GC3_EXPECT_OK(me.barrier());
    for (const std::uint64_t odd : {1U, 0U}) {
      for (std::uint64_t i = odd; i < kMessages; i += 2) {
        Value got{};
        GC3_EXPECT_OK(me.messages->receive(&got, sizeof got, 0, static_cast<std::int32_t>(odd)));
        GC3_EXPECT(got.front() == i && got.back() == i, std::to_string(got.front()) + " not " + std::to_string(i));
      }
    }
    return "";
  });
}

TEST_CASE("threads send and receive beside each other and beside the calls of the group") {
  run_anywhere(2, [](Rank& me) -> std::string {
    const std::uint32_t other = 1 - me.rank();
    std::vector<std::string> wrong(4);
    std::vector<std::thread> threads;
    for (std::int32_t t = 0; t < 3; ++t) {
      threads.emplace_back([&me, &wrong, other, t] {
        wrong[static_cast<std::size_t>(t)] = [&]() -> std::string {
          for (std::uint64_t i = 0; i < 150; ++i) {
            const std::uint64_t bytes = i % 10 == 0 ? 100'000 : i;
            Bytes got(bytes);
            const Bytes data = content(bytes, i);
            const Operation both[] = {send_of(data.data(), bytes, other, t), receive_of(got.data(), bytes, other, t)};
            GC3_EXPECT_OK(me.messages->run(both));
            GC3_EXPECT(right(got, bytes, i).empty(), std::to_string(i));
          }
          return "";
        }();
      });
    }
    for (int i = 0; i < 100 && wrong[3].empty(); ++i) wrong[3] = testing::failed(me.barrier());
    for (std::thread& thread : threads) thread.join();
    for (const std::string& w : wrong) {
      if (!w.empty()) return w;
    }
    return "";
  });
}

TEST_CASE("a function is called when a request that was started is done") {
  run_anywhere(2, [](Rank& me) -> std::string {
    std::atomic<int> called = 0;
    Bytes data(100'000, 1);
    for (int i = 0; i < 50; ++i) {
      const bool sends = (me.rank() == 0) == (i % 2 == 0);
      const auto size = static_cast<std::uint64_t>(i % 3 == 0 ? 100'000 : i);
      const auto done = [&called, &me](const Request& r) {
        called += r.status().ok() && me.messages->notifies_here() ? 1 : 1000;
      };
      const auto made = me.messages->start(
          sends ? send_of(data.data(), size, 1 - me.rank(), i) : receive_of(data.data(), size, 1 - me.rank(), i), done);
      GC3_EXPECT_OK(made);
      while (called == i) std::this_thread::yield();
    }
    GC3_EXPECT(called == 50, std::to_string(called));
    GC3_EXPECT(!me.messages->notifies_here(), "this thread notifies nobody");
    return "";
  });
}

TEST_CASE("calls of other threads that begin while it closes, and later, do not use the group") {
  run({1}, [](Rank& me) -> std::string {
    std::atomic<int> made = 0;
    const auto call = [&me](std::int32_t tag) -> Status {
      std::uint64_t value = 0;
      const Operation both[] = {receive_of(&value, sizeof value, 0, tag), send_of(&value, sizeof value, 0, tag)};
      if (tag == 0) GC3_CHECK(me.messages->run(both));
      if (tag == 1) GC3_CHECK(me.messages->send(&value, sizeof value, 0, tag));
      if (tag == 2) {
        GC3_ASSIGN(const auto started, me.messages->start(both[1]));
        GC3_CHECK(me.messages->wait(*started));
      }
      if (tag != 0) GC3_CHECK(me.messages->receive(&value, sizeof value, 0, tag));
      return {};
    };
    std::vector<std::string> wrong(3);
    std::vector<std::thread> callers;
    for (std::int32_t tag = 0; tag < 3; ++tag) {
      callers.emplace_back([&, tag] {
        for (int refused = 0; refused < 100; ++made) {
          const Status status = call(tag);
          refused += status.ok() ? 0 : 1;
          if (!status.ok() && status.error().code != ErrorCode::CommunicatorClosed)
            wrong[static_cast<std::size_t>(tag)] = status.error().str();
        }
      });
    }
    while (made < 100) std::this_thread::yield();
    me.messages->close();
    me.group.reset();
    for (std::thread& caller : callers) caller.join();
    return wrong[0] + wrong[1] + wrong[2];
  });
}

}  // namespace
}  // namespace gc3::p2p
