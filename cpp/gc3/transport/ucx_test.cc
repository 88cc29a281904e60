// Messages over UCX, where GC3_UCX names a library or the system has one.
#include "gc3/transport/ucx.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gc3/base/knobs.h"
#include "gc3/transport/test_ends.h"

namespace gc3::transport {
namespace {

using testing::carries;
using testing::Line;
using testing::meet;
using testing::until;

std::shared_ptr<const UcxLibrary> library() {
  auto opened = UcxLibrary::open(UcxLibrary::places(read_knobs().value().ucx));
  if (!opened.ok()) MESSAGE("skipped: ", opened.error().message);
  return opened.ok() ? opened.value() : nullptr;
}

std::unique_ptr<Ucx> end(const std::shared_ptr<const UcxLibrary>& library, std::uint32_t rank,
                         const std::string& secret = "a secret") {
  auto made = Ucx::create(library, rank, "", secret);
  REQUIRE_MESSAGE(made.ok(), made.error().str());
  return std::move(made).value();
}

TEST_CASE("a library that is none is refused, and says which were tried") {
  const auto opened = UcxLibrary::open({"/no/such/libucp.so.0", "libc.so.6"});
  if (opened.ok()) return;  // the process has loaded one
  CHECK(opened.error().message.find("/no/such/libucp.so.0") != std::string::npos);
  CHECK(opened.error().message.find("libc.so.6") != std::string::npos);
}

TEST_CASE("the handlers of signals are the program's") {
  if (library() == nullptr) return;
  struct sigaction found{};
  REQUIRE(sigaction(SIGHUP, nullptr, &found) == 0);
  const bool is_default = found.sa_handler == SIG_DFL;
  CHECK(is_default);
}

TEST_CASE("messages of all lengths arrive over UCX, in both directions and on several connections") {
  const auto ucx = library();
  if (ucx == nullptr) return;
  const auto a = end(ucx, 0);
  const auto b = end(ucx, 1);
  REQUIRE(meet(*a, *b));
  std::vector<std::unique_ptr<Line>> lines;
  for (LinkId link = 0; link < 3; ++link) {
    lines.push_back(link == 1 ? std::make_unique<Line>(*b, 1, *a, 0, link)
                              : std::make_unique<Line>(*a, 0, *b, 1, link));
  }
  CHECK(carries(lines, *a, *b, 200));
  CHECK(until(*a, *b, [&] { return a->idle() && b->idle(); }));
  CHECK(a->failures().empty());
  CHECK(b->failures().empty());
  CHECK(a->describe().find("ucx 1.") == 0);
  CHECK(a->describe().find("/") != std::string::npos);
}

TEST_CASE("a rank without the secret is not heard") {
  const auto ucx = library();
  if (ucx == nullptr) return;
  const auto a = end(ucx, 0);
  const auto b = end(ucx, 1, "another secret");
  REQUIRE(meet(*a, *b));
  Line line(*b, 1, *a, 0, 0);
  const std::vector<std::uint8_t> message(100);
  line.send(message);
  CHECK(until(*a, *b, [n = 0]() mutable { return ++n > 20'000; }));
  CHECK(!line.has_arrived());
  CHECK(a->failures().empty());
}

TEST_CASE("an end that has gone is reported, and one that is abandoned reads nothing any more") {
  const auto ucx = library();
  if (ucx == nullptr) return;
  const auto a = end(ucx, 0);
  auto b = end(ucx, 1);
  REQUIRE(meet(*a, *b));
  std::vector<std::unique_ptr<Line>> lines;
  lines.push_back(std::make_unique<Line>(*a, 0, *b, 1, 0));
  CHECK(carries(lines, *a, *b, 5));
  const std::vector<std::uint8_t> message(100'000);
  lines.front()->send(message);
  a->abandon();
  CHECK(a->idle());
  b.reset();
}

}  // namespace
}  // namespace gc3::transport
