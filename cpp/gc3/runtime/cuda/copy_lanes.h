// Executes a program whose messages copy engines move: the protocol Copy.
//
// Every threadblock of the program has a lane: a stream with its steps in order. A step waits for its dependencies by
// events, and for its message and a free slot by stream memory operations on the words of CopyFifos. Then copies move
// the data: a send into the slot in the receiver's memory, a receive out of it. Before the data a word is copied that
// says whether the sender was stopped; behind it the tag and the number of the message are written, with a barrier. A
// receiver waits for all three, and once more for the first when it has the data.
//
// The lanes of all ranks here get their operations in one order, in which no operation waits for a later one. So it
// does no harm if the driver puts several streams into one queue of the device, or if a full queue makes the host wait.
// The branches of a CUDA graph have no such order, and a graph repeats numbers; calls that are captured use the
// kernels.
//
// Behind the lanes a kernel of one thread watches them, see device/guard.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/copy_fifos.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/cuda/device/guard.h"
#include "gc3/runtime/interp/operands.h"
#include "gc3/runtime/interp/plan.h"

namespace gc3::cuda {

// A step of a threadblock, an index of the plan.
struct LaneStep {
  std::uint32_t tb = 0;
  std::uint32_t step = 0;
};

// The order in which the steps of a tile are submitted; none if some step waits for ever.
std::optional<std::vector<LaneStep>> order_of_lanes(const interp::Plan& plan, std::uint32_t slots);

// The lanes of the ranks that run on one device.
class CopyLanes {
 public:
  // `threadblocks`: those with steps. `arenas`: of all ranks, by their addresses on this device.
  static Result<std::unique_ptr<CopyLanes>> create(const interp::Plan& plan, const CopyFifos& fifos,
                                                   const std::shared_ptr<Device>& device,
                                                   const std::vector<std::uint32_t>& ranks,
                                                   const std::vector<std::uint32_t>& threadblocks,
                                                   const std::vector<std::uint8_t*>& arenas);

  // What a launch has besides its steps.
  struct Launched {
    interp::Run run;
    const Buffers* buffers = nullptr;  // of each of the ranks
    std::uint64_t count = 0;           // elements of a block
    Halt* halt = nullptr;
    Stand* stands = nullptr;
    Control* control = nullptr;
    std::uint64_t timeout_ns = 0;
    CUfunction guard = nullptr;
    CUstream stream = nullptr;  // that of the call
  };
  // Begins a launch behind what the stream has to do, adds the steps, and lets the stream wait for their end. `end`
  // must follow whatever else fails: without the guard nothing ends the waits of the lanes.
  Status begin(const Launched& launch);
  Status add(LaneStep step, std::uint64_t tile);
  Status end();
  // After a failure: as if nothing had been sent. No launch may be running.
  void reset();
  bool has(std::uint32_t tb) const { return lane_of_[tb] != kNone; }

 private:
  // An end of a connection.
  struct End {
    std::uint64_t* counter = nullptr;   // messages taken out, in the sender's memory
    std::uint64_t* arrivals = nullptr;  // per slot
    std::uint64_t* tags = nullptr;
    std::uint64_t* spoilt = nullptr;
    std::uint8_t* slots = nullptr;
    std::uint64_t messages = 0;  // sent or received so far
  };
  struct OneLane {
    Stream stream;
    Event ended;
    std::uint32_t rank = 0;  // index of the ranks here
    std::uint64_t* own_spoilt = nullptr;
    End send;
    End recv;
  };

  CopyLanes(const interp::Plan& plan, const CopyFifos& fifos, std::shared_ptr<Device> device)
      : plan_(plan), fifos_(fifos), device_(std::move(device)) {}
  End end_of(std::uint32_t connection, const std::vector<std::uint8_t*>& arenas) const;
  interp::Piece piece(const OneLane& lane, const interp::Operand& operand, const interp::Message& message,
                      std::uint64_t segment) const;
  Status operate(const OneLane& lane, std::vector<MemoryOperation>& operations) const;
  Status wait_for_steps(std::size_t at, LaneStep step, std::uint64_t tile);
  Status move(const OneLane& lane, const interp::Step& step, std::uint64_t tile) const;
  Status copy(const OneLane& lane, const void* to, const void* from, std::uint64_t bytes) const;
  Lane* place(std::size_t lane) const { return reinterpret_cast<Lane*>(places_.data()) + lane; }

  const interp::Plan& plan_;
  const CopyFifos& fifos_;
  std::shared_ptr<Device> device_;
  std::vector<std::uint32_t> lane_of_;  // by threadblock, or kNone
  std::vector<OneLane> lanes_;
  std::vector<Event> published_;  // by step of the plan; only those that others wait for
  Stream guard_stream_;
  Event begun_;
  Event guarded_;
  Memory places_;  // Lane of each
  Memory guarded_ranks_;
  std::uint32_t rank_count_ = 0;
  std::uint64_t launches_ = 0;
  Launched launch_;
};

}  // namespace gc3::cuda
