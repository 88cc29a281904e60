#include "gc3/runtime/core/sharing/shared_memory.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace gc3::core {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

void refused_as(FileDescriptor file, const std::string& said) {
  const Result<SharedMemory> adopted = SharedMemory::adopt(std::move(file));
  REQUIRE_FALSE(adopted.ok());
  CHECK_MESSAGE(adopted.error().message.find(said) != std::string::npos, adopted.error().message);
}

FileDescriptor memfd(off_t size, int seals) {
  FileDescriptor file(memfd_create("gc3-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(file.get(), size) == 0);
  REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

TEST_CASE("no process can truncate, extend or unseal mapped memory") {
  const SharedMemory memory = SharedMemory::create().value();
  CHECK(ftruncate(memory.descriptor(), 0) != 0);
  CHECK(ftruncate(memory.descriptor(), static_cast<off_t>(memory.size() + 4096)) != 0);
  CHECK(fcntl(memory.descriptor(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(SharedMemory::adopt(FileDescriptor(dup(memory.descriptor()))).ok());
}

TEST_CASE("a file that is not sealed shared memory is refused") {
  refused_as(memfd(8192, 0), "not sealed");
  refused_as(memfd(8192, F_SEAL_SHRINK | F_SEAL_GROW), "not sealed");
  refused_as(memfd(8192, F_SEAL_GROW | F_SEAL_SEAL), "not sealed");
  refused_as(memfd(8192, kSeals | F_SEAL_WRITE), "not sealed");
  refused_as(memfd(100, kSeals), "a file of 100 bytes");
  refused_as(memfd(0, kSeals), "a file of 0 bytes");
  const FileDescriptor sealed = memfd(8192, kSeals);
  const std::string again = "/proc/self/fd/" + std::to_string(sealed.get());
  refused_as(FileDescriptor(open(again.c_str(), O_RDONLY | O_CLOEXEC)), "cannot be written");
  const std::string folder = std::filesystem::temp_directory_path().string();
  refused_as(FileDescriptor(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)), "instead of shared memory");
  refused_as(FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC)), "another kind of file");
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const FileDescriptor other(ends[1]);
  refused_as(FileDescriptor(ends[0]), "another kind of file");
  if (geteuid() == 0) {
    FileDescriptor foreign = memfd(8192, kSeals);
    REQUIRE(fchown(foreign.get(), 65534, 65534) == 0);
    refused_as(std::move(foreign), "a file of user 65534");
  }
}

}  // namespace
}  // namespace gc3::core
