// How much memory this process could still get before the system would have to kill something.
#pragma once

#include <cstdint>
#include <string>

namespace gc3::core {

// Bytes; as far as the system tells, else the largest number there is. `root` stands before /proc and /sys, for tests.
std::uint64_t available_memory(const std::string& root = "");

}  // namespace gc3::core
