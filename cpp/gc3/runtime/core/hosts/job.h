// The processes of a job on this host, and their shared memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/launch.h"
#include "gc3/base/result.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/hosts/board.h"
#include "gc3/runtime/core/hosts/hosts.h"
#include "gc3/runtime/core/meeting/rendezvous.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/runtime/core/sharing/heap.h"
#include "gc3/runtime/core/sharing/shared_memory.h"
#include "gc3/runtime/core/sharing/single_copy.h"
#include "gc3/runtime/core/sharing/window.h"
#include "gc3/runtime/core/waiting/doorbell.h"
#include "gc3/runtime/core/waiting/pending.h"

namespace gc3::core {

class Mirror;

class Job {
 public:
  struct Joined;
  ~Job();
  // Connects to the other ranks. If all of them are in one job already, they get that one: so a process has one file,
  // one window and one set of descriptors, however often it joins the same processes or some of them.
  static Result<Joined> join(const Meeting& meeting, std::uint64_t control_bytes);

  std::uint32_t size() const { return static_cast<std::uint32_t>(processes_.size()); }
  pid_t process(std::uint32_t rank) const { return processes_[rank]; }
  // Random, drawn by rank 0 for this job. The author of a file cannot know it in advance.
  std::string_view key() const { return as_text(key_); }

  // Zeroed memory that all processes of the job can map, until one of them discards it.
  Result<Extent> allocate(std::uint64_t bytes, const std::string& purpose) const;
  // The same in two steps: take() gives addresses, and reserve() memory for a part of them, which the system places
  // near to the core of the process that calls it. Without memory, an access may end a process by a signal.
  Result<Extent> take(std::uint64_t bytes, const std::string& purpose) const;
  Status reserve(Extent part, const std::string& purpose) const { return memory_.reserve(part, purpose); }
  Result<Mapping> map(Extent extent) const;
  // Writes to shared memory that this process need not have mapped.
  void write(std::uint64_t offset, const void* data, std::size_t bytes) const;
  void discard(Extent extent) const;

  // The offset of an address in the shared file, which is the same for all processes; Window::kNowhere: it is not
  // there.
  std::uint64_t offset_of(const void* address) const { return own_->window.offset_of(address); }
  // The address of memory that another process has named; null if there is no such memory.
  std::uint8_t* place(std::uint64_t offset, std::uint64_t bytes) const {
    std::uint8_t* const at = own_->window.at(offset, bytes);
    return at != nullptr ? at : reach(offset, bytes);
  }
  // Bytes of address space that this process uses for it.
  std::uint64_t mapped() const { return own_->window.mapped(); }
  // Memory that all ranks can read, freed with its last owner. It can outlive the job, and keeps no descriptor open.
  Result<std::shared_ptr<std::uint8_t>> allocate_shared(std::uint64_t bytes) const;

  // The last result of the probe by Group::world, and what this rank wished then.
  struct Probed {
    SingleCopy found;
    SingleCopyWish wish;
    std::uint32_t ranks = 0;  // that were measured
  };
  std::optional<Probed> probed() const {
    const std::lock_guard lock(probed_mutex_);
    return probed_;
  }
  void set_probed(const Probed& probed) {
    const std::lock_guard lock(probed_mutex_);
    probed_ = probed;
  }

  // Whether its processes are in several sessions that the system schedules as groups.
  bool apart() const { return apart_; }
  void set_apart(bool apart) { apart_ = apart; }

  // What this process has started in any of its groups.
  Pending& pending() { return pending_; }

  // That of a process of this host. Distant ranks may have the same one, and then wake each other for nothing.
  Doorbell& doorbell(std::uint32_t rank) const;

  // Not 0 once some rank can no longer read another's memory, for example after a change of its user.
  std::uint64_t* copies() const;

  // The hosts of its ranks; empty if all run on this one. Of ranks of other hosts, `process` is 0 and `pidfd` -1.
  const Hosts& hosts() const { return hosts_; }
  Board& board() { return board_; }
  // Extends the job of this host to the ranks of all hosts: from now on, ranks are those of the whole job. `board` is
  // memory that the ranks of this host share. Rank 0's key counts.
  Status extend(Hosts hosts, Extent board, const Digest& key);
  // The leader of this host keeps the mirror.
  void keep(std::unique_ptr<Mirror> mirror);
  // Why nothing is known of a rank of another host any more.
  std::optional<std::string> lost(std::uint32_t rank) const;

  int pidfd(std::uint32_t rank) const { return pidfds_[rank].get(); }
  // Those of `ranks` whose processes have ended, by one system call.
  std::vector<std::uint32_t> dead(const std::vector<std::uint32_t>& ranks) const;
  // A process of the job that runs and is no longer of this user. It can write to the memory of every communicator of
  // the job, also of those that it is not in.
  std::optional<pid_t> outsider() const;
  // Whether the process has been stopped, as by SIGSTOP or a debugger.
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

    Window window;
    Heap heap;
    std::uint8_t* witness = nullptr;  // a page that is zero in a fork
  };

  friend class Jobs;
  Job();
  static Result<std::shared_ptr<Job>> create();
  Status open(SharedMemory memory);
  // Their places in the job, if all are in it and run, and all of the job are of this user.
  std::optional<std::vector<std::uint32_t>> places_of(const std::vector<pid_t>& processes) const;
  std::uint8_t* reach(std::uint64_t offset, std::uint64_t bytes) const;
  Header& header() const { return *header_; }

  SharedMemory memory_;
  Header* header_ = nullptr;
  std::uint64_t id_ = 0;
  std::shared_ptr<Own> own_ = std::make_shared<Own>();
  mutable std::mutex probed_mutex_;
  std::optional<Probed> probed_;
  std::atomic<bool> apart_ = false;
  Pending pending_;
  Digest key_{};
  Hosts hosts_;
  Board board_;
  std::unique_ptr<Mirror> mirror_;
  Digest secret_{};  // of the secret with which its processes have met
  std::vector<pid_t> processes_;
  std::vector<FileDescriptor> pidfds_;  // by rank; none for this one
};

struct Job::Joined {
  std::shared_ptr<Job> job;
  std::vector<std::uint32_t> members;  // by rank, the processes' places in the job
  Extent control;                      // zeroed memory for these ranks, of the size asked for
  bool again = false;                  // the job existed before
  // Why this process cannot map the memory of the job, of which it then knows nothing but the processes.
  std::optional<Diagnostic> unmapped = {};
};

// The jobs that this process is in. They end with their last communicator.
class Jobs {
 public:
  std::vector<std::shared_ptr<Job>> all();
  void add(const std::shared_ptr<Job>& job);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Job>> jobs_;
};

// Makes the system kill this process when its parent ends, so that ranks never outlive the tool that started them.
// If `parent` has ended already, this process ends at once.
Status die_with_parent(pid_t parent);

}  // namespace gc3::core
