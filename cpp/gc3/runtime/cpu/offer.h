// A copy that sender and receiver share: of a large message that a program only moves, the receiver reads the first
// half out of the sender's memory while the sender, which would otherwise wait, writes the second half into the
// receiver's.
//
// Beside every slot lies an Offer. Once the message has come, the receiver enters where the second half is to go, and
// opens it; a sender that has nothing else to do takes it, writes, and says that it is done. A receiver that is through
// with its half first closes an offer that nobody has taken, and reads that part as well. So nobody ever waits for a
// sender that has not begun.
//
// Where a receiver can no longer read the sender's memory, because one of the two has given up privileges, say, it asks
// by the same Offer for a copy in the slot, as it would have got without the loan. The sender has the data still, and
// looks for such wishes while it waits.
//
// When a call is given up, the receiver's memory is no longer its own as soon as the call returns, but a sender may
// have been stopped right before its system call. That call takes the address from the offer itself, so the receiver
// makes it void (`revoke`), and then waits only for a sender that runs, and may be in the middle of the call.
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
  // Whether it was opened, whatever became of it.
  bool is_of(std::uint64_t step) { return word().load(std::memory_order_relaxed) >> kStateBits == step + 1; }
  // Where the offer stands, now that the receiver has nothing else to do. If it is closed, or was refused, the second
  // half is the receiver's. The acquire pairs with the sender's release: what it wrote is there.
  State close(std::uint64_t step) {
    std::uint64_t seen = pack(step, State::open);
    if (word().compare_exchange_strong(seen, pack(step, State::closed), std::memory_order_acquire)) {
      return State::closed;
    }
    return seen >> kStateBits == step + 1 ? static_cast<State>(seen & kStateMask) : State::closed;
  }
  // Makes sure that nothing is written from now on, except by a system call that has begun: true, if there may be one.
  bool revoke(std::uint64_t step) {
    std::atomic_ref(to_.iov_len).store(0, std::memory_order_seq_cst);  // before the look at the state
    return close(step) == State::taken;
  }

  // The receiver's, where it cannot read what was lent: wants all of the message as a copy in its slot instead, and
  // whether that is there. The release and the acquire go with those of the sender, whose copy lies between them.
  bool ask(std::uint64_t step, std::uint64_t bytes) {
    const std::uint64_t seen = word().load(std::memory_order_acquire);
    if (seen == pack(step, State::copied)) return true;
    if (seen == pack(step, State::asked) || (is_of(step) && close(step) == State::taken)) return false;
    bytes_ = bytes;
    word().store(pack(step, State::asked), std::memory_order_release);
    return false;
  }
  // The sender's: the bytes of message `step` that are wanted as a copy; 0: it is not.
  std::uint64_t asked(std::uint64_t step) {
    return word().load(std::memory_order_acquire) == pack(step, State::asked) ? bytes_ : 0;
  }
  void set_copied(std::uint64_t step) { word().store(pack(step, State::copied), std::memory_order_release); }

  // The sender's: whether the offer of message `step` was open, and is now its own.
  bool take(std::uint64_t step) {
    std::uint64_t expected = pack(step, State::open);
    if (word().load(std::memory_order_relaxed) != expected) return false;
    return word().compare_exchange_strong(expected, pack(step, State::taken), std::memory_order_acquire);
  }
  // Writes into the memory of process `pid`, the receiver; `data`: where the message lies. False: it was not possible.
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
  // Messages of a connection are numbered on and on: an offer of another one is never mistaken for this one's.
  static std::uint64_t pack(std::uint64_t step, State state) {
    return (step + 1) << kStateBits | static_cast<std::uint64_t>(state);
  }
  std::atomic_ref<std::uint64_t> word() { return std::atomic_ref(word_); }

  std::uint64_t word_;
  std::uint64_t first_;
  std::uint64_t bytes_;
  iovec to_;  // read by the sender's system call, and only there
};

// The offers of a connection, one per slot, lie behind the flags and words of its slots.
inline std::uint64_t flags_bytes(std::uint64_t slots) {
  return interp::round_up(slots * 2 * sizeof(std::uint64_t), interp::kCacheLine);
}
inline Offer* offers_of(const std::uint64_t* arrivals, std::uint64_t slots) {
  auto* flags = reinterpret_cast<std::uint8_t*>(const_cast<std::uint64_t*>(arrivals));
  return reinterpret_cast<Offer*>(flags + flags_bytes(slots));
}

}  // namespace gc3::cpu
