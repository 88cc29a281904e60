// The shared memory of a group: a header, and a block for each rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gc3/runtime/core/waiting/bells.h"

namespace gc3::core {

constexpr std::uint64_t kHistory = 64;  // calls that a rank's block records
constexpr std::size_t kMaxReason = 1500;
constexpr double kNoticedAfter = 3.0;  // seconds after which the loss of a host has been noticed
constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::size_t kMostNoted = 248;  // bytes of a text

constexpr std::uint64_t kLeft = 1;
constexpr std::uint64_t kEnded = 2;
constexpr std::uint64_t kAbsent = 3;
constexpr std::uint64_t kComputes = ~std::uint64_t{0};

inline std::uint64_t load(const std::uint64_t& word, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(order);
}
inline void store(std::uint64_t& word, std::uint64_t value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref(word).store(value, order);
}

namespace group_blocks {

// The locations of new groups' memory, for the other ranks of a host. Only who holds the lock writes them. There is no
// most: ranks that make many groups in different orders would wait for each other.
struct Offers {
  struct Offer {
    std::uint64_t key[2];  // of the group, see subgroup.cc
    std::uint64_t from;    // the rank that has made it first
    std::uint64_t offset;  // 0: there is no memory
    std::uint64_t taken;   // ranks that have read it, written last; the last of them frees it. 0: free
  } all[48];
  std::uint64_t more;  // the offset of the next ones; 0: there are none. They are kept until the group is left
};

struct Header {
  std::uint64_t given_up;  // 0: no; 1: the reason is being written; 2: it is written
  std::uint64_t left;      // ranks that will not use the group again
  std::uint64_t code;
  char reason[kMaxReason];
  // Its number of ranks, whose places in the job follow the pipes, and for groups of several hosts see mirror.h.
  std::uint64_t id[2];
  std::uint64_t ranks;
  std::uint64_t bytes;     // of the control memory
  std::uint64_t next;      // see Board::announce
  std::uint64_t released;  // 1: all ranks of this host have left; the leader's thread frees the memory
  std::uint64_t lock;      // of the offers: the rank that holds it plus one, or 0
  Offers offers;

  // False: another has given up the group before.
  bool give_up(std::uint64_t why, const std::string& text) {
    std::uint64_t nobody = 0;
    if (!std::atomic_ref(given_up).compare_exchange_strong(nobody, 1, std::memory_order_relaxed)) return false;
    code = why;
    text.copy(reason, kMaxReason - 1);  // the memory is zeros
    store(given_up, 2, std::memory_order_release);
    return true;
  }
};

// What a rank has called.
struct Recorded {
  std::uint64_t sequence = 0;
  std::uint64_t chain = 0;
  std::uint64_t packed = 0;  // of CallRecord, as the next two
  std::uint64_t count = 0;
  std::uint64_t program = 0;
};

// The place of a recorded call, which one process writes and all read. `sequence` is 0 meanwhile, as in a sequence
// lock.
struct alignas(64) Entry {
  std::uint64_t sequence;
  std::uint64_t chain;
  std::uint64_t packed;
  std::uint64_t count;
  std::uint64_t program;

  void write(const Recorded& call) {
    store(sequence, 0);
    std::atomic_thread_fence(std::memory_order_release);  // nobody sees the new words with the old number
    store(chain, call.chain);
    store(packed, call.packed);
    store(count, call.count);
    store(program, call.program);
    store(sequence, call.sequence, std::memory_order_release);
  }
  // None: it does not have the call any more, or not yet.
  std::optional<Recorded> read(std::uint64_t number) const {
    if (load(sequence, std::memory_order_acquire) != number) return {};
    const Recorded call{number, load(chain), load(packed), load(count), load(program)};
    std::atomic_thread_fence(std::memory_order_acquire);  // what was read is older than the number read below
    if (load(sequence) != number) return {};
    return call;
  }
};

// A text, which one process writes and all read, as `Entry`.
struct Text {
  std::uint64_t noted;    // 0: it is being written
  char text[kMostNoted];  // ends with a zero

  void say(std::uint64_t number, std::string_view what) {
    store(noted, 0);
    std::atomic_thread_fence(std::memory_order_release);  // nobody sees the new text with the old number
    const std::size_t length = std::min<std::size_t>(what.size(), kMostNoted - 1);
    for (std::size_t i = 0; i <= length; ++i) {
      std::atomic_ref(text[i]).store(i < length ? what[i] : char{0}, std::memory_order_relaxed);
    }
    store(noted, number, std::memory_order_release);
  }
  // The text with a number; none: there is none, or another one has been said since.
  std::optional<std::string> said(std::uint64_t number) const {
    if (number == 0 || load(noted, std::memory_order_acquire) != number) return {};
    std::string found;
    for (const char& from : text) {
      const char c = std::atomic_ref(const_cast<char&>(from)).load(std::memory_order_relaxed);
      if (c == 0) break;
      found += c;
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // the text is older than the number read below
    if (load(noted) != number) return {};
    return found;
  }
};

struct alignas(128) RankBlock {
  std::uint64_t begun;     // sequence number of the last call that has begun
  std::uint64_t finished;  // and of the last one that has finished
  // kLeft; kEnded: another rank has left for it; kAbsent: it could not map this memory, and nobody has left for it yet
  std::uint64_t left;
  // An exchange, in one cache line. Normally no other rank reads the members above or the history, so a rank that
  // begins a call has their lines in its own cache.
  struct alignas(64) Turn {
    std::uint64_t number;  // of the exchange; written last
    std::uint64_t chain;
    std::uint64_t payload[4];  // see Group::Payload
  };
  alignas(128) Turn turns[2];
  // Where this rank has been when it began a call, plus one. Written when that changes only.
  alignas(128) std::uint64_t core;
  std::uint64_t waits;  // 1: the caller of the running call waits for it; 0: it was started
  // The rank, plus one, that it awaits to make a group; 0: none. Each such wait has a label of its own, larger than
  // those that it has seen. A rank that awaits another one repeats its label, if that is larger. So one whose own label
  // comes back from the rank that it awaits is in a circle of ranks that all still wait, however late it learns that.
  std::uint64_t awaited;
  std::uint64_t label;
  // kComputes: a function of the caller computes in the running call; else when the last one has ended, in nanoseconds
  // of the host's steady clock.
  std::uint64_t computed;
  Entry history[kHistory];
  Text note;                            // of a call, see Group::note
  Text makes;                           // the group with the label
  alignas(64) std::uint64_t awaits[3];  // see Group::Awaits: what and peer, tag, bytes
};

// After the blocks and the bells, for each pair of ranks: where the memory for messages of one to the other is. Written
// by the sender.
struct Pipe {
  std::uint64_t offset;  // 0: not made yet; written last
  std::uint64_t bytes;
};

// `lists`: with the ranks in the job at the end, as all groups have them but that of all ranks of one host.
inline std::uint64_t control_bytes(std::uint32_t ranks, bool lists) {
  static_assert(sizeof(Header) <= kHeaderBytes);
  return kHeaderBytes + ranks * (sizeof(RankBlock) + ranks * sizeof(Pipe)) + Bells::bytes(ranks) +
         (lists ? ranks * sizeof(std::uint32_t) : 0);
}

}  // namespace group_blocks
}  // namespace gc3::core
