// A program as one process runs it: the threadblocks of its own rank, over the FIFOs of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/cpu/average.h"
#include "gc3/runtime/cpu/fifo_pool.h"
#include "gc3/runtime/cpu/lending.h"
#include "gc3/runtime/cpu/rank_memory.h"
#include "gc3/runtime/cpu/recording.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/runtime/interp/fifo_geometry.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cpu {

using interp::FifoGeometry;

// The call of one rank, as Call is that of all.
struct RankCall {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  model::Factor factor = {};  // of premulsum

  bool operator==(const RankCall&) const = default;
};

class ProcessProgram {
 public:
  // Local: no other rank takes part. `key`: of the job, see core/job.h.
  static Result<std::unique_ptr<ProcessProgram>> create(const ir::Program& program, std::uint32_t rank,
                                                        std::uint32_t slots, std::uint64_t slot_bytes,
                                                        std::string_view key);

  ProcessProgram(const ProcessProgram&) = delete;  // its tasks point into it
  ProcessProgram& operator=(const ProcessProgram&) = delete;

  // Collective: gets the FIFOs, which the first run would get otherwise.
  Status load(core::Group& group, FifoPool& pool, const core::Interrupted& interrupted);
  // With a recorder, it is told of the steps.
  Status run(core::Group& group, FifoPool& pool, const RankCall& call, const core::Interrupted& interrupted,
             Recorder* recorder = nullptr);

  // Waits until nobody reads this rank's scratch any more: only then may it change, or be given back.
  Status get_scratch_back(core::Group& group, const core::Interrupted& interrupted);

  // Gives back what it has of the job, which this object must not keep when the communicator is closed: whoever still
  // has the object cannot run it.
  void close() { memory_.close(); }

  // For FifoPool: fetches the ends of the connections, and puts them back for another program to go on with.
  void take();
  void release();

  const interp::Plan& plan() const { return plan_; }
  std::span<const interp::Task> tasks() const { return tasks_; }
  const FifoGeometry& geometry() const { return geometry_; }
  // By this the ranks see whether they run the same program with the same FIFOs. The key keeps anybody from making two
  // files of one fingerprint, so two programs have the same one with probability 2^-64.
  std::uint64_t fingerprint() const { return record_.program; }
  // Whether both were made of one program with the same FIFOs.
  bool is_same(const ProcessProgram& other) const {
    return image_ == other.image_ && geometry_.slots == other.geometry_.slots &&
           geometry_.slot_bytes == other.geometry_.slot_bytes;
  }
  // Messages of which this rank has written half into the receiver's memory, in all runs so far.
  std::uint64_t halves_written() const { return halves_written_; }

 private:
  ProcessProgram(interp::Plan plan, std::uint32_t rank);
  Status bind(const RankCall& call);
  Status open(core::Group& group, FifoPool& pool, const core::Interrupted& interrupted);
  Status execute(core::Group& group, LendingBlock& block, Advance<LendingBlock> advance,
                 const core::Interrupted& interrupted);
  Diagnostic unreadable(const LendingBlock::Fault& fault) const;
  // Does a part of some receiver's work, if there is one that wants it.
  bool help(const LendingBlock& block);
  // Until what was lent is not needed any more; meanwhile helps, if there is a block for that.
  Status get_back(std::vector<std::uint64_t>& loans, core::Group& group, const LendingBlock* block,
                  const core::Interrupted& interrupted);
  // After a call that has failed: until nobody writes into this rank's buffers any more.
  void withdraw_offers(core::Group& group) const;

  interp::Plan plan_;
  std::uint32_t rank_;
  FifoGeometry geometry_;
  core::CallRecord record_;
  std::vector<std::byte> image_;
  RankMemory memory_;
  std::optional<Average> average_;  // made by the first avg

  std::vector<const void*> inputs_;  // of all ranks, null but for this one's
  std::vector<void*> outputs_;
  std::vector<model::Factor> factors_;
  RankCall bound_;  // what memory_ and run_ are set up for
  bool is_bound_ = false;

  std::vector<interp::Task> tasks_;
  std::vector<interp::Counter> semaphores_;
  std::vector<std::uint32_t> live_;       // unfinished tasks
  std::vector<FifoPool::Ends*> senders_;  // per task, where its connections stand when another program runs
  std::vector<FifoPool::Ends*> receivers_;
  LoanAccess access_;
  std::vector<std::uint8_t> stage_;  // see LendingBlock
  Loans loans_;
  bool open_ = false;
  bool shares_scratch_ = false;
  interp::Run run_;
  std::uint32_t budget_ = 1;     // steps of a task's turn
  std::uint64_t tiles_run_ = 0;  // in all runs so far
  std::uint64_t halves_written_ = 0;
};

}  // namespace gc3::cpu
