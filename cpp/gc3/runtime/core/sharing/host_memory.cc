#include "gc3/runtime/core/sharing/host_memory.h"

#include <fstream>
#include <vector>

namespace gc3::core {
namespace {

// The word in brackets of a file such as "always [madvise] never".
std::string chosen(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return "not said";
}

}  // namespace

std::string describe_memory(const Cores& cores, const std::string& root) {
  const std::vector<Cores> nodes = cores.by_node(root);
  std::string counts;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    counts += (n == 0 ? "" : n + 1 == nodes.size() ? " and " : ", ") + std::to_string(nodes[n].count());
  }
  const std::string folder = root + "/sys/kernel/mm/transparent_hugepage/";
  return std::to_string(nodes.size()) + (nodes.size() == 1 ? " NUMA node" : " NUMA nodes") + ", of " + counts +
         (cores.count() == 1 ? " core" : " cores") + "; huge pages: " + chosen(folder + "enabled") +
         ", in shared memory " + chosen(folder + "shmem_enabled");
}

}  // namespace gc3::core
