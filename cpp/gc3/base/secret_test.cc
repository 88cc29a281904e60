#include "gc3/base/secret.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "gc3/base/errors/processes.h"
#include "gc3/base/test_folder.h"

namespace gc3 {
namespace {

const std::string kSecret = "0123456789abcdef";

struct Folder : testing::Folder {
  std::string file(const std::string& content, mode_t mode = 0600) const {
    const std::string name = path() + "/secret";
    std::filesystem::remove(name);
    std::ofstream(name) << content;
    chmod(name.c_str(), mode);
    return name;
  }
};

using Variables = std::map<std::string, std::string>;

Result<std::string> read(const Variables& variables) {
  return read_secret([&](const char* variable) -> const char* {
    const auto found = variables.find(variable);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Result<std::string> from_file(const std::string& path) { return read({{"GC3_SECRET_FILE", path}}); }

void refused(const Result<std::string>& read, const std::string& said) {
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == ErrorCode::BadSecret);
  CHECK_MESSAGE(read.error().message.find(said) != std::string::npos, read.error().message);
  CHECK(read.error().message.find(kSecret.substr(0, 8)) == std::string::npos);
}

TEST_CASE("a secret comes from the environment or a file, never both") {
  CHECK(read({}).value().empty());
  CHECK(read({{"GC3_SECRET", kSecret}}).value() == kSecret);
  const Folder folder;
  refused(read({{"GC3_SECRET", kSecret}, {"GC3_SECRET_FILE", folder.file(kSecret)}}), "both");
  CHECK(from_file(folder.file(kSecret)).value() == kSecret);
  CHECK(from_file(folder.file(kSecret + "\n")).value() == kSecret);
  CHECK(from_file(folder.file(kSecret + std::string("\0 \n\n", 4))).value() == kSecret + std::string("\0 \n", 3));
  const std::string longest(4096, 'x');
  CHECK(from_file(folder.file(longest + "\n")).value() == longest);
}

TEST_CASE("an invalid secret is refused, and not shown") {
  refused(read({{"GC3_SECRET", kSecret.substr(1)}}), "GC3_SECRET has 15 bytes");
  refused(read({{"GC3_SECRET", std::string(5000, 'x')}}), "more than 4096 bytes");
  refused(read({{"GC3_SECRET", ""}}), "GC3_SECRET is set and empty");
  refused(read({{"GC3_SECRET_FILE", ""}}), "GC3_SECRET_FILE is set and empty");
  const Folder folder;
  refused(from_file(folder.file("")), "has 0 bytes");
  refused(from_file(folder.file(std::string(5000, 'x'))), "more than 4096 bytes");
  refused(from_file(folder.path() + "/none"), "No such file");
  refused(from_file(folder.path()), "no ordinary file");
  refused(from_file("/dev/zero"), "no ordinary file");
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  refused(from_file(pipe), "no ordinary file");
}

TEST_CASE("a file that others can open, or that is another user's, is refused") {
  const Folder folder;
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U, 0610U, 0666U}) {
    refused(from_file(folder.file(kSecret, mode)), "open to other users");
  }
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can give a file to another user");
    return;
  }
  const std::string path = folder.file(kSecret);
  REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
  refused(from_file(path), "belongs to user 65534");
}

}  // namespace
}  // namespace gc3
