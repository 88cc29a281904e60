// The ranks of a communicator: which calls each has made, which have ended, and why the communicator was given up.
//
// Each rank owns a block of shared memory that the others only read. It contains the number of the rank's last call,
// its last calls, and a hash over all of its calls, the chain. Equal chains mean equal histories. Each message carries
// 16 bits of the chain (the tag of interp/fifo.h), so a rank does not accept messages of a rank with another history:
// it waits. A rank that has waited long compares the blocks, and all ranks report the call that differs.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/launch.h"
#include "gc3/base/result.h"
#include "gc3/runtime/core/call_record.h"
#include "gc3/runtime/core/hosts/job.h"
#include "gc3/runtime/core/sharing/cores.h"
#include "gc3/runtime/core/waiting/bells.h"
#include "gc3/runtime/core/waiting/wait_policy.h"

namespace gc3::core {

namespace group_blocks {
struct Header;
struct Offers;
struct Pipe;
struct RankBlock;
}  // namespace group_blocks

using Interrupted = std::function<bool()>;

// Whether a call can have it.
Status check_timeout(std::optional<double> timeout_s);

class Group {
 public:
  using Payload = std::array<std::uint64_t, 4>;

  // All processes of the job.
  struct Options {
    double timeout_s = 300;
    bool pin = true;          // see Job::pin
    bool single_copy = true;  // ranks read and write each other's memory if the system allows it
    ProbeWish probe = {};     // but only for messages for which this was measured to be faster
    // Each identifies an optional feature, which is used if all ranks give the same; 0: none.
    std::array<std::uint64_t, 3> offers = {};
    WaitMode wait = WaitMode::automatic;
    std::optional<Place> place = {};  // by which it is pinned; none: its rank
  };
  static Result<std::unique_ptr<Group>> world(const Meeting& meeting, const Options& options);

  // Where its ranks are. Hosts have numbers from 0, in the order of their first ranks.
  struct Placement {
    std::vector<std::uint32_t> host_of;                // by rank
    std::vector<std::vector<std::uint32_t>> ranks_of;  // by host
    std::vector<Host> hosts;                           // with their ranks in the job
    std::uint32_t ranks_per_node = 0;                  // on each host; 0: not the same number on all
    // The ranks of the first host, then those of the next, if that is not the order of their numbers; else null.
    std::shared_ptr<const std::vector<std::uint32_t>> order;
    bool several() const { return ranks_of.size() > 1; }
  };
  const Placement& placement() const { return placement_; }
  bool is_here(std::uint32_t rank) const { return placement_.host_of[rank] == placement_.host_of[rank_]; }
  // The ranks of this host, this one included.
  const std::vector<std::uint32_t>& ranks_here() const { return placement_.ranks_of[placement_.host_of[rank_]]; }
  // Collective: a group of the ranks with the same color, in the order of their keys; no group for ranks without a
  // color.
  Result<std::unique_ptr<Group>> split(std::optional<std::uint32_t> color, std::int64_t key,
                                       const Interrupted& interrupted);
  // Collective among `ranks` of this group only, which become ranks 0, 1, ... of the new one. Calls of this group may
  // be running. With a `name`, which is part of its error messages, the new group is the one of these ranks and this
  // name, and does not wait for them. Without one, any two ranks make the groups that both are in, and the calls of
  // this group that they wait for, in one order; a difference gives up this group, where it can be seen. `idle`: this
  // rank has no started call of this group. `place`: the line of the program that makes a group without a name, by
  // which groups of the same ranks are told apart. Without `timeout_s` it has the time-out of this group.
  Result<std::unique_ptr<Group>> subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                          std::optional<double> timeout_s, const Interrupted& interrupted,
                                          bool idle = true, std::string_view place = {});
  // Collective among the ranks that have neither ended nor left: a group of these, in their order. If ranks are
  // missing, this group is given up; it may have been before. If more ranks end meanwhile, the others agree on the
  // rest. `refused`: this rank only tells the others, who wait for it, that its call is wrong.
  Result<std::unique_ptr<Group>> shrink(std::optional<double> timeout_s, const Interrupted& interrupted,
                                        const Diagnostic* refused = nullptr);
  // Leaves the group. The other ranks can still finish the calls that this rank has finished.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  // Of each of `Options::offers`, whether all ranks of the job have given the same, and not 0.
  const std::array<bool, 3>& agreed() const { return agreed_; }
  double timeout_s() const { return timeout_s_; }
  // The time-out of the calls that follow, if it is not that of the group.
  void limit_calls(std::optional<double> timeout_s) { call_timeout_s_ = timeout_s; }
  const std::shared_ptr<Job>& job() const { return job_; }
  // The result of the probe when the ranks joined.
  const SingleCopy& single_copy() const { return single_copy_; }
  pid_t process(std::uint32_t rank) const { return job_->process(members_[rank]); }
  // By rank.
  std::vector<pid_t> processes() const;
  // Of all processes of this host's ranks so far; of one that has ended, none.
  std::chrono::nanoseconds processor_time() const;
  std::vector<int> pidfds() const;  // -1 for this rank

