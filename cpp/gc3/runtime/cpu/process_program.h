// The engine of a rank that is a process: the threadblocks of this rank, over the FIFOs of a communicator.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/base/thresholds.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/cpu/average.h"
#include "gc3/runtime/cpu/companion.h"
#include "gc3/runtime/cpu/computing.h"
#include "gc3/runtime/cpu/fifo_pool.h"
#include "gc3/runtime/cpu/host_links.h"
#include "gc3/runtime/cpu/lending.h"
#include "gc3/runtime/cpu/network_block.h"
#include "gc3/runtime/cpu/rank_memory.h"
#include "gc3/runtime/cpu/recording.h"
#include "gc3/runtime/cpu/v_memory.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/engine.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::FifoGeometry;

// The call of one rank; `Call` has the buffers of all ranks.
struct RankCall {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  model::Factor factor = {};             // of premulsum
  std::optional<double> timeout_s = {};  // see Membership::enter

  // But for the buffers, and the time that it may take.
  bool is_alike(const RankCall& other) const {
    return count == other.count && type == other.type && op == other.op &&
           (op != model::ReduceOp::premulsum || factor == other.factor);
  }
  bool has_buffers_of(const RankCall& other) const { return input == other.input && output == other.output; }
};

class ProcessProgram;

// What the programs of a communicator share.
struct Membership {
  // Of a call, from enter() until its end.
  class Turn {
   public:
    Turn() = default;
    ~Turn() {
      if (members_ == nullptr) return;
      members_->caller.store({}, std::memory_order_relaxed);
      members_->mutex.unlock();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    friend struct Membership;
    Membership* members_ = nullptr;
  };

  std::mutex mutex;                                                      // held by a call
  std::atomic<std::thread::id> caller;                                   // the thread that makes it
  std::unique_ptr<core::Group> group;                                    // null once the communicator is closed
  std::unique_ptr<HostLinks> links;                                      // null if all ranks are on one host
  std::unique_ptr<Companion> companion = std::make_unique<Companion>();  // of a call that computes
  std::unique_ptr<FifoPool> fifos;
  core::SingleCopy single_copy;  // never changes, so that it can be read without the mutex
  const pid_t process = getpid();
  ProcessProgram* meets = nullptr;  // makes barriers, see Communicator::meet_by; null: the group does

  // Begins a call, which lasts as long as `turn`; fails if the communicator is closed, or in a call of this thread. It
  // is given up when it makes no progress for `timeout_s`; none: for the time-out of the group.
  Status enter(Turn& turn, std::optional<double> timeout_s = {}) {
    GC3_CHECK(check_thread());
    if (!mutex.try_lock()) GC3_CHECK(wait());
    turn.members_ = this;
    // Relaxed: a thread only asks whether the caller is itself, which no other thread writes.
    caller.store(std::this_thread::get_id(), std::memory_order_relaxed);
    if (group == nullptr) return closed();
    if (timeout_s) GC3_CHECK(core::check_timeout(timeout_s));
    group->limit_calls(timeout_s);
    return {};
  }
  // An error within a call of this thread, as in a signal handler of Python: what waits for the call would never end.
  Status check_thread() const {
    if (caller.load(std::memory_order_relaxed) != std::this_thread::get_id()) return {};  // relaxed: as above
    return nested();
  }
  // The mutex, for what only looks; within a call of this thread, which holds it, nothing.
  std::unique_lock<std::mutex> look();
  // Within a call.
  Status barrier(const core::Interrupted& interrupted) const;

  // Makes the calls of all ranks fail, including running ones. Takes no lock, because the call to be aborted holds it.
  // The communicator must not be closed at the same time.
  void abort() const {
    if (group != nullptr) group->abort();
  }

