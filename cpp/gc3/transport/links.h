// The connections of a communicator between ranks on different hosts. Such a connection has a FIFO at each end, in
// private memory: the sender's, from which messages are sent, and the receiver's, into which they arrive. Two events
// go over the network: data, which sets the flag of a slot at the receiver, and credit, which advances the head at the
// sender.
//
// Whatever a peer says is checked here, whichever transport has carried it. Flags and heads need no order between
// threads, because one thread at a time advances the network and the threadblocks of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::transport {

// The number of a connection, the same at both ends.
using LinkId = std::uint32_t;

// What a slot's second word says about its message: it is in this rank's memory, at the address in the other bits. 0:
// it is in the slot.
inline constexpr std::uint64_t kElsewhere = std::uint64_t{1} << 60U;

// The receiver's end.
struct Inlet {
  std::uint32_t peer = 0;
  LinkId link = 0;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_stride = 0;
  std::uint8_t* data = nullptr;       // the slots
  std::uint64_t* arrivals = nullptr;  // two words per slot: the flag, and where the message is

  std::uint64_t arrived = 0;           // messages that have arrived completely
  std::uint64_t taken = 0;             // messages that the interpreter has taken out
  std::uint64_t credited = 0;          // of these, known to the sender
  std::vector<std::uint64_t> begun;    // per slot: the number, plus one, of the message that has last begun to arrive
  std::vector<std::uint64_t> lengths;  // per slot: of that message, in bytes
  std::vector<void*> held;             // per slot: what is given back to the transport when the message is taken; null

  // Where the step that waits for message `expected` puts it: it may arrive there, instead of in its slot.
  std::uint64_t expected = std::numeric_limits<std::uint64_t>::max();
  std::uint8_t* expected_at = nullptr;
  std::uint64_t expected_bytes = 0;

  // Half of the slots at once, so that most messages need no message for their credit; but at once to a sender that has
  // used all its credit, or programs that need every slot would wait for ever.
  bool owes_credit() const {
    const std::uint64_t owed = taken - credited;
    return owed != 0 && (2 * owed >= slots || arrived - credited >= slots);
  }
};

// The sender's end.
struct Outlet {
  std::uint32_t peer = 0;
  LinkId link = 0;
  std::uint32_t slots = 0;
  std::uint64_t* head = nullptr;  // messages that the receiver has taken out, as far as known
  std::uint64_t sent = 0;
};

// The number of a message, from its flag, which counts from 1 and has the run's tag in the upper bits.
inline constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << 48U) - 1;

class Links {
 public:
  Inlet& add(Inlet inlet);
  Outlet& add(Outlet outlet);

  // A message of `bytes` with this flag begins to arrive from `peer`. The inlet, or what is wrong with it.
  Result<Inlet*> begin(std::uint32_t peer, LinkId link, std::uint64_t flag, std::uint64_t bytes);
  // Where a message that has begun goes: to where it is expected, or into its slot.
  static std::uint8_t* place_of(const Inlet& inlet, std::uint64_t flag, std::uint64_t bytes);
  static std::uint64_t number_of(std::uint64_t flag) { return (flag & kNumberMask) - 1; }
  // It has arrived at `at`, in its slot or elsewhere.
  static void finish(Inlet& inlet, std::uint64_t flag, const void* at);
  // `peer` has taken so many messages out.
  Status credit(std::uint32_t peer, LinkId link, std::uint64_t taken);

  const std::vector<std::unique_ptr<Inlet>>& inlets() const { return inlets_; }

  // Instead of refusing data for an unknown connection: adds its inlet. Null: there is none.
  using Open = std::function<Inlet*(std::uint32_t peer, LinkId link)>;
  void open_inlets_by(Open open) { open_ = std::move(open); }

 private:
  std::vector<std::unique_ptr<Inlet>> inlets_;  // those of this rank, in the order of their numbers
  std::vector<std::unique_ptr<Outlet>> outlets_;
  Open open_;
};

}  // namespace gc3::transport
