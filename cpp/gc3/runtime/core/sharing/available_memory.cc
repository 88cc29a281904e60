#include "gc3/runtime/core/sharing/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace gc3::core {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The number after `key` in a file of lines "key number"; without a key, the first number of the file.
std::optional<std::uint64_t> number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (key.empty()) return file >> value ? std::optional(value) : std::nullopt;
  for (std::string word; file >> word;) {
    if (word == key) return file >> value ? std::optional(value) : std::nullopt;
  }
  return {};
}

// The folders of control groups: of version 2, of version 1.
struct Names {
  const char* limit;
  const char* used;
  const char* stat;
  const char* inactive;  // pages of files among the used memory, which would be dropped first
  const char* active;
};
constexpr Names kFiles[] = {
    {"memory.max", "memory.current", "memory.stat", "inactive_file", "active_file"},
    {"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file",
     "total_active_file"},
};

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  const std::optional<std::uint64_t> kib = number(root + "/proc/meminfo", "MemAvailable:");
  std::uint64_t available = kib ? *kib * 1024 : kUnlimited;
  // The limit of a container, which sees its own group as the root.
  for (const Names& names : kFiles) {
    const std::string folder = root + "/sys/fs/cgroup/";
    const auto limit = number(folder + names.limit, "");
    const auto used = number(folder + names.used, "");
    if (!limit || !used) continue;
    const std::uint64_t files =
        number(folder + names.stat, names.inactive).value_or(0) + number(folder + names.stat, names.active).value_or(0);
    const std::uint64_t taken = *used - std::min(*used, files);
    available = std::min(available, *limit - std::min(*limit, taken));
  }
  return available;
}

}  // namespace gc3::core
