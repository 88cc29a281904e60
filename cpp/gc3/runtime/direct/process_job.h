// Runs a direct program on a rank that is a process of a communicator.
//
// Counters and scratch are memory of the group, which exists until all ranks have left it, since a rank may still look
// at them when another has ended its call. Other ranks load and store the caller's arrays where they are in the memory
// that the processes share. Each rank says where they are before the signals with which it begins a call, and a rank
// reads that before its first move to or from them. The proof orders both: a move comes after the begin of the call on
// the rank whose arrays it touches, and before the end of it. So no rank waits for all others at the begin.
//
// If some array that another rank needs is elsewhere, all ranks run the messages of the same algorithm. They agree on
// that in the first call, after each call that was served so, and in every kBetween-th other one. Between these, and
// where there are no messages, a rank runs on a copy of an array that is elsewhere.
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
  friend struct TestForger;
  using Use = Decoded::Use;

  ProcessJob(Decoded decoded, const cpu::Communicator& comm, std::shared_ptr<cpu::ProcessProgram> messages);
  core::Group& group() const { return *members_->group; }
  Result<std::vector<double>> times(const cpu::RankCall& call, std::uint32_t warmup, std::uint32_t iterations,
                                    const core::Interrupted& interrupted) override;
  Status run_messages(const Turn& turn, const cpu::RankCall& call, const core::Interrupted& interrupted);
  // `copies`: of arrays that others need and do not reach.
  Status bind(const cpu::RankCall& call, bool copies);
  Status bind_to(const cpu::RankCall& call, std::array<bool, 2> copied);
  // Within a call: makes counters and scratch where they are missing.
  Status open(const core::Interrupted& interrupted);
  // The bytes that other ranks may touch of a buffer; 0: none.
  std::uint64_t reached(std::uint32_t rank, std::size_t buffer) const;
  // Whether the ranks agree in this call on how it is served, which is on all ranks the same. Stores to scratch of
  // other ranks come even before these have begun the call.
  bool agrees() const { return decoded_.stores_to_scratch || (messages_ != nullptr && calls_left_ == 0); }
  // Whether the program serves the call; if not, why_messages_ says why.
  Result<bool> agree(const core::Interrupted& interrupted);
  // Before a step: where the arrays of other ranks are that it touches. False: problem_ says why they are not known.
  bool find_buffers(const Step& step);
  Status find_buffers(std::uint32_t rank);
  Status execute(const core::Interrupted& interrupted);
  // What this rank tells others: `inside` a call it may touch their buffers, see withdraw().
  struct alignas(interp::kCacheLine) Said {
    std::uint64_t inside;
    std::array<std::uint64_t, 2> at;  // offsets of its arrays
  };
  Said& said(std::uint32_t rank) const {
    return reinterpret_cast<Said*>(counters_.data() + Counters::bytes(decoded_.program))[rank];
  }
  Status enter() const;
  void leave() const;
  // After a failed call: waits until no rank that runs stores to this rank's buffers any more.
  void withdraw() const;

  Decoded decoded_;
  interp::Plan plan_;
  std::uint32_t rank_;
  std::shared_ptr<cpu::Membership> members_;
  std::shared_ptr<cpu::ProcessProgram> messages_;
  core::CallRecord record_;
  bool stores_ = false;  // whether some rank stores to an input or an output of another

  cpu::RankMemory memory_;
  std::optional<cpu::Average> average_;  // made by the first call with avg
  std::vector<const void*> inputs_;      // by rank; null except for this rank
  std::vector<void*> outputs_;
  std::vector<model::Factor> factors_;
  cpu::RankCall bound_;  // the call for which the next ones are
  bool is_bound_ = false;
  std::array<bool, 2> copied_ = {};  // input and output, because others do not reach them
  Shape shape_;
  std::uint64_t block_bytes_ = 0;          // the distance of two blocks of a buffer, copied or not
  std::array<std::uint64_t, 2> own_ = {};  // where input and output of this rank are

  core::Mapping counters_;  // of the program, and what each rank says
  core::Mapping scratch_;
  std::vector<std::uint64_t> scratch_at_;  // by rank
  std::size_t stride_ = 0;                 // of its chunks
  std::optional<Machine> machine_;
  std::vector<RankBuffers> buffers_;
  struct Found {
    bool now = false;                      // in this call
    std::array<std::uint64_t, 2> at = {};  // what was found last, and how long that is; 0: nothing
    std::array<std::uint64_t, 2> bytes = {};
  };
  std::vector<Found> found_;  // by rank
  std::optional<Diagnostic> problem_;
  static constexpr std::uint32_t kBetween = 32;
  std::uint32_t calls_left_ = 0;  // before the ranks agree again
  std::string why_messages_;      // of the last call; empty: it was served by the program
};

}  // namespace gc3::direct
