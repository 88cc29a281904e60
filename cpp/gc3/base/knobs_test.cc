#include "gc3/base/knobs.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "gc3/base/errors/common.h"

namespace gc3 {
namespace {

Result<Knobs> read_from(const std::map<std::string, std::string>& variables) {
  return read_knobs([&](const char* variable) -> const char* {
    const auto found = variables.find(variable);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST_CASE("unset and empty variables leave the defaults") {
  const Result<Knobs> knobs = read_from({{"GC3_SLOTS", ""}});
  REQUIRE(knobs.ok());
  CHECK(knobs.value().timeout == 30.0);
  CHECK(knobs.value().workers == 0);
  CHECK(knobs.value().slots == 0);
  CHECK(knobs.value().slot_bytes == 0);
}

TEST_CASE("each variable sets its own field") {
  const Result<Knobs> knobs = read_from({{"GC3_TIMEOUT", "0.5"},
                                         {"GC3_WORKERS", "3"},
                                         {"GC3_SLOTS", "4"},
                                         {"GC3_SLOT_BYTES", "8589934592"},
                                         {"GC3_NVRTC", "a b.so"}});
  REQUIRE(knobs.ok());
  CHECK(knobs.value().timeout == 0.5);
  CHECK(knobs.value().workers == 3);
  CHECK(knobs.value().slots == 4);
  CHECK(knobs.value().slot_bytes == 8589934592U);
  CHECK(knobs.value().nvrtc == "a b.so");
  CHECK(knobs.value().cuda_driver.empty());
}

TEST_CASE("an invalid value is refused and named") {
  for (const char* text : {"x", "1x", " 1", "-1", "1.5", "4294967296", "0x10"}) {
    CAPTURE(text);
    const Result<Knobs> knobs = read_from({{"GC3_WORKERS", text}});
    REQUIRE_FALSE(knobs.ok());
    CHECK(knobs.error().code == ErrorCode::BadOption);
    CHECK(knobs.error().message.find("GC3_WORKERS='" + std::string(text) + "'") != std::string::npos);
  }
  for (const char* text : {"0", "-1", "nan", "inf", "1e999", "soon", "1s"}) {
    CAPTURE(text);
    CHECK_FALSE(read_from({{"GC3_TIMEOUT", text}}).ok());
  }
}

TEST_CASE("the environment of another process is what it was started with") {
  const pid_t process = fork();
  if (process == 0) {
    execle("/bin/sleep", "sleep", "60", nullptr,
           std::array<const char*, 5>{"A=1", "AB=2", "C=", "RANK=3=4", nullptr}.data());
    _exit(1);
  }
  while (environment_of(process)("A") == nullptr || environment_of(process)("HOME") != nullptr) usleep(1000);
  const Environment other = environment_of(process);
  CHECK(std::string(other("AB")) == "2");
  CHECK(std::string(other("C")).empty());
  CHECK(std::string(other("RANK")) == "3=4");
  CHECK(other("B") == nullptr);
  CHECK(other("RAN") == nullptr);
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  CHECK(environment_of(process)("AB") == nullptr);
}

TEST_CASE("names that only look like those of the table are told, with what may be meant") {
  CHECK(unknown_variables({"HOME", "GC3_TIMEOUT", "GC3", "gc3_x"}).empty());
  const std::vector<std::string> told =
      unknown_variables({"GC3_TIMOUT", "GC3_COM_TIMEOUT", "GC3_SOMETHING", "GC3_\033[2J" + std::string(5000, 'x')});
  REQUIRE(told.size() == 4);
  CHECK(told[0] == "GC3_TIMOUT in the environment is not a variable of gc3: did you mean GC3_TIMEOUT?");
  CHECK(told[1].ends_with("did you mean GC3_COMM_TIMEOUT?"));
  CHECK(told[2].ends_with("`gc3 env` lists them"));
  CHECK(told[3].starts_with("GC3_?[2Jxxx"));
}

TEST_CASE("the table names every variable once") {
  std::map<std::string, int> seen;
  for (const KnobInfo& knob : all_knobs()) {
    CHECK(knob.variable.starts_with("GC3_"));
    CHECK_FALSE(knob.doc.empty());
    ++seen[std::string(knob.variable)];
  }
  CHECK(seen.size() == all_knobs().size());
}

}  // namespace
}  // namespace gc3
