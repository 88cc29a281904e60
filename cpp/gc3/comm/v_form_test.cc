// Counts that ranks know in part, and buffers of calls whose blocks have lengths of their own.
#include "gc3/comm/v_form.h"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3::comm {
namespace {

using model::Buffer;
using model::Collective;
using model::CollectiveKind;
using model::DataType;
using Rows = std::vector<std::uint64_t>;

Collective collective_of(CollectiveKind kind) { return Collective::builtin(kind, 2, 1, 0, false).value(); }

// What two ranks find together.
Result<VCounts> together(CollectiveKind kind, const VKnown& first, const VKnown& second) {
  Rows words = words_of(first, 2);
  const Rows more = words_of(second, 2);
  words.insert(words.end(), more.begin(), more.end());
  return merge(collective_of(kind), DataType::float32, words);
}

VKnown known(std::uint64_t row, std::optional<Rows> input, std::optional<Rows> output,
             std::optional<std::uint64_t> room = {}) {
  return {CollectiveKind::alltoall,
          DataType::float32,
          model::ReduceOp::sum,
          0,
          row,
          std::move(input),
          std::move(output),
          room};
}

TEST_CASE("what each rank sends gives all counts") {
  const auto all = together(CollectiveKind::alltoall, known(3, Rows{1, 2}, {}), known(3, Rows{3, 4}, Rows{2, 4}, 6));
  REQUIRE(all.ok());
  CHECK(all.value().counts == Rows{1, 2, 3, 4});
  CHECK(all.value().row == 3);
}

TEST_CASE("ranks that disagree are both named") {
  const auto refusal = [](const VKnown& first, const VKnown& second) {
    const auto all = together(CollectiveKind::alltoall, first, second);
    REQUIRE(!all.ok());
    CHECK(all.error().code == ErrorCode::CountsDiffer);
    return all.error().str();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(refusal(known(1, Rows{1, 2}, {}), known(1, Rows{3, 4}, Rows{5, 4})),
            "the block from rank 0 to rank 1 has 2 rows for rank 0, and 5 for rank 1"));
  CHECK(has(refusal(known(1, Rows{1, 2}, {}), known(2, Rows{3, 4}, {})), "rank 0 has rows of 1 elements, rank 1 of 2"));
  CHECK(has(refusal(known(1, Rows{1, 2}, {}), known(1, {}, {})), "no rank says how many rows the block from rank 1"));
  CHECK(has(refusal(known(1, Rows{1, 2}, {}, 9), known(1, Rows{3, 4}, {})), "the out of rank 0 has 9 rows; it gets 4"));
}

// What rank 0 of two knows from its arguments, of a row of one element.
Result<VKnown> from(CollectiveKind kind, std::optional<VGiven> given, const VBuffer* input,
                    const VBuffer* output = nullptr, std::optional<VGiven> expected = {}) {
  VKnown known;
  known.kind = kind;
  known.row = 1;
  return known_of(known, 2, 0, given, expected, input, output);
}

TEST_CASE("what a rank knows of the counts is what its caller gives, and what its arrays say") {
  const VBuffer array{{nullptr}, {3}};
  const VBuffer list{{nullptr, nullptr}, {1, 2}, true};
  VKnown known = from(CollectiveKind::alltoall, VGiven{{{1, 2}}}, &array).value();
  CHECK(known.input == Rows{1, 2});
  CHECK(!known.all);
  known = from(CollectiveKind::alltoall, VGiven{{{1, 2}, {3, 4}}, true}, &array, &list, VGiven{{{1, 2}}}).value();
  CHECK(known.all == Rows{1, 2, 3, 4});
  CHECK(known.output == Rows{1, 2});
  CHECK(from(CollectiveKind::alltoall, {}, &list, &array).value().input == Rows{1, 2});
  CHECK(from(CollectiveKind::alltoall, {}, &list, &array).value().room == 3);
  CHECK(from(CollectiveKind::allgather, {}, &array).value().input == Rows{3});
  CHECK(from(CollectiveKind::allgather, VGiven{{{3, 9}}}, &array).value().all == Rows{3, 9});
  CHECK(from(CollectiveKind::reducescatter, {}, &list).value().all == Rows{1, 2});
  CHECK(from(CollectiveKind::scatter, VGiven{{{2, 1}}}, &array).value().input == Rows{2, 1});
}

TEST_CASE("counts that do not fit the arrays are refused") {
  const VBuffer array{{nullptr}, {3}};
  const VBuffer list{{nullptr, nullptr}, {1, 2}, true};
  const auto refusal = [](const Result<VKnown>& known) {
    REQUIRE(!known.ok());
    CHECK(known.error().code == ErrorCode::BadBuffer);
    return known.error().message;
  };
  const auto of_all = [&](std::optional<VGiven> given, const VBuffer& input) {
    return refusal(from(CollectiveKind::alltoall, std::move(given), &input));
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(of_all({}, array), "give send_counts, or x as a list of an array for each rank"));
  CHECK(has(of_all(VGiven{{{1}}}, array), "send_counts has 1 numbers for 2 ranks"));
  CHECK(has(of_all(VGiven{{{1, 2}, {3, 4}, {5, 6}}, true}, array), "send_counts has 3 rows for 2 ranks"));
  CHECK(has(of_all(VGiven{{{1}, {3}}, true}, array), "a row of send_counts has 1 numbers"));
  CHECK(has(of_all(VGiven{{{1, 1}}}, array), "an array of 3 rows for counts of 2 together"));
  CHECK(has(of_all(VGiven{{{2, 1}}}, list), "arrays of [1, 2] rows for counts of [2, 1]"));
  CHECK(has(of_all(VGiven{{{4, ~std::uint64_t{0}}}}, array), "an array of 3 rows"));  // no sum overflows
  CHECK(has(refusal(from(CollectiveKind::allgather, VGiven{{{1, 2}, {3, 4}}, true}, &array)), "counts has lists"));
  CHECK(has(refusal(from(CollectiveKind::alltoall, {}, &list, &list, VGiven{{{2, 1}}})), "for counts of [2, 1]"));
}

TEST_CASE("a call has its blocks where the arrays have them") {
  std::array<float, 8> memory{};
  auto* const at = reinterpret_cast<std::uint8_t*>(memory.data());
  const Collective gather = collective_of(CollectiveKind::allgather);
  VCall call{CollectiveKind::allgather};
  const VBuffer nothing{{at + 8}, {0}};  // between the parts of the output: it is the second one
  const VBuffer output{{at}, {2}};
  const VCounts counts{{2, 0}, 2};
  CHECK(complete(call, gather, 1, {}, counts, &nothing, &output).ok());
  CHECK(call.counts == Rows{4, 0});
  CHECK(call.output == std::vector<std::uint8_t*>{at, at + 16});
  CHECK(call.input == std::vector<std::uint8_t*>{at + 16});
  const VBuffer apart{{at + 20, at}, {2, 0}, true};
  CHECK(complete(call, gather, 1, {}, counts, &nothing, &apart).ok());
  CHECK(call.output == apart.at);
  CHECK(call.input == nothing.at);
  VKnown expects;
  expects.output = Rows{1, 1};
  const Status status = complete(call, gather, 1, expects, counts, &nothing, &output);
  REQUIRE(!status.ok());
  CHECK(status.error().message.find("recv_counts are [1, 1], the others send [2, 0]") != std::string::npos);
  CHECK(!complete(call, gather, 1, {}, counts, &output, &output).ok());
}

TEST_CASE("counts that no memory holds are refused") {
  const Collective gather = collective_of(CollectiveKind::allgather);
  CHECK(check_counts(gather, DataType::uint8, {1, 2}).ok());
  CHECK(check_counts(gather, DataType::uint8, {1}).error().code == ErrorCode::BadBuffer);
  CHECK(check_counts(gather, DataType::uint8, {std::uint64_t{1} << 62U, 1}).error().code == ErrorCode::BadBuffer);
  CHECK(check_counts(gather, DataType::float64, {~std::uint64_t{0}, 1}).error().code == ErrorCode::BadBuffer);
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 61U;
  CHECK(check_counts(gather, DataType::uint8, {kHalf, kHalf}).ok());
  CHECK(check_counts(gather, DataType::uint8, {2 * kHalf, 0}).ok());
  CHECK(check_counts(gather, DataType::uint8, {kHalf, kHalf + 1}).error().code == ErrorCode::BadBuffer);
}

TEST_CASE("rows without elements are as many as others at most, and take no memory") {
  const Collective gather = collective_of(CollectiveKind::allgather);
  CHECK(elements_of(gather, DataType::uint8, {{3, 5}, 0}).value() == Rows{0, 0});
  CHECK(elements_of(gather, DataType::uint8, {{3, 5}, 4}).value() == Rows{12, 20});
  for (const std::uint64_t row : {0, 1, 4}) {
    CHECK(elements_of(gather, DataType::uint8, {{kMostBytes, kMostBytes}, row}).error().code == ErrorCode::BadBuffer);
  }
}

TEST_CASE("whether a call is in place follows from where its blocks are") {
  std::array<std::uint8_t, 16> memory{};
  const Collective gather = collective_of(CollectiveKind::allgather);
  VCall call{CollectiveKind::allgather, {3, 5}, {}, {}, DataType::uint8};
  call.output = consecutive(gather, 1, Buffer::output, call.counts, 1, memory.data());
  CHECK(call.output == std::vector<std::uint8_t*>{memory.data(), memory.data() + 3});
  std::array<std::uint8_t, 5> own{};
  call.input = {own.data()};
  CHECK(!in_place(gather, 1, call).value());
  call.input = {memory.data() + 3};
  CHECK(in_place(gather, 1, call).value());
  call.input = {memory.data() + 1};
  CHECK(in_place(gather, 1, call).error().code == ErrorCode::BadBuffer);
  call.input = {nullptr};
  CHECK(in_place(gather, 1, call).error().code == ErrorCode::BadBuffer);
  call.input = {};
  CHECK(in_place(gather, 1, call).error().code == ErrorCode::BadBuffer);

  const Collective exchange = collective_of(CollectiveKind::alltoall);
  VCall uneven{CollectiveKind::alltoall,
               {1, 2, 3, 4},
               {memory.data(), memory.data() + 1},
               {memory.data(), memory.data() + 1},
               DataType::uint8};
  CHECK(in_place(exchange, 0, uneven).error().str().find("rank 1 sends 3 elements to rank 0, which sends 2") !=
        std::string::npos);
  uneven.counts = {1, 2, 2, 4};
  CHECK(in_place(exchange, 0, uneven).value());
  // Blocks of the output between those of the input, then one that begins a byte too early, and one before all.
  uneven.input = {memory.data(), memory.data() + 8};
  uneven.output = {memory.data() + 1, memory.data() + 10};
  CHECK(!in_place(exchange, 0, uneven).value());
  uneven.output = {memory.data() + 1, memory.data() + 9};
  CHECK(in_place(exchange, 0, uneven).error().str().find("block 1 of the input overlaps block 1 of the output") !=
        std::string::npos);
  uneven.input = {memory.data() + 4, memory.data() + 2};
  uneven.output = {memory.data() + 1, memory.data() + 5};
  CHECK(in_place(exchange, 0, uneven).ok());
  uneven.output = {memory.data() + 1, memory.data() + 3};
  CHECK(in_place(exchange, 0, uneven).error().code == ErrorCode::BadBuffer);
}

}  // namespace
}  // namespace gc3::comm