  // See Waiter. A rank that has posted something must ring.
  Bells& bells() { return bells_; }
  Doorbell& doorbell(std::uint32_t rank) const { return job_->doorbell(members_[rank]); }
  WaitPolicy& wait_policy() const { return *wait_policy_; }
  // Can be used by another thread during a call.
  std::shared_ptr<const WaitPolicy> shared_wait_policy() const { return wait_policy_; }
  // Whether all ranks have made this rank's call.
  bool all_here() const;
  // Whether another rank was on the core of this one recently.
  bool shares_core() const;
  // If more ranks made their calls on this rank's core than there must be on one, moves the thread to another core,
  // once in a while. It may still run on all of its cores. The system moves no ranks that sleep and wake each other, or
  // yield: they seem to need one core only. Returns whether it was moved.
  bool spread(std::chrono::steady_clock::time_point now);
  // Confines the thread to that half of its cores on which all ranks of the host gather. Returns its cores; none if it
  // was not confined.
  std::optional<Cores> gather();

  // Announces a call. Fails if the group has been given up, or this process is a fork.
  Status begin(const CallRecord& record);
  void finish();
  // Says something in the order of calls, which no rank waits for. Ranks that say or call something else at this point
  // report the difference, with `text`.
  Status note(const CallRecord& record, std::string_view text);
  // Fails if the group has been given up. If not, data that was read from another rank's memory before is valid.
  Status check() const;
  std::uint64_t tag() const { return chain_ & 0xffffU; }
  // Within a call that `rank` has begun and not ended, or another one in its place; then the group is given up.
  Status check_same(std::uint32_t rank);

  // Whether the process of a rank can run: it has not ended and has not been stopped.
  bool runs(std::uint32_t rank) const;
  // The processes of this host's ranks that have ended.
  std::vector<pid_t> ended() const;

  // Within a call: gives the payload of each rank to all ranks. It is also a barrier.
  Result<std::vector<Payload>> exchange(const Payload& own, const Interrupted& interrupted);
  // The same for as many words as every rank gives, by rank; a number that is the same in all calls of a group.
  Result<std::vector<std::uint64_t>> exchange_words(const std::vector<std::uint64_t>& own,
                                                    const Interrupted& interrupted);
  // The same for bytes, of which each rank may give another number.
  Result<std::vector<std::string>> exchange_bytes(std::string_view own, const Interrupted& interrupted);
  // Within a call: new zeroed memory, shared by the ranks of this host; each host has its own. It is freed when they
  // have left the group.
  Result<Mapping> allocate(std::uint64_t bytes, const std::string& purpose, const Interrupted& interrupted);
  // The same of parts, by rank, of whole pages; those of this host's ranks follow each other. Each rank takes the pages
  // of its own part, at the same time, so they are near to its cores where memory is not equally far from all.
  Result<Mapping> allocate(const std::vector<std::uint64_t>& parts, const std::string& purpose,
                           const Interrupted& interrupted);

