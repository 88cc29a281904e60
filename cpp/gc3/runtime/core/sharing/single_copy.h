// How large messages are copied between processes: through shared memory, or by reading them directly from each other's
// memory (process_vm_readv), and from which size on.
//
// The faster way depends on the processor and the system: the call pins every page that it reads, and the kernel makes
// the copy. So the ranks measure both ways when they join, for some milliseconds, and keep the result for later jobs.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/base/thresholds.h"
#include "gc3/runtime/core/sharing/copy_times.h"
#include "gc3/runtime/core/sharing/kept_probe.h"

namespace gc3::core {

struct SingleCopy {
  // Where the thresholds are from.
  enum class Source : std::uint8_t { assumed, measured, kept, given };

  bool reads = false;   // every rank can read the next one's memory
  bool writes = false;  // and write it
  Source source = Source::assumed;
  Thresholds thresholds;
  std::int64_t measured_at = 0;  // seconds since 1970
  CopyTimes times = {};          // mean of the ranks; zeros: unknown
  std::string remark;            // about kept measurements; only on rank 0

  // Sets the thresholds from the times, if they were measured, and from the nanoseconds of one check of a wait.
  void choose(bool core_each, double check_ns);
  // A short description.
  std::string describe() const;
};

struct SingleCopyWish {
  bool allowed = true;
  ProbeWish probe;

  bool operator==(const SingleCopyWish&) const = default;
};

}  // namespace gc3::core
