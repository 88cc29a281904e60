// What a call is made of, from its operands alone.
#include "gc3/comm/operand.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "gc3/base/errors/common.h"

namespace gc3::comm {
namespace {

using model::Buffer;
using model::Collective;
using model::CollectiveKind;

std::array<std::uint8_t, 64> shared{};

Operand floats(std::size_t first, std::size_t elements) { return {&shared[4 * first], elements}; }

std::string refusal(const Signature& asks, const Operand& given, const Operand& result) {
  Call call;
  const Result<bool> made = complete(call, asks, &given, &result);
  REQUIRE(!made.ok());
  CHECK(made.error().code == ErrorCode::BadBuffer);
  return made.error().message;
}

TEST_CASE("a call has the elements, the type and the places of its operands") {
  const Signature gathers{1, 4, 4, Collective::Alias{Buffer::input, 1}};
  const Operand given = floats(0, 2);
  const Operand result = floats(2, 8);
  Call call;
  CHECK(!complete(call, gathers, &given, &result).value());
  CHECK(call.count == 2);
  CHECK(call.input == given.address);
  CHECK(call.output == result.address);
  CHECK(!complete(call, {0, 4, 4, {}}, nullptr, &result).value());
  CHECK(call.count == 2);
  CHECK(call.input == nullptr);

  Operand pairs = given;  // of 3 bytes, which are moved
  pairs.type = model::DataType::uint8;
  pairs.units = 3;
  pairs.known = false;
  CHECK(!complete(call, {1, 0, 4, {}}, &pairs, nullptr).value());
  CHECK(call.count == 6);
  CHECK(call.type == model::DataType::uint8);
}

TEST_CASE("operands that do not fit each other are refused") {
  const Signature gathers{1, 4, 4, Collective::Alias{Buffer::input, 1}};
  CHECK(refusal(gathers, floats(0, 2), floats(2, 7)).find("out has 7 elements, not 8") != std::string::npos);
  Operand away = floats(2, 8);
  away.device = 1;
  CHECK(refusal(gathers, floats(0, 2), away).find("the input is on a device and out is not") != std::string::npos);
  Operand other = floats(0, 2);
  other.device = 0;
  CHECK(refusal(gathers, other, away).find("one array is on device 0, another on 1") != std::string::npos);
}

TEST_CASE("an input is copied where only the root could know that it overlaps the output") {
  const Signature rooted{1, 2, 2, {}};
  Call call;
  call.kind = CollectiveKind::gather;
  Operand given = floats(1, 2);
  Operand result = floats(0, 4);
  CHECK(complete(call, rooted, &given, &result).value());
  given = floats(4, 2);
  CHECK(!complete(call, rooted, &given, &result).value());
  call.output_at = {result.address, result.address + 8};  // lists lie as they lie
  given = floats(1, 2);
  CHECK(!complete(call, rooted, &given, &result).value());

  Call reduces;
  reduces.kind = CollectiveKind::reduce;
  given = result = floats(0, 4);
  CHECK(!complete(reduces, {1, 1, 1, {}}, &given, &result).value());  // the root works on a copy by itself
}

TEST_CASE("a program runs on operands as they are, or after a copy of the input to its place") {
  const auto gather = [](bool in_place) { return Collective::builtin(CollectiveKind::allgather, 2, 1, 0, in_place); };
  const Collective apart = gather(false).value();
  const Operand given = floats(0, 2);
  CHECK(plain_count(apart, 1, given) == 2);
  auto run = plain_run(apart, 1, given, floats(2, 4), model::ReduceOp::sum);
  REQUIRE(run);
  CHECK(run->call.input == given.address);
  CHECK(run->copy_to == nullptr);
  CHECK(!plain_run(apart, 1, given, floats(0, 4), model::ReduceOp::sum));  // they overlap
  CHECK(!plain_run(apart, 1, given, floats(2, 3), model::ReduceOp::sum));

  const Collective inside = gather(true).value();
  run = plain_run(inside, 1, given, floats(2, 4), model::ReduceOp::sum);
  REQUIRE(run);
  CHECK(run->copy_to == floats(4, 1).address);
  run = plain_run(inside, 1, floats(4, 2), floats(2, 4), model::ReduceOp::sum);
  REQUIRE(run);
  CHECK(run->copy_to == nullptr);
  CHECK(!plain_run(inside, 1, floats(3, 2), floats(2, 4), model::ReduceOp::sum));

  Operand bytes = given;
  bytes.known = false;
  CHECK(!plain_count(apart, 1, bytes));
  CHECK(!plain_count(Collective::builtin(CollectiveKind::alltoall, 2, 1, 0, false).value(), 1, floats(0, 3)));
  CHECK(!plain_count(Collective::builtin(CollectiveKind::scatter, 2, 1, 0, false).value(), 1, given));
}

}  // namespace
}  // namespace gc3::comm