 private:
  Status wait();  // takes the mutex; an error in a fork, where a thread that does not exist may have it
  static Diagnostic closed();
  static Diagnostic nested();
};

class ProcessProgram final : public interp::Engine<RankCall> {
 public:
  // Local: no other rank takes part. `key` is that of the job, see core/hosts/job.h.
  static Result<std::unique_ptr<ProcessProgram>> create(const ir::Program& program, std::uint32_t rank,
                                                        std::uint32_t slots, std::uint64_t slot_bytes,
                                                        std::string_view key, std::shared_ptr<Membership> members,
                                                        const ThresholdChanges& changes = {});
  // The same of what a reader returned: see ir::runs_alone.
  static Result<std::unique_ptr<ProcessProgram>> create(const ir::ClassProgram& read, std::uint32_t rank,
                                                        std::uint32_t slots, std::uint64_t slot_bytes,
                                                        std::string_view key, std::shared_ptr<Membership> members,
                                                        const ThresholdChanges& changes = {});

  // All of these are collective.
  // Allocates the FIFOs. Without it the first run does so.
  Status load(const core::Interrupted& interrupted = {}, std::optional<double> timeout_s = {});
  Status run(const RankCall& call, const core::Interrupted& interrupted = {}) override;
  // The v-form: blocks of the lengths that the call gives, the same on all ranks. GC3-V012 if the program does not
  // serve it; that is so on all ranks.
  Status run_v(const VRankCall& call, const core::Interrupted& interrupted = {});
  // Runs a program of named tensors on those of this rank; `function` is called for each application of a compute
  // operation. What it raises gives up the group.
  Status compute(const VRankCall& call, Computing::Function function, const core::Interrupted& interrupted = {});
  // The same within a call that has begun, for who decides then which program it is.
  Status load(const Membership::Turn& turn, const core::Interrupted& interrupted);
  Status run(const Membership::Turn& turn, const RankCall& call, const core::Interrupted& interrupted);
  Status run_v(const Membership::Turn& turn, const VRankCall& call, const core::Interrupted& interrupted);
  // As `time`.
  Result<std::vector<double>> time_v(const VRankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                     const core::Interrupted& interrupted = {});
  // After a barrier.
  Result<Recording> record(const RankCall& call, std::size_t most, const core::Interrupted& interrupted = {}) override;
  void abort() override { members_->abort(); }

  // Within a call, of a program of AllReduce: a barrier, since no rank has the sum before all have begun.
  Status meet(const core::Interrupted& interrupted);

  // Within a call: waits until no rank reads this rank's scratch any more. Only then may scratch change
  // or be freed.
  Status get_scratch_back(const core::Interrupted& interrupted);

  // Releases the resources of the job, when the communicator is closed. The object can outlive this, but not run.
  void close() { memory_.close(); }

  // For FifoPool: copies the states of the connections' ends into the tasks, and back for the next program.
  void take();
  void release();

  const interp::Plan& plan() const override { return plan_; }
  std::span<const interp::Task> tasks() const { return tasks_; }
  const FifoGeometry& geometry() const { return geometry_; }
  // Equal on all ranks that run the same program with the same FIFOs. Without the job's key, two files with the same
  // fingerprint cannot be made, so two programs have the same one with probability 2^-64.
  std::uint64_t fingerprint() const { return record_.program; }
  // Whether both were made from the same program with the same FIFOs and thresholds.
  bool is_same(const ProcessProgram& other) const {
    return image_ == other.image_ && geometry_.slots == other.geometry_.slots &&
           geometry_.slot_bytes == other.geometry_.slot_bytes && changes_ == other.changes_;
  }
  // The number of messages of which this rank has written half into the receiver's memory, in all runs so far.
  std::uint64_t halves_written() const { return halves_written_; }

