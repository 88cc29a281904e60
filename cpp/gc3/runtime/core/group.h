// The ranks of a communicator: what each has called, who is gone, and why everything was given up.
//
// Every rank owns a block of shared memory that the others only read: how far it has come, and the last calls it has
// made with a hash over all of them, the chain. Equal chains mean equal histories. 16 bits of the chain go with every
// message (the tag of interp/fifo.h), so ranks whose histories differ never take each other's messages; they wait, and
// who waits long compares the blocks and says on every rank which call differs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/call_record.h"
#include "gc3/runtime/core/job.h"

namespace gc3::core {

using Interrupted = std::function<bool()>;

class Group {
 public:
  using Payload = std::array<std::uint64_t, 4>;

  // All processes of the job.
  struct Options {
    double timeout_s = 300;
    bool pin = true;          // see Job::pin
    bool single_copy = true;  // ranks read and write each other's memory where the system lets them
    bool probe = true;        // and where that was measured to be faster
    std::uint64_t offer = 0;  // names something that is used if all ranks name the same; 0: nothing
  };
  static Result<std::unique_ptr<Group>> world(const Meeting& meeting, const Options& options);
  // Collective: the ranks that say the same color, in the order of their keys; none for those that say nothing.
  Result<std::unique_ptr<Group>> split(std::optional<std::uint32_t> color, std::int64_t key,
                                       const Interrupted& interrupted);
  // Collective among `ranks` of this group alone, which become ranks 0, 1, ... of the new one. Calls of this group may
  // be under way. `name` stands in the group's error messages. `timeout_s`: none: that of this group.
  Result<std::unique_ptr<Group>> subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                          std::optional<double> timeout_s, const Interrupted& interrupted);
  // Leaves. The others may finish the calls that this rank has finished.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  // Whether all ranks of the job have made the same offer, and one that names something.
  bool agreed() const { return agreed_; }
  double timeout_s() const { return timeout_s_; }
  const std::shared_ptr<Job>& job() const { return job_; }
  pid_t process(std::uint32_t rank) const { return job_->process(members_[rank]); }
  // By rank.
  std::vector<pid_t> processes() const;
  std::vector<int> pidfds() const;  // -1 for this rank
  // How many fruitless looks a wait may spend before it gives its core away.
  std::uint32_t spins() const { return spins_; }

  // Announces a call. Fails if the group has been given up, or this process is a fork.
  Status begin(const CallRecord& record);
  void finish();
  // Whether the group stands: what was read from another rank's memory before is what that rank meant.
  Status check() const;
  std::uint64_t tag() const { return chain_ & 0xffffU; }

  // Whether the process of a rank may be doing something: it lives and has not been stopped.
  bool runs(std::uint32_t rank) const;

  // Within a call: gives every rank's payload to every rank. Also a barrier.
  Result<std::vector<Payload>> exchange(const Payload& own, const Interrupted& interrupted);
  // Within a call: the same new memory on every rank, zeroed. The group gives it back when all have left.
  Result<Mapping> allocate(std::uint64_t bytes, const std::string& purpose, const Interrupted& interrupted);

  // For a wait that has lasted `waited_s` without anything moving: why it should be given up, if so. Whoever finds a
  // reason gives it to all.
  Status look_after(double waited_s, const Interrupted& interrupted);
  // Gives up on every rank: the calls under way and all later ones fail with `reason`.
  Diagnostic give_up(const Diagnostic& reason);
  // The same, asked from another thread of this process.
  void abort() { give_up(Diagnostic(ErrorCode::Aborted, who(rank_) + " has aborted the communicator")); }

 private:
  struct Header;
  struct RankBlock;
  struct Entry;
  struct Offer;

  Group(std::shared_ptr<Job> job, std::vector<std::uint32_t> members, std::uint32_t rank, double timeout_s);
  static std::uint64_t control_bytes(std::uint32_t ranks);
  Status attach(Extent control);
  // Memory for a new group, from its first rank; the key is the same for all ranks of the group.
  using Key = std::array<std::uint64_t, 2>;
  Result<Extent> offer(const Key& key, std::uint32_t ranks, const Interrupted& interrupted);
  Result<Extent> take(const Key& key, std::uint32_t from, std::uint32_t ranks, const Interrupted& interrupted);
  // After all have attached.
  void choose_waiting();

  Header& header() const;
  RankBlock& block(std::uint32_t rank) const;
  std::string who(std::uint32_t rank) const;  // "rank 2 (process 4711)"
  std::optional<Diagnostic> given_up() const;
  std::optional<Diagnostic> difference() const;
  std::optional<Diagnostic> loss(double waited_s) const;
  Diagnostic passed_deadline(double waited_s) const;
  Diagnostic explain_difference(std::uint64_t sequence, std::uint32_t other) const;

  std::shared_ptr<Job> job_;
  std::vector<std::uint32_t> members_;  // ranks in the job
  std::uint32_t rank_ = 0;
  double timeout_s_ = 0;
  std::uint32_t spins_ = 0;
  bool agreed_ = false;
  Mapping control_;
  std::vector<Extent> extents_;  // to give back: the control block and what was allocated
  RankBlock* own_ = nullptr;
  std::uint64_t sequence_ = 0;  // of the call under way or the last one
  std::uint64_t chain_ = 0;
  std::uint64_t exchanges_ = 0;
  std::string name_;
  std::mutex subgroups_mutex_;
  std::map<std::vector<std::uint32_t>, std::uint64_t> subgroups_;  // how many this rank has made of these ranks
};

}  // namespace gc3::core
