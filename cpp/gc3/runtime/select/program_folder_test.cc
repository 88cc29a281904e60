#include "gc3/runtime/select/program_folder.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "gc3/base/errors/files.h"
#include "gc3/base/errors/runtime.h"

namespace gc3::select {
namespace {

Result<std::vector<Row>> read(const std::string& text) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "gc3_program_folder_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "index") << text;
  auto entries = read_program_folder(folder);
  std::filesystem::remove_all(folder);
  return entries;
}

TEST_CASE("entries serve the calls that they name") {
  const auto entries = read(
      "gc3-programs-1\nallreduce 4 100 2000 1 0 8 4096 a.gc3\n"
      "broadcast 4 0 - 0 3 0 0 b.gc3 read_moved=never spins=7\n");
  REQUIRE(entries.ok());
  CHECK(entries.value()[0].recipe->thresholds.empty());
  CHECK(entries.value()[1].recipe->thresholds.values ==
        decltype(ThresholdChanges::values){Thresholds::kNever, {}, {}, {}, 7});
  REQUIRE(entries.value().size() == 2);
  const Row& first = entries.value()[0];
  CHECK(first.recipe->slots == 8);
  CHECK(first.recipe->slot_bytes == 4096);
  CHECK(first.recipe->text.ends_with("/a.gc3"));
  const auto kind = model::CollectiveKind::allreduce;
  CHECK(first.serves({kind, 4, 100, true, 0}));
  CHECK_FALSE(first.serves({kind, 4, 99, true, 0}));
  CHECK_FALSE(first.serves({kind, 4, 2000, true, 0}));
  CHECK_FALSE(first.serves({kind, 3, 100, true, 0}));
  CHECK_FALSE(first.serves({kind, 4, 100, false, 0}));
  CHECK(entries.value()[1].serves({model::CollectiveKind::broadcast, 4, std::uint64_t{1} << 40U, false, 3}));
  CHECK_FALSE(entries.value()[1].serves({model::CollectiveKind::broadcast, 4, 0, false, 0}));
}

TEST_CASE("an index is read as it was written") {
  const std::string text =
      "gc3-programs-1\nallreduce 4 100 2000 1 0 8 4096 a.gc3\n"
      "broadcast 4 0 - 0 3 0 0 b.gc3 read_moved=never spins=7\n";
  const auto rows = read(text);
  REQUIRE(rows.ok());
  CHECK(program_folder_index({{rows.value()[0], 4, true, 0, "a.gc3"}, {rows.value()[1], 4, false, 3, "b.gc3"}}) ==
        text);
}

TEST_CASE("each limit of a row is read as it was written") {
  const auto plain = read("gc3-programs-1\nalltoall 4 0 - 0 0 0 0 a.gc3\n");
  REQUIRE(plain.ok());
  const auto digest = [](const Row& row) {
    Sha256 all;
    row.add_to(all);
    return all.finish();
  };
  for (const auto& limit : std::vector<std::function<void(Row&)>>{
           [](Row&) {}, [](Row& row) { row.limits.nodes.last = 1; }, [](Row& row) { row.limits.nodes.first = 3; },
           [](Row& row) { row.limits.ranks_per_node = Counts{4}; },
           [](Row& row) { row.limits.ranks_per_node = Counts{4, 4}; },
           [](Row& row) { row.limits.transport = TransportKind::ucx; }, [](Row& row) { row.limits.skew.first = 2; },
           [](Row& row) { row.limits.skew.last = 1.0 / 3 + 1; }, [](Row& row) { row.adapt = false; },
           [](Row& row) { row.adapt = true; }, [](Row& row) { row.limits.size.first = 7; }}) {
    Row row = plain.value()[0];
    limit(row);
    const auto again = read(program_folder_index({{row, 4, false, 0, "a.gc3"}}));
    REQUIRE(again.ok());
    CHECK(digest(again.value()[0]) == digest(row));
  }
}

TEST_CASE("no folder has no entries, and one without an index is an error") {
  CHECK(read_program_folder("").value().empty());
  CHECK(read_program_folder("/no/such/folder").error().code == ErrorCode::FileUnreadable);
}

TEST_CASE("an invalid index is refused, with the line") {
  CHECK(read("other\n").error().code == ErrorCode::BadTable);
  for (const char* line : {"gossip 4 0 - 0 0 0 0 a.gc3",
                           "allreduce 4 0 - 0 0 0 0",
                           "allreduce 4 0 x 0 0 0 0 a.gc3",
                           "allreduce 4 0 - 0 0 0 0 a.gc3 more",
                           "allreduce 4 0 - 0 0 0 0 a.gc3 spins=-1",
                           "allreduce 4 0 - 0 0 0 0 a.gc3 spin=1",
                           "allreduce 4 0 - 0 0 0 0 ../a.gc3",
                           "",
                           "allreduce -1 0 - 0 0 0 0 a.gc3",
                           "allreduce 4 -1 - 0 0 0 0 a.gc3",
                           "allreduce 4 0 -1 0 0 0 0 a.gc3",
                           "allreduce 4 0 - 0 0 -1 0 a.gc3",
                           "alltoall 4 0 - 0 0 0 0 a.gc3 skew=2",
                           "alltoall 4 0 - 0 0 0 0 a.gc3 skew=nan:-",
                           "alltoall 4 0 - 0 0 0 0 a.gc3 skew=0.5:-",
                           "alltoall 4 0 - 0 0 0 0 a.gc3 nodes=3:2",
                           "alltoall 4 0 - 0 0 0 0 a.gc3 adapt=2",
                           "alltoall 4 0 - 0 0 0 0 a.gc3 transport=",
                           "allreduce 0 0 - 0 0 0 0 a.gc3",
                           "allreduce 4 9 8 0 0 0 0 a.gc3"}) {
    const auto entries = read(std::string("gc3-programs-1\n") + line + "\n");
    REQUIRE_FALSE(entries.ok());
    CHECK(entries.error().code == ErrorCode::BadTable);
    CHECK(entries.error().message.find("line 2") != std::string::npos);
  }
}

}  // namespace
}  // namespace gc3::select
