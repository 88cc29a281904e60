#include "gc3/runtime/core/sharing/available_memory.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "gc3/base/errors/common.h"
#include "gc3/runtime/core/sharing/shared_memory.h"

namespace gc3 {
namespace {

class Root {
 public:
  Root() : path_(std::filesystem::temp_directory_path() / ("gc3-memory-" + std::to_string(getpid()))) {}
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  std::uint64_t available() const { return core::available_memory(path_.string()); }

 private:
  std::filesystem::path path_;
};

TEST_CASE("the memory that the system and the control group leave") {
  const Root root;
  CHECK(root.available() == std::numeric_limits<std::uint64_t>::max());
  root.write("proc/meminfo", "MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable:   50 kB\n");
  CHECK(root.available() == 50 * 1024);
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "20480\n");
  CHECK(root.available() == 50 * 1024);
  root.write("sys/fs/cgroup/memory.max", "max\n");
  root.write("sys/fs/cgroup/memory.current", "20000\n");
  CHECK(root.available() == 50 * 1024);
  root.write("sys/fs/cgroup/memory.max", "30000\n");
  CHECK(root.available() == 10'000);
  root.write("sys/fs/cgroup/memory.stat", "anon 1\nfile 9000\ninactive_file 4000\nactive_file 5000\n");
  CHECK(root.available() == 19'000);
  root.write("sys/fs/cgroup/memory.current", "90000\n");
  CHECK(root.available() == 0);
  // If a machine has groups of both versions, the lower limit counts.
  root.write("sys/fs/cgroup/memory.current", "20000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "25480\n");
  CHECK(root.available() == 5000);
}

TEST_CASE("more memory than available is refused before any of it is allocated") {
  const auto memory = core::SharedMemory::create().value();
  const auto refused = memory.reserve({0, std::uint64_t{1} << 45U}, "a test");
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::OutOfMemory);
  CHECK(refused.error().message.find("bytes are left") != std::string::npos);
  CHECK(memory.reserve({0, 4096}, "a test").ok());
}

}  // namespace
}  // namespace gc3
