// The processes of a job on this host: their shared memory, and whether they are alive.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/file_descriptor.h"
#include "gc3/runtime/core/heap.h"
#include "gc3/runtime/core/rendezvous.h"
#include "gc3/runtime/core/shared_memory.h"
#include "gc3/runtime/core/single_copy.h"

namespace gc3::core {

class Job {
 public:
  // Meets the other ranks. `control_bytes`: memory, found again as control(), that is there from the beginning.
  static Result<std::shared_ptr<Job>> join(const Meeting& meeting, std::uint64_t control_bytes);

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(processes_.size()); }
  pid_t process(std::uint32_t rank) const { return processes_[rank]; }
  Extent control() const { return control_; }
  // Drawn by rank 0 for this job. What depends on it cannot be worked out by whoever makes a file beforehand.
  std::string_view key() const { return as_text(key_); }

  Result<Extent> allocate(std::uint64_t bytes, const std::string& purpose) const;
  Result<Mapping> map(Extent extent) const { return memory_.map(extent); }
  void discard(Extent extent) const { memory_.discard(extent); }

  const Heap& heap() const { return own_->heap; }
  // Memory that all ranks can read, given back with its last owner. It may be kept longer than the job, whose
  // descriptors do not wait for it.
  Result<std::shared_ptr<std::uint8_t>> allocate_shared(std::uint64_t bytes) const;

  // As Group::world has tried it out.
  const SingleCopy& single_copy() const { return single_copy_; }
  void set_single_copy(const SingleCopy& found) { single_copy_ = found; }

  // Not 0 once some rank cannot read another's memory any more: its user has changed, say.
  std::uint64_t* copies() const;

  int pidfd(std::uint32_t rank) const { return pidfds_[rank].get(); }
  // One system call for all of `ranks`.
  std::vector<std::uint32_t> dead(const std::vector<std::uint32_t>& ranks) const;
  // Whether the process has been stopped, as by SIGSTOP.
  bool stopped(std::uint32_t rank) const;
  // Whether this process is the one that joined, and no fork of it.
  bool here() const { return own_->here(); }

  // The cores that the job's processes were allowed to use when they joined, all together. To be called once all have
  // announced theirs; then `pin` may be, too.
  void announce_cores();
  std::uint32_t cores() const;
  // Gives this process its share of the cores if nobody has restricted it already. Ranks that share cores are dealt out
  // evenly: they hardly sleep, so the system is slow to notice that six are on one core and two on another.
  void pin() const;

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  struct Header;
  // What the owners of shared memory keep: no descriptor.
  struct Own {
    Own() = default;
    ~Own();
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;
    bool here() const { return *witness != 0; }

    Heap heap;
    std::uint8_t* witness = nullptr;  // a page that a fork finds zeroed
  };

  Job() = default;
  Header& header() const;

  std::uint32_t rank_ = 0;
  SharedMemory memory_;
  Mapping header_;
  std::shared_ptr<Own> own_ = std::make_shared<Own>();
  SingleCopy single_copy_;
  Extent control_;
  Digest key_{};
  std::vector<pid_t> processes_;
  std::vector<FileDescriptor> pidfds_;  // by rank; none for this one
};

// Has the system kill this process when its parent ends, so that ranks started by a tool never outlive it.
Status die_with_parent();

}  // namespace gc3::core
