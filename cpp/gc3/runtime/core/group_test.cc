#include "gc3/runtime/core/group.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <memory>
#include <string>

namespace gc3::core {
namespace {

constexpr double kTimeout = 50;  // seconds that no test waits for

// The group of a job of this process alone.
std::unique_ptr<Group> alone() {
  Meeting meeting;
  meeting.job = "group test " + std::to_string(getpid());
  auto made = Group::world(meeting, {kTimeout, false, false});
  REQUIRE(made.ok());
  return std::move(made.value());
}

TEST_CASE("a call is given up once it has not moved for the time that was set, and not before") {
  const auto group = alone();
  REQUIRE(group->begin({CallKind::barrier}).ok());
  CHECK(group->look_after(0, {}).ok());
  CHECK(group->look_after(kTimeout - 0.001, {}).ok());
  const Status late = group->look_after(kTimeout + 0.001, {});
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == ErrorCode::Timeout);
  CHECK(late.error().message.find("has not moved for 50 s") != std::string::npos);
  CHECK(group->look_after(0, {}).error().code == ErrorCode::Timeout);  // and stays so
  CHECK_FALSE(group->begin({CallKind::barrier}).ok());
}

TEST_CASE("a call whose user interrupts it is given up at once") {
  const auto group = alone();
  REQUIRE(group->begin({CallKind::barrier}).ok());
  CHECK(group->look_after(0, [] { return false; }).ok());
  const Status ended = group->look_after(0, [] { return true; });
  REQUIRE_FALSE(ended.ok());
  CHECK(ended.error().code == ErrorCode::Aborted);
}

}  // namespace
}  // namespace gc3::core
