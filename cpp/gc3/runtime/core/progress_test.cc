#include "gc3/runtime/core/progress.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace gc3::core {
namespace {

using std::chrono::milliseconds;

TEST_CASE("progress: calls run one after the other, in the order in which they were started") {
  std::vector<int> order;
  Progress progress;
  std::vector<std::shared_future<Status>> done;
  for (int i = 0; i < 100; ++i) {
    done.push_back(progress.start([&order, i] {
      order.push_back(i);
      return i == 50 ? Status(Diagnostic(ErrorCode::BadArgument, "the 51st")) : Status();
    }));
  }
  for (int i = 0; i < 100; ++i) CHECK(done[static_cast<std::size_t>(i)].get().ok() == (i != 50));
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("progress: a call in turn waits for the one that is under way, and is made at once where there is none") {
  Progress progress;
  std::thread::id where;
  const auto note = [&where] {
    where = std::this_thread::get_id();
    return Status();
  };
  CHECK(progress.in_turn(note).ok());
  CHECK(where == std::this_thread::get_id());

  std::promise<void> under_way;
  std::atomic<bool> overtaken = false;
  std::atomic<bool> over = false;
  const auto first = progress.start([&] {
    under_way.set_value();
    // Whoever does not wait for this call is here soon.
    for (int i = 0; i < 100 && !overtaken; ++i) std::this_thread::sleep_for(milliseconds(1));
    over = true;
    return Status();
  });
  under_way.get_future().wait();
  const Status second = progress.in_turn([&] {
    if (!over) overtaken = true;
    return Status(Diagnostic(ErrorCode::BadArgument, "its own result"));
  });
  CHECK_FALSE(overtaken);
  CHECK(first.get().ok());
  CHECK(second.error().message == "its own result");
}

TEST_CASE("progress: at its end it makes the calls that were started") {
  std::atomic<int> made = 0;
  std::vector<std::shared_future<Status>> done;
  {
    Progress progress;
    std::promise<void> under_way;
    done.push_back(progress.start([&] {
      under_way.set_value();
      std::this_thread::sleep_for(milliseconds(50));  // by then the end has begun
      ++made;
      return Status();
    }));
    for (int i = 0; i < 9; ++i) {
      done.push_back(progress.start([&] {
        ++made;
        return Status();
      }));
    }
    under_way.get_future().wait();
  }
  CHECK(made == 10);
  for (const auto& call : done) CHECK(call.get().ok());
}

}  // namespace
}  // namespace gc3::core
