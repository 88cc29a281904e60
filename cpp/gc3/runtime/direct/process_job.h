// Runs a direct program on a rank that is a process of a communicator.
//
// Counters and scratch are memory of the group, which exists until all ranks have left it, since a rank may still look
// at them when another has ended its call. Other ranks load and store the caller's arrays where they are in the memory
// that the processes share: each rank says at the begin of a call where its arrays are, and checks what the others say.
// If some array that another rank needs is elsewhere, all ranks run the messages of the same algorithm instead.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/direct/data_mover.h"
#include "gc3/runtime/interp/engine.h"

namespace gc3::direct {

class ProcessJob final : public interp::Engine<cpu::RankCall> {
 public:
  // Local. The program is proven. `messages`: the program of messages of the same algorithm; null: there is none, and
  // calls that need it fail.
  static Result<std::shared_ptr<ProcessJob>> create(const Program& program, const cpu::Communicator& comm,
                                                    std::shared_ptr<cpu::ProcessProgram> messages);

  // Collective.
  Status run(const cpu::RankCall& call, const core::Interrupted& interrupted = {}) override;
  // The same within a call that has begun.
  Status run(const cpu::Membership::Turn& turn, const cpu::RankCall& call, const core::Interrupted& interrupted);
  void abort() override { members_->abort(); }

  const interp::Plan& plan() const override { return plan_; }
  bool is_same(const ProcessJob& other) const {
    return messages_ == other.messages_ && decoded_.program == other.decoded_.program;
  }
  // As of cpu::ProcessProgram.
  std::uint64_t fingerprint() const { return record_.program; }
  // How calls are served, and why the last one was not.
  std::string explain() const;

 private:
  using Turn = cpu::Membership::Turn;
  using Payload = core::Group::Payload;
  // What other ranks do with a rank's input or output.
  enum class Use : std::uint8_t { nothing, loads, stores };

  ProcessJob(Decoded decoded, const cpu::Communicator& comm, std::shared_ptr<cpu::ProcessProgram> messages);
  core::Group& group() const { return *members_->group; }
  void find_uses();
  Result<std::vector<double>> times(const cpu::RankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                    const core::Interrupted& interrupted) override;
  Status run_messages(const Turn& turn, const cpu::RankCall& call, const core::Interrupted& interrupted);
  Status bind(const cpu::RankCall& call);
  // Within a call: makes counters and scratch where they are missing.
  Status open(const core::Interrupted& interrupted);
  // The bytes that other ranks may touch of a buffer; 0: none.
  std::uint64_t reached(std::uint32_t rank, std::size_t buffer) const;
  Status find_buffers(const std::vector<Payload>& said);
  Status execute(const core::Interrupted& interrupted);
  // Whether this rank may touch the buffers of others, for withdraw().
  void enter(bool inside) const;
  // After a failed call: waits until no rank that runs stores to this rank's buffers any more.
  void withdraw() const;

  Decoded decoded_;
  interp::Plan plan_;
  std::uint32_t rank_;
  std::shared_ptr<cpu::Membership> members_;
  std::shared_ptr<cpu::ProcessProgram> messages_;
  core::CallRecord record_;
  std::vector<std::array<Use, 2>> uses_;  // by rank, of input and output
  bool stores_ = false;                   // whether there are some

  cpu::RankMemory memory_;
  std::optional<cpu::Average> average_;  // made by the first call with avg
  std::vector<const void*> inputs_;      // by rank; null except for this rank
  std::vector<void*> outputs_;
  std::vector<model::Factor> factors_;
  cpu::RankCall bound_;  // the call for which the next three are
  bool is_bound_ = false;
  Shape shape_;
  std::uint64_t block_bytes_ = 0;  // the distance of two blocks of a buffer, copied or not
  Payload own_ = {};               // where input and output of this rank are

  core::Mapping counters_;  // of the program, and for each rank whether it is inside a call
  core::Mapping scratch_;
  std::vector<std::uint64_t> scratch_at_;  // by rank
  std::size_t stride_ = 0;                 // of its chunks
  std::optional<Machine> machine_;
  std::vector<RankBuffers> buffers_;
  std::vector<Payload> said_;  // of the call for which they are
  std::string why_messages_;   // of the last call; empty: it was served by the program
};

}  // namespace gc3::direct
