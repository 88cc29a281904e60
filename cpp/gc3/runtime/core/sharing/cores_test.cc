#include "gc3/runtime/core/sharing/cores.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/runtime/core/sharing/host_memory.h"

namespace gc3::core {
namespace {

Cores some(std::initializer_list<std::uint32_t> bits) {
  Cores cores;
  for (const std::uint32_t bit : bits) cores.words[bit / 64] |= std::uint64_t{1} << bit % 64;
  return cores;
}

TEST_CASE("workers get equal shares of the cores, and share cores evenly if there are fewer") {
  const Cores all = some({1, 3, 64, 200, 4095});
  CHECK(all.count() == 5);
  CHECK(all.share_of({0, 1}) == all);
  CHECK(all.share_of({0, 2}) == some({1, 3}));
  CHECK(all.share_of({1, 2}) == some({64, 200, 4095}));
  CHECK(all.share_of({4, 5}) == some({4095}));
  CHECK(all.share_of({5, 7}) == some({1}));
  CHECK(all.share_of({6, 7}) == some({3}));
  CHECK(Cores{}.share_of({1, 2}) == Cores{});
}

// A folder in place of /sys, with a list of cores for each node.
struct Nodes {
  std::filesystem::path root = std::filesystem::temp_directory_path() / ("gc3_nodes_" + std::to_string(getpid()));
  explicit Nodes(std::initializer_list<std::pair<const char*, const char*>> lists) {
    for (const auto& [name, list] : lists) {
      const auto folder = root / "sys/devices/system/node" / name;
      std::filesystem::create_directories(folder);
      std::ofstream(folder / "cpulist") << list << "\n";
    }
  }
  ~Nodes() { std::filesystem::remove_all(root); }
};

TEST_CASE("shares keep to NUMA nodes, and neighbours are in one node") {
  const Cores all = some({0, 1, 2, 3, 4, 5, 6, 7});
  {
    const Nodes nodes({{"node0", "0,2,4,6"}, {"node1", "1,3,5,7"}, {"node2", ""}, {"power", "0"}});  // node2: memory
    const auto share = [&](std::uint32_t r, std::uint32_t n) { return all.share_of({r, n}, nodes.root); };
    CHECK(all.by_node(nodes.root) == std::vector<Cores>{some({0, 2, 4, 6}), some({1, 3, 5, 7})});
    CHECK(some({1, 7}).by_node(nodes.root) == std::vector<Cores>{some({1, 7})});
    CHECK(share(0, 1) == all);
    CHECK(share(0, 2) == some({0, 2, 4, 6}));
    CHECK(share(1, 2) == some({1, 3, 5, 7}));
    // Three ranks: none gets cores of both nodes.
    CHECK(share(0, 3) == some({0, 2, 4, 6}));
    CHECK(share(1, 3) == some({1, 3}));
    CHECK(share(2, 3) == some({5, 7}));
    CHECK(share(3, 8) == some({6}));
    CHECK(share(4, 8) == some({1}));
    CHECK(share(9, 16) == some({2}));
  }
  {
    const Nodes nodes({{"node0", "0-1"}, {"node1", "2-7"}});  // of different sizes
    for (std::uint32_t r = 0; r < 4; ++r) {
      const Cores share = all.share_of({r, 4}, nodes.root);
      CHECK(share == (r == 0 ? some({0, 1}) : some({2 * r, 2 * r + 1})));
    }
  }
  {
    const Nodes nodes({{"node0", "0-3"}, {"node1", "4-8191,x"}, {"node10", "9"}});  // damaged: not used
    CHECK(all.by_node(nodes.root) == std::vector<Cores>{all});
    CHECK(all.share_of({1, 2}, nodes.root) == some({4, 5, 6, 7}));
  }
  {
    const Nodes nodes({{"node0", "0-2"}, {"node1", "3-4"}, {"node2", "5-7"}});
    const auto folder = nodes.root / "sys/kernel/mm/transparent_hugepage";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "enabled") << "always [madvise] never\n";
    CHECK(describe_memory(all, nodes.root) ==
          "3 NUMA nodes, of 3, 2 and 3 cores; huge pages: madvise, in shared memory not said");
    CHECK(describe_memory(some({4}), nodes.root).starts_with("1 NUMA node, of 1 core; "));
  }
  CHECK(all.by_node("/there/is/no/such/folder") == std::vector<Cores>{all});
}

TEST_CASE("a thread keeps to its cores, and others are not concerned") {
  const Cores before = Cores::own();
  REQUIRE(before.count() >= 1);
  Cores seen;
  const Cores last = before.share_of({before.count() - 1, before.count()});
  std::thread([&] {
    last.keep_here();
    seen = Cores::own();
  }).join();
  CHECK(last.count() == 1);
  CHECK(seen == last);
  CHECK(Cores::own() == before);
}

}  // namespace
}  // namespace gc3::core
