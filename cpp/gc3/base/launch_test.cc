#include "gc3/base/launch.h"

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3 {
namespace {

Result<Launch> launch(const std::map<std::string, std::string>& variables) {
  return read_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("each launcher's variables are understood") {
  const auto script = launch({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  REQUIRE(script.ok());
  CHECK(script.value().rank == 2);
  CHECK(script.value().size == 4);
  CHECK(script.value().job == "MASTER_ADDR=a;MASTER_PORT=1;");
  const auto openmpi =
      launch({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_MCA_ess_base_jobid", "77"}});
  REQUIRE(openmpi.ok());
  CHECK(openmpi.value().rank == 1);
  CHECK(openmpi.value().job == "OMPI_MCA_ess_base_jobid=77;");
  REQUIRE(launch({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}).ok());
  const auto slurm =
      launch({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_JOB_ID", "9"}, {"SLURM_STEP_ID", "0"}});
  REQUIRE(slurm.ok());
  CHECK(slurm.value().size == 6);
  CHECK(slurm.value().job == "SLURM_JOB_ID=9;SLURM_STEP_ID=0;");
}

TEST_CASE("variables set by hand win over the launcher's") {
  const auto both = launch({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  REQUIRE(both.ok());
  CHECK(both.value().rank == 1);
}

TEST_CASE("the names that every host has for itself become one name") {
  for (const char* name : {"localhost", "127.0.0.1", "127.0.1.1", "::1", "[::1]", "ip6-localhost"}) {
    const auto found = launch({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", name}, {"MASTER_PORT", "1"}});
    CHECK_MESSAGE(found.value().job == "MASTER_ADDR=localhost;MASTER_PORT=1;", name);
  }
  for (const char* name : {"127.example.org", "128.0.0.1", "Localhost2", "localhost.example.org"}) {
    const auto found = launch({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", name}, {"MASTER_PORT", "1"}});
    CHECK(found.value().job == "MASTER_ADDR=" + std::string(name) + ";MASTER_PORT=1;");
  }
}

TEST_CASE("invalid variables are refused") {
  CHECK(launch({}).error().code == ErrorCode::NoLauncher);
  CHECK(launch({{"RANK", "1"}}).error().message == "RANK is set and WORLD_SIZE is not");
  CHECK(launch({{"PMI_SIZE", "1"}}).error().message == "PMI_SIZE is set and PMI_RANK is not");
  CHECK(launch({{"RANK", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).ok());
  CHECK(launch({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).error().code == ErrorCode::BadOption);
  CHECK(launch({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).error().code == ErrorCode::BadOption);
}

TEST_CASE("ranks of several hosts know their place on theirs, and where rank 0 is") {
  using Variables = std::map<std::string, std::string>;
  const auto with = [](Variables one, const Variables& more) {
    one.insert(more.begin(), more.end());
    return launch(one);
  };
  const Variables hand{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}};
  auto found = with(hand, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "100"}});
  REQUIRE(found.ok());
  CHECK(found.value().here->rank == 0);
  CHECK(found.value().here->size == 2);
  CHECK(found.value().way == Launch::Way::address);
  CHECK(found.value().address == "node0:101");
  CHECK(with(hand, {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1"}, {"GC3_PORT", "7"}}).value().address == "node0:7");
  CHECK(with(hand, {{"GC3_RENDEZVOUS", "a:5"}, {"MASTER_ADDR", "b"}, {"MASTER_PORT", "1"}}).value().address == "a:5");
  for (const char* const wrong : {"a", "a:", ":5", "a:0", "a:65536", "a:5 ", "5"}) {
    const Result<Launch> bad = with(hand, {{"GC3_RENDEZVOUS", wrong}});
    REQUIRE_FALSE(bad.ok());
    CHECK(bad.error().str().find("GC3_RENDEZVOUS='" + std::string(wrong) + "'") != std::string::npos);
  }
  found = with(hand, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  CHECK(found.value().way == Launch::Way::store);
  CHECK(found.value().store == "b:1");
  CHECK(with(hand, {{"PMI_FD", "9"}}).value().pmi == 9);
  CHECK(with(hand, {{"PMIX_NAMESPACE", "x"}}).value().way == Launch::Way::pmix);
  CHECK(with(hand, {{"PMIX_NAMESPACE", "x"}, {"OMPI_LIBDIR_LOC", "/o/lib"}}).value().pmix_folder == "/o/lib");
  CHECK(with(hand, {{"PMIX_NAMESPACE", "x"}, {"PMIX_PREFIX", "/o"}}).value().pmix_folder == "/o/lib");
  CHECK(with(hand, {}).error().code == ErrorCode::NoLauncher);
  CHECK(with(hand, {{"LOCAL_WORLD_SIZE", "4"}}).error().code == ErrorCode::NoLauncher);  // `hand` wins
  // Without a place, a rank is alone on its host if something says that there are several.
  CHECK(launch({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"GC3_RENDEZVOUS", "a:5"}}).value().here->size == 1);
  CHECK_FALSE(launch({{"RANK", "1"}, {"WORLD_SIZE", "4"}}).value().here);
  CHECK_FALSE(launch({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"GC3_RENDEZVOUS", "a:5"}}).value().here);
  CHECK(launch({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}).error().code == ErrorCode::BadOption);
  const Variables slurm{{"SLURM_PROCID", "6"},
                        {"SLURM_STEP_NUM_TASKS", "7"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_JOB_ID", "123456"},
                        {"SLURM_TASKS_PER_NODE", "2(x3),1"}};
  found = with(slurm, {{"SLURM_NODEID", "3"}, {"SLURM_STEP_NODELIST", "cn[07-09,12]"}});
  CHECK(found.value().here->size == 1);
  CHECK(found.value().address == "cn07:23456");
  found = with(slurm, {{"SLURM_NODEID", "2"}, {"SLURM_STEP_NODELIST", "a,b,c,d"}});
  CHECK(found.value().here->size == 2);
  CHECK(found.value().address == "a:23456");
}

Result<std::optional<Place>> place(std::string_view wish, const std::map<std::string, std::string>& variables,
                                   bool framework = false) {
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return choose_place(wish, environment, framework, {1, 2});
}

TEST_CASE("a process is pinned by its local rank, and not by its rank in the group that is made first") {
  for (const char* wish : {"auto", "1"}) {
    const auto alone = place(wish, {}).value();
    REQUIRE(alone.has_value());
    CHECK(alone->rank == 1);
    CHECK(alone->size == 2);
    for (const auto& [rank, size] : {std::pair{"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                     {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                     {"SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"}}) {
      const auto local = place(wish, {{rank, "5"}, {size, "8"}}).value();
      REQUIRE(local.has_value());
      CHECK(local->rank == 5);
      CHECK(local->size == 8);
    }
    // srun says the number of this node's ranks otherwise than that of all.
    const auto of_node = place(wish, {{"SLURM_LOCALID", "1"},
                                      {"SLURM_STEP_NUM_TASKS", "8"},
                                      {"SLURM_NODEID", "1"},
                                      {"SLURM_TASKS_PER_NODE", "2(x4)"}});
    CHECK(of_node.value()->size == 2);
    CHECK(place(wish, {{"LOCAL_RANK", "5"}}).value()->rank == 1);  // of how many?
  }
  CHECK_FALSE(place("0", {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}).value().has_value());
}

TEST_CASE("a process that a framework owns is pinned only if that was asked for") {
  CHECK_FALSE(place("auto", {{"TORCHELASTIC_RUN_ID", "none"}}).value().has_value());
  CHECK_FALSE(place("auto", {}, true).value().has_value());
  CHECK(place("1", {{"TORCHELASTIC_RUN_ID", "none"}}, true).value().has_value());
}

TEST_CASE("a place that makes no sense is refused") {
  const Result<std::optional<Place>> refused[] = {place("2", {}), place("", {}),
                                                  place("1", {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
                                                  place("auto", {{"LOCAL_RANK", "-1"}, {"LOCAL_WORLD_SIZE", "2"}})};
  for (const auto& found : refused) {
    REQUIRE_FALSE(found.ok());
    CHECK(found.error().code == ErrorCode::BadOption);
  }
  CHECK(place("0", {{"LOCAL_RANK", "x"}, {"LOCAL_WORLD_SIZE", "y"}}).ok());  // not looked at
}

}  // namespace
}  // namespace gc3
