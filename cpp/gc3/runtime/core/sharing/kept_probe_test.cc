#include "gc3/runtime/core/sharing/kept_probe.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "gc3/base/test_folder.h"

namespace gc3::core {
namespace {

namespace fs = std::filesystem;
using gc3::testing::Folder;

void put(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

ProbeText example(std::uint32_t ranks = 2) {
  ProbeText probe;
  probe.conditions = ProbeConditions::here(4, ranks);
  probe.measured = 1'000'000'000;
  probe.thresholds.values = {8192, Thresholds::kNever, 32768, 131072, 1234};
  for (std::uint32_t i = 0; i < probe.times.size(); ++i) probe.times[i] = {i + 1, i + 2, i + 3};
  return probe;
}

TEST_CASE("what is kept is read again, for the same conditions only") {
  const Folder folder;
  const std::string place = folder.path() + "/new/folders";
  const ProbeText probe = example();
  CHECK(keep(place, probe).empty());
  CHECK(keep(place, probe).empty());  // replaces it
  CHECK(std::distance(fs::directory_iterator(place), {}) == 1);
  const KeptProbe read = read_kept(place, probe.conditions);
  CHECK(read.problem.empty());
  REQUIRE(read.found);
  CHECK(read.found->conditions == probe.conditions);
  CHECK(read.found->measured == probe.measured);
  CHECK(read.found->thresholds == probe.thresholds);
  CHECK(read.found->times == probe.times);
  for (auto change : {+[](ProbeConditions& c) { c.kernel += "1"; }, +[](ProbeConditions& c) { c.cpu += "1"; },
                      +[](ProbeConditions& c) { ++c.cores; }, +[](ProbeConditions& c) { c.version += "1"; },
                      +[](ProbeConditions& c) { ++c.ranks; }}) {
    ProbeConditions other = probe.conditions;
    change(other);
    CHECK(other.file_name() != probe.conditions.file_name());
    CHECK(!read_kept(place, other).found);
    // Even under the right name.
    fs::copy_file(place + "/" + probe.conditions.file_name(), place + "/" + other.file_name(),
                  fs::copy_options::overwrite_existing);
    const KeptProbe renamed = read_kept(place, other);
    CHECK(!renamed.found);
    CHECK(renamed.problem.find("holds for '2 ranks on 4 cores of ") != std::string::npos);
  }
}

TEST_CASE("a file that is damaged, hostile or not this user's is not used, with the reason") {
  const Folder folder;
  const ProbeText probe = example();
  const std::string path = folder.path() + "/" + probe.conditions.file_name();
  const auto problem = [&] {
    const KeptProbe read = read_kept(folder.path(), probe.conditions);
    CHECK(!read.found);
    return read.problem;
  };
  CHECK(problem().empty());  // there is none
  const std::string good = probe.write();
  const auto refused = [&](const std::string& text, const std::string& why, mode_t mode = 0600) {
    put(path, text, mode);
    const std::string said = problem();
    INFO(said);
    CHECK(said.find(why) != std::string::npos);
    CHECK(said.ends_with("; ignored"));
  };
  refused("", "line 1: expected gc3-probe-1");
  refused("{}", "line 1: expected gc3-probe-1");
  refused(std::string(100'000, 'x'), "has more than 4096 bytes");
  refused(good + "spins 1234\n", "'spins' is there twice");
  refused(good + "spin 1\n", "there is no threshold 'spin'");
  refused(good + "nothing\n", "is not a name and a value");
  refused(good + "ns 8193 1 1 1\n", "there is no size 8193");
  refused(good.substr(0, good.find("spins")), "a threshold is missing");
  refused("gc3-probe-1\nspins 99999999999999999999\n", "not a number");
  refused("gc3-probe-1\nspins 1000001\n", "not a number from 0 to 1000000");
  refused("gc3-probe-1\nread_moved -1\n", "not a number");
  refused("gc3-probe-1\nranks 4294967296\n", "is not a number");
  refused("gc3-probe-1\nns 8192 1 2\n", "expected four numbers");
  refused("gc3-probe-1\nns 8192 1 2 4294967296\n", "is not a number");
  refused("gc3-probe-1\ncpu " + std::string(129, 'x') + "\n", "expected 1 to 128 characters");
  refused(good, "is open to other users", 0666);
  // Every cut of a good file is refused, or gives the same values.
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto parsed = ProbeText::parse(good.substr(0, size));
    if (parsed.ok()) CHECK(parsed.value().conditions.ranks < 5);
  }
  fs::remove(path);
  fs::create_directory(path);
  CHECK(problem().find("is no ordinary file") != std::string::npos);
  fs::remove(path);
  CHECK(mkfifo(path.c_str(), 0600) == 0);
  CHECK(problem().find("is no ordinary file") != std::string::npos);
  fs::remove(path);
  if (geteuid() == 0) {
    put(path, good);
    CHECK(chown(path.c_str(), 12345, 12345) == 0);
    CHECK(problem().find("belongs to user 12345") != std::string::npos);
  }
}

TEST_CASE("what cannot be kept is said, and nothing else is written") {
  const Folder folder;
  put(folder.path() + "/file", "");
  CHECK(keep(folder.path() + "/file", example()).find("Not a directory") != std::string::npos);
  CHECK(keep("/dev/null/cache", example()).find("Not a directory") != std::string::npos);
  CHECK(fs::file_size(folder.path() + "/file") == 0);
}

// Processes of several containers, which share a home and have the same number, are not told apart by it.
TEST_CASE("several write the same measurements, and readers see them whole") {
  const Folder folder;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&] {
        for (int round = 0; round < 100; ++round) {
          if (!keep(folder.path(), example()).empty()) ++wrong;
          if (!read_kept(folder.path(), example().conditions).problem.empty()) ++wrong;
        }
      });
    }
  }
  CHECK(wrong == 0);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("the environment says where thresholds are from") {
  const Folder folder;
  const std::string file = folder.path() + "/mine";
  CHECK(ProbeWish::from("1", folder.path()).value().mode == ProbeWish::Mode::measure);
  CHECK(ProbeWish::from("1", folder.path()).value().folder == folder.path());
  CHECK(ProbeWish::from("1", "off").value().folder.empty());
  CHECK(ProbeWish::from("1", "").value().folder.ends_with("/.cache/gc3"));
  CHECK(ProbeWish::from("0", "off").value().mode == ProbeWish::Mode::assume);
  CHECK(ProbeWish::from("anew", "off").value().mode == ProbeWish::Mode::anew);
  put(file, "gc3-probe-1\nspins 7\n");
  const ProbeWish given = ProbeWish::from(file, "off").value();
  CHECK(given.mode == ProbeWish::Mode::given);
  CHECK(given.given.applied_to({}).spins == 7);
  CHECK(given.given.applied_to({}).moved == Thresholds::kNever);
  put(file, "gc3-probe-1\nspins many\n");
  const auto bad = ProbeWish::from(file, "off");
  REQUIRE(!bad.ok());
  CHECK(bad.error().message == "GC3_PROBE='" + file + "' in the environment: line 2: spins is 'many', not a number");
  const auto none = ProbeWish::from(file + "2", "off");
  REQUIRE(!none.ok());
  CHECK(none.error().message.ends_with("No such file or directory; expected 0, 1, anew or a file of thresholds"));
}

TEST_CASE("kept files are listed, with the reasons where they are not used") {
  const Folder folder;
  CHECK(list_kept(folder.path() + "/none").empty());
  CHECK(keep(folder.path(), example()).empty());
  ProbeText other = example(3);
  other.conditions.kernel = "\x1b[31m";
  put(folder.path() + "/probe-z-1.txt", other.write());
  put(folder.path() + "/probe-z-2.txt", "?");
  put(folder.path() + "/other.txt", "?");
  const std::vector<std::string> lines = list_kept(folder.path());
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].find("measured 2001-09-09 01:46 UTC: read_moved 8192, read_combined never, ") != std::string::npos);
  CHECK(lines[1].find("(does not hold here)") != std::string::npos);
  CHECK(lines[1].find('\x1b') == std::string::npos);
  CHECK(lines[2].ends_with("is damaged: line 1: expected gc3-probe-1; ignored"));
}

TEST_CASE("kept measurements of a build with a sanitizer hold only for such builds") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  const bool sanitized = true;
#else
  const bool sanitized = false;
#endif
  CHECK(ProbeConditions::here(2, 2).version.ends_with("-sanitized") == sanitized);
}

}  // namespace
}  // namespace gc3::core