 private:
  ProcessProgram(interp::Plan plan, std::uint32_t rank, std::shared_ptr<Membership> members);
  static Result<std::unique_ptr<ProcessProgram>> create(interp::Plan plan, std::vector<std::byte> image,
                                                        std::uint32_t rank, std::uint32_t slots,
                                                        std::uint64_t slot_bytes, std::string_view key,
                                                        std::shared_ptr<Membership> members,
                                                        const ThresholdChanges& changes);
  core::Group& group() const { return *members_->group; }
  // Each run after a barrier.
  template <class Run>
  Result<std::vector<double>> timed(std::uint32_t warmup, std::uint32_t iterations,
                                    const core::Interrupted& interrupted, Run run);
  Result<std::vector<double>> times(const RankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                    const core::Interrupted& interrupted) override;
  // With a recorder the steps are recorded.
  Status run_locked(const RankCall& call, const core::Interrupted& interrupted, Recorder* recorder = nullptr,
                    core::CallKind kind = core::CallKind::collective);
  Status run_v_locked(const VRankCall& call, const core::Interrupted& interrupted);
  // The bytes of a slot where so many are wanted: not more than `copied_slot` if messages of that size are copied.
  std::uint64_t slot_for(std::uint64_t wanted) const;
  Status bind(const RankCall& call);
  Status open(const core::Interrupted& interrupted);
  std::uint32_t budget_of(const interp::Run& run) const;
  Status bind_v(const VRankCall& call);
  void share_scratch();
  // Announces the call that `record_` describes, and hands `run` its place among all runs.
  Status begin(interp::Run& run, const core::Interrupted& interrupted);
  // Run the threadblocks, on the block for one host or for several; `recorder` may be null.
  Status execute_collective(const Kernel& kernel, Recorder* recorder, const core::Interrupted& interrupted);
  Status execute_v(const Kernel& kernel, const core::Interrupted& interrupted);
  // What the companion does while an operation computes: all that needs no other operation. See Companion::Work.
  int accompany(NetworkBlock& block, Advance<NetworkBlock, interp::VRun> advance);
  template <class R, class Block>
  Status execute(const R& run, std::uint32_t budget, Block& block, Advance<Block, R> advance,
                 const core::Interrupted& interrupted);
  // The ranks that the first `left` of live_ wait for, as Bells has them.
  std::uint32_t awaited(const interp::Run& run, std::size_t left) const;
  void average(const Call& call);
  Diagnostic unreadable(const LendingBlock::Fault& fault) const;
  // Copies a part of a message for a receiver that asks for it. False if there is none.
  bool help(const interp::Run& run, LendingBlock& block);
  // Waits until no receiver needs the lent data any more. Meanwhile helps receivers, if there is a block.
  Status get_back(std::vector<std::uint64_t>& loans, const interp::Run& run, LendingBlock* block,
                  const core::Interrupted& interrupted);
  // After a failed call, for all ranks: ends what is under way to other hosts, and waits until no rank writes into this
  // rank's buffers any more. Returns why the call fails.
  Diagnostic withdraw(const Diagnostic& problem) const;

  interp::Plan plan_;
  std::uint32_t rank_;
  std::shared_ptr<Membership> members_;
  FifoGeometry geometry_;
  ThresholdChanges changes_;  // of those of the job
  core::CallRecord record_;
  std::vector<std::byte> image_;
  RankMemory memory_;
  std::optional<Average> average_;  // made by the first call with avg

  std::vector<const void*> inputs_;  // by rank; null except for this rank
  std::vector<void*> outputs_;
  std::vector<model::Factor> factors_;
  RankCall bound_;  // the call for which memory_ and run_ are prepared
  bool is_bound_ = false;
  std::uint64_t moves_ = 0;  // of the scratch, until then

  std::vector<interp::Task> tasks_;
  std::vector<interp::Counter> semaphores_;
  std::vector<std::uint32_t> live_;       // unfinished tasks
  std::vector<FifoPool::Ends*> senders_;  // per task, the states of its connections while another program runs
  std::vector<FifoPool::Ends*> receivers_;
  LoanAccess access_;
  NetworkEnds network_;  // of a rank that has connections to other hosts
  std::uint64_t spins_ = 0;
  std::vector<std::uint8_t> stage_;  // see LendingBlock
  Loans loans_;
  bool open_ = false;
  bool shares_scratch_ = false;
  interp::Run run_;
  std::optional<VMemory> v_memory_;      // made by the first call of a v-form
  std::optional<Diagnostic> no_v_form_;  // or why there is none
  interp::VRun v_run_;
  Computing computing_;
  Companion::Work meanwhile_;  // what goes on while an operation computes; without `move` nothing
  std::uint32_t v_budget_ = 1;
  std::uint32_t budget_ = 1;     // steps in a task's turn
  bool is_small_ = false;        // see core::Waiter::gather
  std::uint64_t tiles_run_ = 0;  // in all runs so far
  std::uint64_t halves_written_ = 0;
};

}  // namespace gc3::cpu
