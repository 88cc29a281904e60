#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gc3/base/test_folder.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/kept_probe.h"

namespace gc3::core {
namespace {

using gc3::testing::Folder;

// The results on two ranks with these wishes.
struct Seen {
  SingleCopy::Source source = SingleCopy::Source::assumed;
  Thresholds thresholds;
  bool reads = false;
  bool same = false;
};
Seen seen_by_two(const ProbeWish& first, const ProbeWish& second, const std::string& job) {
  Meeting meeting;
  meeting.size = 2;
  meeting.job = "kept probe test of " + std::to_string(getpid()) + job;
  const pid_t other = fork();
  if (other == 0) meeting.rank = 1;
  auto made = Group::world(meeting, {60, false, true, other == 0 ? second : first});
  Seen seen;
  if (made.ok()) {
    const SingleCopy& own = made.value()->single_copy();
    seen = {own.source, own.thresholds, own.reads, false};
    if (made.value()->begin({CallKind::barrier}).ok()) {
      const auto all = made.value()->exchange({static_cast<std::uint64_t>(own.source), own.thresholds.moved,
                                               own.thresholds.combined ^ own.thresholds.halved, own.thresholds.spins},
                                              {});
      seen.same = all.ok() && all.value()[0] == all.value()[1];
      made.value()->finish();
    }
  }
  if (other == 0) _exit(seen.same ? 0 : 1);
  int status = 0;
  CHECK(waitpid(other, &status, 0) == other);
  CHECK(status == 0);
  return seen;
}

TEST_CASE("a job keeps what it measures, and the next one uses it; rank 0's wish counts") {
  using Source = SingleCopy::Source;
  const Folder folder;
  ProbeWish keeps;
  keeps.folder = folder.path();
  const Seen measured = seen_by_two(keeps, false, "a");
  CHECK(measured.same);
  CHECK(measured.source == (measured.reads ? Source::measured : Source::assumed));
  if (!measured.reads) return;  // the system forbids it, and there is nothing to measure
  CHECK(list_kept(folder.path()).size() == 1);
  const Seen kept = seen_by_two(keeps, {}, "b");
  CHECK(kept.same);
  // Beside other load it may seem to have changed.
  const bool anew = kept.source == Source::measured;
  CHECK((anew || (kept.source == Source::kept && kept.thresholds == measured.thresholds)));

  ProbeWish given;
  given.mode = ProbeWish::Mode::given;
  CHECK(given.given.set("spins", std::uint64_t{77}).empty());
  const Seen told = seen_by_two(given, keeps, "c");
  CHECK(told.same);
  CHECK(told.source == Source::given);
  CHECK(told.thresholds.spins == 77);
  CHECK(seen_by_two(false, keeps, "d").source == Source::assumed);

  // A damaged file is replaced.
  const std::string file = std::filesystem::directory_iterator(folder.path())->path();
  std::ofstream(file) << "gc3-probe-1\nread_moved 1\n";
  CHECK(seen_by_two(keeps, {}, "e").source == Source::measured);
  CHECK(seen_by_two(keeps, {}, "f").source != Source::assumed);

  // So is one of a machine that copies quite differently.
  std::ostringstream text;
  std::string line;
  std::ifstream kept_text(file);
  while (std::getline(kept_text, line)) text << (line.starts_with("ns") ? line + "00" : line) << '\n';
  kept_text.close();
  std::ofstream(file) << text.str();
  CHECK(seen_by_two(keeps, {}, "h").source == Source::measured);
  keeps.mode = ProbeWish::Mode::anew;
  CHECK(seen_by_two(keeps, {}, "g").source == Source::measured);
}

}  // namespace
}  // namespace gc3::core
