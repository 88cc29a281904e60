#include "gc3/base/result.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/base/errors/common.h"

namespace gc3 {
namespace {

Status failed(std::string_view why) { return Diagnostic(ErrorCode::BadArgument, why); }
Result<std::string> passed_on(const Status& status) {
  GC3_CHECK(status);
  return std::string("fine");
}

TEST_CASE("a copy of a status has a diagnostic of its own") {
  Status first = failed("first");
  Status copy = first;
  copy.error().note("of the copy");
  CHECK(first.error().notes.empty());
  CHECK(copy.error().notes.size() == 1);
  Status& self = first;
  first = self;
  CHECK(first.error().message == "first");
  first = Status();
  CHECK(first.ok());
  first = std::move(copy);
  CHECK(first.error().notes.size() == 1);
}

TEST_CASE("a problem is passed on, and what it is of keeps it") {
  const Status status = failed("why");
  const Result<std::string> result = passed_on(status);
  REQUIRE(!result.ok());
  CHECK(result.error().message == "why");
  CHECK(status.error().message == "why");
  CHECK(passed_on(Status()).value() == "fine");
}

}  // namespace
}  // namespace gc3
