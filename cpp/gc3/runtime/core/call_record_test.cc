#include "gc3/runtime/core/call_record.h"

#include <doctest/doctest.h>

#include <set>
#include <vector>

namespace gc3::core {
namespace {

using model::CollectiveKind;

CallRecord reduce() {
  return {CallKind::collective,    CollectiveKind::reduce, model::DataType::float16, model::ReduceOp::max, true, 3,
          std::uint64_t{1} << 40U, 0x12345678'00000000U};
}

TEST_CASE("call records: two different calls have different words") {
  std::vector<CallRecord> calls(6, reduce());
  calls[1].kind = CallKind::load;
  calls[2].collective = CollectiveKind::broadcast;
  calls[3].type = model::DataType::int8;
  calls[4].op = model::ReduceOp::min;
  calls[5].in_place = false;
  for (std::uint32_t root = 0; root < 3; ++root) {
    calls.push_back(reduce());
    calls.back().root = root;
  }
  calls.push_back(reduce());
  calls.back().root = 0xffffffffU;
  std::set<std::uint64_t> words;
  for (const CallRecord& c : calls) words.insert(c.packed());
  CHECK(words.size() == calls.size());
}

TEST_CASE("call records: unpacking gives the packed record") {
  for (const bool in_place : {false, true}) {
    for (const std::uint32_t root : {0U, 1U, 0xffffffffU}) {
      CallRecord given = reduce();
      given.in_place = in_place;
      given.root = root;
      const CallRecord back = CallRecord::unpack(given.packed(), given.count, given.program);
      CHECK(back.kind == given.kind);
      CHECK(back.collective == given.collective);
      CHECK(back.type == given.type);
      CHECK(back.op == given.op);
      CHECK(back.in_place == in_place);
      CHECK(back.root == root);
      CHECK(back.count == given.count);
      CHECK(back.program == given.program);
    }
  }
}

TEST_CASE("call records: the text of a call has exactly the properties that can differ") {
  CHECK(reduce().describe() == "reduce of 1099511627776 float16 (max), root 3, in place, program 12345678");
  const auto told = [](CollectiveKind kind) {
    CallRecord record;
    record.collective = kind;
    record.root = 2;
    record.count = 7;
    return record.describe();
  };
  CHECK(told(CollectiveKind::allreduce) == "allreduce of 7 float32 (sum), out of place, program 00000000");
  CHECK(told(CollectiveKind::alltoall) == "alltoall of 7 float32, out of place, program 00000000");
  for (const CollectiveKind kind :
       {CollectiveKind::broadcast, CollectiveKind::reduce, CollectiveKind::gather, CollectiveKind::scatter}) {
    CHECK(told(kind).find(", root 2, ") != std::string::npos);
  }
  CallRecord load = reduce();
  load.kind = CallKind::load;
  CHECK(load.describe() == "load of a program for reduce, root 3, in place, program 12345678");
  load.kind = CallKind::barrier;
  CHECK(load.describe() == "barrier");
  load.kind = CallKind::split;
  CHECK(load.describe() == "split");
}

}  // namespace
}  // namespace gc3::core
