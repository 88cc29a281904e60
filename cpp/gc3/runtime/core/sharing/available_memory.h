// How much memory this process can still get before the system would have to kill a process.
#pragma once

#include <cstdint>
#include <string>

namespace gc3::core {

// In bytes; the largest number if the system does not tell. `root` is a prefix of /proc and /sys, for tests.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace gc3::core
