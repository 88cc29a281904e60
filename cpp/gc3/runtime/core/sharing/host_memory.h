// What the system offers for memory: NUMA nodes and huge pages.
#pragma once

#include <string>

#include "gc3/runtime/core/sharing/cores.h"

namespace gc3::core {

// "2 NUMA nodes, of 8 and 8 cores; huge pages: madvise, in shared memory never", with the system's own words for the
// last two. `root` is a prefix of /sys, for tests.
std::string describe_memory(const Cores& cores, const std::string& root = "");

}  // namespace gc3::core
