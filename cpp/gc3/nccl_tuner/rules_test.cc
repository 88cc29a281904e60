#include "gc3/nccl_tuner/rules.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "gc3/base/errors/files.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/nccl_tuner/plugin.h"

namespace gc3::nccl_tuner {
namespace {

std::vector<Rule> parsed(std::string_view text) {
  Result<std::vector<Rule>> found = parse_rules(text, "t.csv");
  REQUIRE_MESSAGE(found.ok(), found.error().str());
  return std::move(found).value();
}

TEST_CASE("rules have the fields of NCCL's example") {
  const auto rules = parsed(
      "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n"
      "# a remark\n\n"
      "allreduce,0,65536,tree,simple,2,1,-1,-1,1\r\n"
      "broadcast, 32769 ,18446744073709551615,ring,ll128,-1,-1,8");
  REQUIRE(rules.size() == 2);
  CHECK(rules[0].function == 4);
  CHECK(rules[0].algorithm == 0);
  CHECK(rules[0].protocol == 2);
  CHECK(serves(rules[0], {4, 65536, 1, 16, 3, 1}));
  CHECK_FALSE(serves(rules[0], {4, 65537, 1, 16, 3, 1}));
  CHECK_FALSE(serves(rules[0], {4, 65536, 2, 16, 3, 1}));
  CHECK_FALSE(serves(rules[0], {4, 65536, 1, 16, 3, 0}));
  CHECK_FALSE(serves(rules[0], {0, 65536, 1, 16, 3, 1}));
  CHECK(serves(rules[1], {0, std::uint64_t{1} << 40, 7, 8, 1, 0}));
  CHECK_FALSE(serves(rules[1], {0, std::uint64_t{1} << 40, 7, 9, 1, 0}));
}

TEST_CASE("a line that is no rule is an error with its number") {
  for (const char* const line :
       {"allreduce,0,1,ring,ll,1,1", "allreduce,0,1,ring,ll,1,1,1,1,1,1", "alltoall,0,1,ring,ll,1,1,1",
        "allreduce,2,1,ring,ll,1,1,1", "allreduce,-1,1,ring,ll,1,1,1", "allreduce,0,1k,ring,ll,1,1,1",
        "allreduce,0,1,star,ll,1,1,1", "allreduce,0,1,ring,LL,1,1,1", "allreduce,0,1,ring,ll,0,1,1",
        "allreduce,0,1,ring,ll,1,-2,1", "allreduce,0,1,ring,ll,1,1,99999999999", ",", "allreduce"}) {
    const auto found = parse_rules(std::string("# first\n") + line + "\n", "t.csv");
    REQUIRE_MESSAGE(!found.ok(), line);
    CHECK(found.error().code == ErrorCode::BadTable);
    CHECK(found.error().message.find("'t.csv' line 2: ") == 0);
  }
  const auto missing = read_rules("/nowhere/t.csv");
  REQUIRE(!missing.ok());
  CHECK(missing.error().code == ErrorCode::FileUnreadable);
}

TEST_CASE("a plugin without a context refuses, and its versions are alike") {
  CHECK((ncclTunerPlugin_v6.base.init == ncclTunerPlugin_v5.init));
  CHECK((ncclTunerPlugin_v6.get_chunk_size == nullptr));
  std::array<float, 21> costs{};
  CHECK(ncclTunerPlugin_v5.get_coll_info(nullptr, 4, 1, 1, reinterpret_cast<float**>(costs.data()), 7, 3, 0, nullptr) !=
        0);
  CHECK(ncclTunerPlugin_v5.finalize(nullptr) == 0);
}

}  // namespace
}  // namespace gc3::nccl_tuner
