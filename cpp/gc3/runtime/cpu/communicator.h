// A communicator of processes: a group of ranks, their FIFOs, and the programs that they run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/cpu/fifo_pool.h"
#include "gc3/runtime/cpu/host_carrier.h"
#include "gc3/runtime/cpu/process_program.h"

namespace gc3::cpu {

// Calls from several threads run one after the other. The caller must ensure that all ranks make their calls in the
// same order. After a failure that concerns other ranks, all later calls fail for the same reason.
class Communicator {
 public:
  using Interrupted = core::Interrupted;
  using Options = core::Group::Options;

  // Collective: connects to the other ranks. `links`: for tests, where the ranks are taken to be.
  static Result<std::unique_ptr<Communicator>> init(const core::Meeting& meeting, const Options& options,
                                                    HostLinks::Options links = {});
  ~Communicator() { close(); }

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  // By rank.
  const std::vector<pid_t>& processes() const { return processes_; }
  // See core::Group.
  const std::array<bool, 3>& agreed() const { return agreed_; }
  // The result of the probe when the ranks joined.
  const core::SingleCopy& single_copy() const { return single_copy_; }
  const core::WaitPolicy& wait_policy() const { return *wait_policy_; }
  const core::Group::Placement& placement() const { return placement_; }
  // What carries messages between hosts; none also if it is that of a test.
  TransportKind transport() const { return transport_; }
  // The same with its library and addresses; empty: there are none, or the communicator is closed. Waits for a running
  // call.
  std::string network() const;
  // See Membership.
  Status check_thread() const { return members_->check_thread(); }
  // Whether a thread is making a call.
  bool is_running() const { return !std::unique_lock(members_->mutex, std::try_to_lock).owns_lock(); }
  // The ranks, for messages between two of them; until it is closed.
  core::Group& group() { return *members_->group; }
  // For other engines of these ranks. The key is that of the job.
  const std::shared_ptr<Membership>& members() const { return members_; }
  std::string_view key() const { return key_; }
  // See host_carrier.h.
  std::unique_ptr<transport::Carrier> carrier() { return make_carrier(members_); }

  // Prepares a program for this rank, which then runs calls itself. The same program gives the same object, which this
  // communicator keeps until it is closed.
  Result<std::shared_ptr<ProcessProgram>> prepare(const ir::ClassProgram& program, std::uint32_t slots,
                                                  std::uint64_t slot_bytes, const ThresholdChanges& changes = {});

  // From now on runs of this program of AllReduce, which belongs to this communicator, make barriers. Between hosts
  // that takes less time than the group's exchange, which the leaders carry. On all ranks before the same call.
  void meet_by(ProcessProgram& program);

  // All of these are collective.
  // Gives every rank the words of every rank, by rank. `record` says for what; `timeout_s` as of Membership::enter.
  Result<std::vector<std::uint64_t>> exchange(core::CallRecord record, const std::vector<std::uint64_t>& own,
                                              const Interrupted& interrupted = {},
                                              std::optional<double> timeout_s = {});
  // See Membership.
  Status enter(Membership::Turn& turn, std::optional<double> timeout_s) { return members_->enter(turn, timeout_s); }
  // Within a call: gives every rank a few words of every rank, for what is learned while calls run.
  Result<std::vector<core::Group::Payload>> exchange(const Membership::Turn& turn, const core::Group::Payload& own,
                                                     const Interrupted& interrupted);
  Status barrier(const Interrupted& interrupted = {}, std::optional<double> timeout_s = {});
  Result<std::unique_ptr<Communicator>> split(std::optional<std::uint32_t> color, std::int64_t key,
                                              const Interrupted& interrupted = {});
  // See core::Group::subgroup. Calls of this communicator may be running, except close().
  Result<std::unique_ptr<Communicator>> subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                                 std::optional<double> timeout_s, const Interrupted& interrupted,
                                                 bool idle, std::string_view place);
  // See core::Group.
  Status note(const core::CallRecord& record, std::string_view text);
  // See core::Group::shrink. No calls may be running on this rank.
  Result<std::unique_ptr<Communicator>> shrink(std::optional<double> timeout_s, const Interrupted& interrupted,
                                               const Diagnostic* refused);
  // Memory that all ranks can read. It stays valid after close().
  Result<std::shared_ptr<std::uint8_t>> allocate(std::uint64_t bytes);

  // See Membership. Can be called from any thread.
  void abort() { members_->abort(); }
  // Local: waits for the running call, leaves the group and frees all resources.
  void close();

 private:
  Communicator(std::unique_ptr<core::Group> group, HostLinks::Options links);
  Status choose_transport();
  // For a communicator of some of the ranks.
  HostLinks::Options same_transport() const;

  std::uint32_t rank_;
  std::uint32_t size_;
  std::string key_;               // of the job; a copy, because it may be read during close()
  std::vector<pid_t> processes_;  // of the group; copies, too
  std::array<bool, 3> agreed_;
  core::SingleCopy single_copy_;
  core::Group::Placement placement_;
  TransportKind transport_ = TransportKind::none;
  std::shared_ptr<const core::WaitPolicy> wait_policy_;
  std::shared_ptr<Membership> members_;
  std::mutex programs_mutex_;  // of programs_; a program can be prepared while a call runs
  std::vector<std::shared_ptr<ProcessProgram>> programs_;
};

}  // namespace gc3::cpu
