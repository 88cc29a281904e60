#include "gc3/runtime/core/waiting/progress.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"

namespace gc3::core {
namespace {

using std::chrono::milliseconds;

TEST_CASE("progress: calls run one after the other, in the order in which they were started") {
  std::vector<int> order;
  Progress progress;
  std::vector<std::shared_future<Status>> done;
  for (int i = 0; i < 100; ++i) {
    done.push_back(progress
                       .start([&order, i] {
                         order.push_back(i);
                         return i == 50 ? Status(Diagnostic(ErrorCode::BadArgument, "the 51st")) : Status();
                       })
                       .value());
  }
  for (int i = 0; i < 100; ++i) CHECK(done[static_cast<std::size_t>(i)].get().ok() == (i != 50));
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("progress: a call that throws has failed, and those after it are made") {
  Progress progress;
  const auto no_memory = progress.start([]() -> Status { throw std::bad_alloc(); }).value();
  const auto other = progress.start([]() -> Status { throw std::logic_error("of some kind"); }).value();
  const auto after = progress.start([] { return Status(); }).value();
  CHECK(no_memory.get().error().code == ErrorCode::OutOfMemory);
  CHECK(other.get().error().message == "of some kind");
  CHECK(after.get().ok());
}

TEST_CASE("progress: it is busy until the last call is done") {
  Progress progress;
  CHECK_FALSE(progress.busy());
  std::promise<void> go;
  const auto first = progress
                         .start([&] {
                           go.get_future().wait();
                           return Status();
                         })
                         .value();
  const auto second = progress.start([] { return Status(); }).value();
  CHECK(progress.busy());
  go.set_value();
  CHECK(second.get().ok());
  CHECK_FALSE(progress.busy());
}

TEST_CASE("progress: the resources of a call are released before anyone is notified") {
  Progress progress;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  const auto done = progress.start([kept = std::move(held)] { return Status(); }).value();
  CHECK(done.get().ok());
  CHECK(watched.expired());
}

TEST_CASE("progress: its destructor runs the calls that were started") {
  std::atomic<int> made = 0;
  std::vector<std::shared_future<Status>> done;
  {
    Progress progress;
    std::promise<void> under_way;
    done.push_back(progress
                       .start([&] {
                         under_way.set_value();
                         std::this_thread::sleep_for(milliseconds(50));  // by then the destructor has begun
                         ++made;
                         return Status();
                       })
                       .value());
    for (int i = 0; i < 9; ++i) {
      done.push_back(progress
                         .start([&] {
                           ++made;
                           return Status();
                         })
                         .value());
    }
    under_way.get_future().wait();
  }
  CHECK(made == 10);
  for (const auto& call : done) CHECK(call.get().ok());
}

}  // namespace
}  // namespace gc3::core