  // For a wait that has made no progress for `waited_s`: fails with the reason if the wait is to be given up. The first
  // rank that finds a reason gives up the group with it on all ranks.
  Status check_wait(double waited_s, const Interrupted& interrupted);
  // Messages from one rank to another go through memory that their sender makes when it first needs it; the group gives
  // it back when all have left. From any thread.
  Result<Mapping> open_pipe(std::uint32_t to, std::uint64_t bytes);
  // That of messages from `from` to this rank; empty: not made yet.
  Result<Mapping> find_pipe(std::uint32_t from) const;
  // What a rank waits for outside the order of calls, said for the error messages of others.
  struct Awaits {
    enum class What : std::uint8_t { nothing, sent, received };
    What what = What::nothing;
    std::uint32_t peer = 0;
    std::int32_t tag = 0;
    std::uint64_t bytes = 0;
  };
  void announce(const Awaits& awaits);
  Awaits awaits(std::uint32_t rank) const;
  // Whether a rank will take no more part: it has left the group, or has ended without that.
  enum class Presence : std::uint8_t { here, left, ended };
  Presence presence(std::uint32_t rank) const;
  // "rank 2 (process 4711)"; "rank 1 of the group, rank 2 of the job (process 4711)" if the numbers differ.
  std::string who(std::uint32_t rank) const;
  // For calls of which the group does not know. Why one that needs all ranks will not end, if the group has been given
  // up, or a rank has ended or is on a lost host; then the group is given up.
  std::optional<Diagnostic> lost();

  // Gives up the group on all ranks: running calls and all later ones fail with `reason`.
  Diagnostic give_up(const Diagnostic& reason);
  // Within a call: a function of the caller begins or ends to compute. Meanwhile no rank takes its call for one without
  // progress.
  void computes(bool now);
  // As give_up; can be called from another thread of this process.
  void abort() { give_up(Diagnostic(ErrorCode::Aborted, who(rank_) + " has aborted the communicator")); }

 private:
  using Header = group_blocks::Header;
  using Offers = group_blocks::Offers;
  using RankBlock = group_blocks::RankBlock;
  using Pipe = group_blocks::Pipe;

  Group(std::shared_ptr<Job> job, std::vector<std::uint32_t> members, std::uint32_t rank, double timeout_s);
  // A group of ranks of this one, which this process is `rank` of.
  std::unique_ptr<Group> child(std::vector<std::uint32_t> members, std::uint32_t rank, double timeout_s) const;
  static Result<std::unique_ptr<Group>> on_host(const Meeting& meeting, const Options& options);
  // See group_hosts.cc.
  static Result<std::unique_ptr<Group>> across(const Meeting& meeting, const Options& options);
  Result<std::unique_ptr<Group>> extend(const Meeting& meeting, double timeout_s);
  std::uint64_t control_bytes() const;
  Status attach(Extent control);
  // The other ranks wait for this one in memory that it cannot map: gives up the group there by writing to the file.
  Diagnostic give_up_unmapped(Extent control, const Diagnostic& problem) const;
  // One rank of each host describes the group in its memory, and then tells its leader's thread of it if there are
  // several hosts. `id` is the same on all ranks of the group.
  using Id = std::array<std::uint64_t, 2>;
  Status describe(Extent control, const Id& id) const;
  Status announce_to_leader(Extent control) const;
  static Id child_id(const Id& parent, std::string_view what);
  void find_places();
  // Tells the leader of this host that this rank's block has changed.
  void tell_hosts() const;
  // Addresses, on every host, for memory that the first rank of each host takes for the others of its host.
  Result<Extent> take_shared(std::uint64_t bytes, const std::string& purpose, const Interrupted& interrupted);
  Result<std::vector<std::uint64_t>> exchange_by_turns(const std::vector<std::uint64_t>& own,
                                                       const Interrupted& interrupted);
  // How a subgroup is made: its ranks here, and whether this group may have been given up.
  struct Making {
    std::vector<std::uint32_t> ranks;
    bool after_loss = false;
    const Interrupted& interrupted;
  };
  // The group, whose ranks have not met yet.
  Result<std::unique_ptr<Group>> make(const Making& making, std::string name, std::optional<double> timeout_s);
  // The rank that comes first takes memory for a new group, and the others find it; all have the same key. So nobody
  // waits for another rank here. `near`: the ranks of this host.
  using Key = std::array<std::uint64_t, 2>;
  Result<Extent> find_or_take(const Key& key, const Making& near, Group& group);
  // Waits until all of `ranks` have made a group without a name, in the same place.
  Status meet(Group& made, const Making& making, bool idle, std::string_view place);
  // Why some of them never will, as far as that can be seen; `differs`: it is known that they have not.
  Status check_order(const Group& made, const std::vector<std::uint32_t>& ranks, bool idle, bool differs = false);
  // Says which rank this one awaits to make `what`; none: it makes nothing any more. Returns the ranks of a circle,
  // this one first, of which each awaits the next; so none of them ever gets on. Empty: there is none, as far as is
  // known.
  std::vector<std::uint32_t> await(std::optional<std::uint32_t> rank, std::string_view what = {});
  // Fails if this group has been given up, unless a group is made after that.
  Status check_making(const Making& making) const;
  // Those that have neither ended nor left.
  std::vector<std::uint32_t> present() const;
  // The first exchange of a group after a loss, made of ranks of `parent`: whether all ranks have posted. False, on all
  // ranks, if one has ended, or left the parent, before it did.
  Result<bool> all_posted(Group& parent, const Making& making);
  // Fails if one of the ranks has ended.
  Status all_live(const std::vector<std::uint32_t>& ranks) const;
  void compare(const Options& options, const std::vector<Payload>& said);
  // To be called after all ranks have attached.
  void choose_waiting();
  Status probe(const Options& options, bool again, const Interrupted& interrupted);

