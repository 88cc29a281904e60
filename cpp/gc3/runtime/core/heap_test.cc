#include "gc3/runtime/core/heap.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "gc3/base/errors/common.h"

namespace gc3::core {
namespace {

// Memory that the system has allocated for the file.
std::uint64_t held(const SharedMemory& memory) {
  struct stat about{};
  REQUIRE(fstat(memory.descriptor(), &about) == 0);
  return static_cast<std::uint64_t>(about.st_blocks) * 512;
}

struct Opened {
  Opened() { heap.open(memory); }
  auto allocate(std::uint64_t bytes) { return heap.allocate(memory, end, bytes); }
  SharedMemory memory = SharedMemory::create().value();
  std::uint64_t end = 4096;  // as after the header of a job
  Heap heap;
};

TEST_CASE("heap: freed memory is used for the next request of its size, zeroed, and the file does not grow") {
  Opened o;
  std::uint8_t* const first = o.allocate(5000).value();
  std::memset(first, 7, 5000);
  const std::uint64_t end = o.end;
  CHECK(end == 4096 + 8192);
  for (const std::uint64_t bytes : {5000U, 8192U, 4097U}) {
    o.heap.free(first, 5000);
    std::uint8_t* const again = o.allocate(bytes).value();
    CHECK(again == first);
    CHECK(std::all_of(again, again + bytes, [](std::uint8_t b) { return b == 0; }));
    std::memset(again, 7, bytes);
  }
  CHECK(o.end == end);
  CHECK(o.allocate(5000).value() != first);  // it is in use
  CHECK(o.end == end + 8192);
}

TEST_CASE("heap: freed memory of another size is not used") {
  Opened o;
  std::uint8_t* const small = o.allocate(1).value();
  std::uint8_t* const large = o.allocate(100'000).value();
  o.heap.free(large, 100'000);
  o.heap.free(small, 1);
  CHECK(o.allocate(4096).value() == small);
  CHECK(o.allocate(0).value() != large);
  CHECK(o.allocate(100'000).value() == large);
}

TEST_CASE("heap: freed memory is returned to the system") {
  Opened o;
  const std::uint64_t before = held(o.memory);
  std::uint8_t* const at = o.allocate(1 << 20U).value();
  CHECK(held(o.memory) >= before + (1 << 20U));
  o.heap.free(at, 1 << 20U);
  CHECK(held(o.memory) == before);
}

TEST_CASE("heap: a request beyond the address space is refused") {
  Opened o;
  const auto refused = o.allocate(o.heap.window_bytes() + 1);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == ErrorCode::OutOfMemory);
}

}  // namespace
}  // namespace gc3::core
