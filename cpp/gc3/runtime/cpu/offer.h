// A copy that sender and receiver share: of a large message that a program only moves, the receiver reads the first
// half from the sender's memory while the sender, which would otherwise wait, writes the second half to the receiver's
// memory.
//
// Each slot has an Offer. Once the message has arrived, the receiver enters the destination of the second
// half and opens the offer. A sender that would otherwise wait takes it, writes, and marks it done. When the receiver
// has finished its half, it closes an offer that has not been taken, and reads that part as well. So the receiver never
// waits for a sender that has not begun.
//
// If a receiver can no longer read the sender's memory, for example because one of the two has given up privileges, it
// asks by the same Offer for a copy in the slot, as without the loan. The sender still has the data, and checks for
// such requests while it waits.
//
// After an aborted call the receiver's memory belongs to its caller again, but a sender may have been stopped right
// before its system call. That call takes the address from the offer itself, so the receiver clears it (`revoke`), and
// then waits only for a sender that is running and may be in the middle of the call.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>

#include "gc3/runtime/interp/layout.h"

namespace gc3::cpu {

class alignas(64) Offer {
 public:
  enum class State : std::uint8_t { open, taken, written, refused, closed, asked, copied };

  // The receiver's, of message `step`: `at` is where the message's byte `first` goes in its memory.
  void open(std::uint64_t step, void* at, std::uint64_t first, std::uint64_t bytes) {
    first_ = first;
    bytes_ = bytes;
    to_ = {at, bytes};
    word().store(pack(step, State::open), std::memory_order_release);
  }
  // Whether it was opened, whatever its state is now.
  bool is_of(std::uint64_t step) { return word().load(std::memory_order_relaxed) >> kStateBits == step + 1; }
  // The state of the offer when the receiver has finished its half. If it is closed, or was refused, the second half is
  // the receiver's. The acquire pairs with the sender's release: the data it wrote is visible.
  State close(std::uint64_t step) {
    std::uint64_t seen = pack(step, State::open);
    if (word().compare_exchange_strong(seen, pack(step, State::closed), std::memory_order_acquire)) {
      return State::closed;
    }
    return seen >> kStateBits == step + 1 ? static_cast<State>(seen & kStateMask) : State::closed;
  }
  // Ensures that nothing is written from now on, except by a system call that has begun: true, if there may be one.
  bool revoke(std::uint64_t step) {
    std::atomic_ref(to_.iov_len).store(0, std::memory_order_seq_cst);  // before the state is read
    return close(step) == State::taken;
  }

  // Called by a receiver that cannot read a loan: requests the whole message as a copy in its slot instead; returns
  // whether the copy is there. The release and the acquire pair with those of the sender, whose copy is between them.
  bool ask(std::uint64_t step, std::uint64_t bytes) {
    const std::uint64_t seen = word().load(std::memory_order_acquire);
    if (seen == pack(step, State::copied)) return true;
    if (seen == pack(step, State::asked) || (is_of(step) && close(step) == State::taken)) return false;
    bytes_ = bytes;
    word().store(pack(step, State::asked), std::memory_order_release);
    return false;
  }
  // Called by the sender: the bytes of message `step` that are requested as a copy; 0: none.
  std::uint64_t asked(std::uint64_t step) {
    return word().load(std::memory_order_acquire) == pack(step, State::asked) ? bytes_ : 0;
  }
  void set_copied(std::uint64_t step) { word().store(pack(step, State::copied), std::memory_order_release); }

  // Called by the sender: whether the offer of message `step` was open, and is now its own.
  bool take(std::uint64_t step) {
    std::uint64_t expected = pack(step, State::open);
    if (word().load(std::memory_order_relaxed) != expected) return false;
    return word().compare_exchange_strong(expected, pack(step, State::taken), std::memory_order_acquire);
  }
  // Writes into the memory of process `pid`, the receiver; `data`: the address of the message. False: it was not
  // possible.
  bool write(std::uint64_t step, pid_t pid, const std::uint8_t* data) {
    const iovec from{const_cast<std::uint8_t*>(data) + first_, bytes_};
    const ssize_t written = process_vm_writev(pid, &from, 1, &to_, 1, 0);
    const bool all = written >= 0 && static_cast<std::uint64_t>(written) == bytes_;
    word().store(pack(step, all ? State::written : State::refused), std::memory_order_release);
    return all;
  }

 private:
  static constexpr unsigned kStateBits = 3;
  static constexpr std::uint64_t kStateMask = (1U << kStateBits) - 1;
  // Messages of a connection are numbered without restarting, so an offer of another message is never mistaken for this
  // one's.
  static std::uint64_t pack(std::uint64_t step, State state) {
    return (step + 1) << kStateBits | static_cast<std::uint64_t>(state);
  }
  std::atomic_ref<std::uint64_t> word() { return std::atomic_ref(word_); }

  std::uint64_t word_;
  std::uint64_t first_;
  std::uint64_t bytes_;
  iovec to_;  // read by the sender's system call, and only there
};

// The offers of a connection, one per slot, follow the flags and loan words of its slots.
inline std::uint64_t flags_bytes(std::uint64_t slots) {
  return interp::round_up(slots * 2 * sizeof(std::uint64_t), interp::kCacheLine);
}
inline Offer* offers_of(const std::uint64_t* arrivals, std::uint64_t slots) {
  auto* flags = reinterpret_cast<std::uint8_t*>(const_cast<std::uint64_t*>(arrivals));
  return reinterpret_cast<Offer*>(flags + flags_bytes(slots));
}

}  // namespace gc3::cpu