  Header& header() const;
  RankBlock& block(std::uint32_t rank) const;
  Pipe& pipe_of(std::uint32_t from, std::uint32_t to) const;
  std::optional<Diagnostic> given_up() const;
  // What the other ranks report.
  std::string text_of(const Diagnostic& reason) const;
  std::optional<Diagnostic> difference() const;
  std::optional<Diagnostic> loss(double waited_s) const;
  bool computes_within(double limit_s) const;  // whether any rank has computed in that time
  Diagnostic passed_deadline(double waited_s) const;
  Diagnostic explain_difference(std::uint64_t sequence, std::uint32_t other) const;
  // A call of a rank, for people; none: its block does not have it any more.
  std::optional<std::string> called(std::uint32_t rank, std::uint64_t sequence) const;

  std::shared_ptr<Job> job_;
  std::vector<std::uint32_t> members_;  // ranks in the job
  std::vector<std::uint32_t> numbers_;  // of the ranks of a group, in the communicator that all were split from
  Placement placement_;
  std::uint32_t rank_ = 0;
  double timeout_s_ = 0;
  std::optional<double> call_timeout_s_ = {};  // see limit_calls
  Bells bells_;
  std::shared_ptr<WaitPolicy> wait_policy_ = std::make_shared<WaitPolicy>();
  std::uint64_t core_ = 0;   // as own_ has it
  std::uint64_t waits_ = 0;  // likewise
  std::uint64_t label_ = 0;  // of what it awaits, see group_blocks.h
  std::chrono::steady_clock::time_point next_spread_;
  std::optional<Cores> share_;                   // of the cores; found out when it is needed
  std::optional<std::pair<Cores, Cores>> half_;  // of the cores, and these; likewise
  std::array<bool, 3> agreed_ = {};
  WaitMode wait_mode_ = WaitMode::automatic;
  SingleCopy single_copy_;
  Mapping control_;
  std::vector<Extent> extents_;  // to free: the control block and the results of `allocate`
  RankBlock* own_ = nullptr;
  std::uint64_t sequence_ = 0;  // of the running call or the last one
  std::uint64_t chain_ = 0;
  std::uint64_t exchanges_ = 0;
  Mapping words_;  // of exchange_words; its first call gets it
  std::uint64_t word_exchanges_ = 0;
  std::string name_;
  std::mutex subgroups_mutex_;
  std::map<Key, std::uint64_t> subgroups_;  // the number of subgroups made of the same ranks with the same name
};

}  // namespace gc3::core
