// The processes of a job on this host, and their shared memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "gc3/base/launch.h"
#include "gc3/base/result.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/file_descriptor.h"
#include "gc3/runtime/core/heap.h"
#include "gc3/runtime/core/rendezvous.h"
#include "gc3/runtime/core/shared_memory.h"
#include "gc3/runtime/core/single_copy.h"
#include "gc3/runtime/core/wait_policy.h"

namespace gc3::core {

class Job {
 public:
  // Connects to the other ranks. `control_bytes`: the size of the memory at control(), which exists from the start.
  static Result<std::shared_ptr<Job>> join(const Meeting& meeting, std::uint64_t control_bytes);

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(processes_.size()); }
  pid_t process(std::uint32_t rank) const { return processes_[rank]; }
  Extent control() const { return control_; }
  // Random, drawn by rank 0 for this job. The author of a file cannot know it in advance.
  std::string_view key() const { return as_text(key_); }

  Result<Extent> allocate(std::uint64_t bytes, const std::string& purpose) const;
  Result<Mapping> map(Extent extent) const { return memory_.map(extent); }
  void discard(Extent extent) const { memory_.discard(extent); }

  const Heap& heap() const { return own_->heap; }
  // Memory that all ranks can read, freed with its last owner. It can outlive the job, and keeps no descriptor open.
  Result<std::shared_ptr<std::uint8_t>> allocate_shared(std::uint64_t bytes) const;

  // The result of the probe by Group::world.
  const SingleCopy& single_copy() const { return single_copy_; }
  void set_single_copy(const SingleCopy& found) { single_copy_ = found; }

  WaitMode wait_mode() const { return wait_mode_; }
  void set_wait_mode(WaitMode mode) { wait_mode_ = mode; }
  // Whether its processes are in several sessions that the system schedules as groups.
  bool apart() const { return apart_; }
  void set_apart(bool apart) { apart_ = apart; }

  // Not 0 once some rank can no longer read another's memory, for example after a change of its user.
  std::uint64_t* copies() const;

  int pidfd(std::uint32_t rank) const { return pidfds_[rank].get(); }
  // Those of `ranks` whose processes have ended, by one system call.
  std::vector<std::uint32_t> dead(const std::vector<std::uint32_t>& ranks) const;
  // Whether the process has been stopped, as by SIGSTOP.
  bool stopped(std::uint32_t rank) const;
  // Whether this process is the one that joined, and not a fork of it.
  bool here() const { return own_->here(); }

  // Adds the cores that this process may use to those of the job.
  void announce_cores();
  // The number of cores that the processes of the job may use. Valid, like `pin`, once all have announced theirs.
  std::uint32_t cores() const;
  // Restricts this process to its share of the cores, unless it is restricted already. Ranks that share cores are
  // distributed evenly. They hardly sleep, so the system is slow to balance six ranks on one core with two on another.
  static void pin(const Place& place);

  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  struct Header;
  // The state that owners of shared memory keep; it has no descriptor.
  struct Own {
    Own() = default;
    ~Own();
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;
    bool here() const { return *witness != 0; }

    Heap heap;
    std::uint8_t* witness = nullptr;  // a page that is zero in a fork
  };

  Job() = default;
  Header& header() const;

  std::uint32_t rank_ = 0;
  SharedMemory memory_;
  Mapping header_;
  std::shared_ptr<Own> own_ = std::make_shared<Own>();
  SingleCopy single_copy_;
  WaitMode wait_mode_ = WaitMode::automatic;
  bool apart_ = false;
  Extent control_;
  Digest key_{};
  std::vector<pid_t> processes_;
  std::vector<FileDescriptor> pidfds_;  // by rank; none for this one
};

// Makes the system kill this process when its parent ends, so that ranks never outlive the tool that started them.
Status die_with_parent();

}  // namespace gc3::core
