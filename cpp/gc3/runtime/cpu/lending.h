// The Simple protocol between processes, with loans: instead of copying a large message into a slot, the sender gives
// its address, and the receiver reads the data there. That saves the sender's copy and the transfer through the FIFO.
// The steps say which messages may be lent (loans.h); all others go through the slots.
//
// A message's loan word, beside its flag, is 0 for data in the slot. Otherwise it is a location: in the job's shared
// memory, which the receiver has mapped, or an address in the sender's memory, from which process_vm_readv copies. A
// bit of it says that the sender would do half of the copy (offer.h).
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/thresholds.h"
#include "gc3/runtime/core/hosts/job.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/cpu/cpu_block.h"
#include "gc3/runtime/cpu/loans.h"
#include "gc3/runtime/cpu/offer.h"
#include "gc3/runtime/interp/v_run.h"

namespace gc3::cpu {

// What a rank can lend, and how it can borrow.
struct LoanAccess {
  const core::Job* job = nullptr;  // whose shared memory all ranks can read; none: it is not used
  // The size in bytes from which the receiver reads a message from the memory of this process; by Loan.
  std::array<std::uint64_t, 3> least_remote = {Thresholds::kNever, Thresholds::kNever, Thresholds::kNever};
  std::uint64_t least_helped = Thresholds::kNever;
  bool helps = false;            // does half of the copying of its loans: it can write, and would otherwise wait
  std::vector<pid_t> processes;  // by rank
  std::vector<int> pidfds;       // by rank; -1 for this one
  // A word of the job: not 0 once some rank cannot read another's memory any more. From then on everything is copied.
  std::uint64_t* copies = nullptr;
  std::vector<std::uint32_t> senders;        // by threadblock: the rank that it receives from
  std::vector<Loan> may_lend;                // by step of this rank
  const interp::Step* first_step = nullptr;  // the first of these
};

// Loans of a rank that have not been returned: for each of its tasks, how many messages must have been received.
struct Loans {
  std::vector<std::uint64_t> buffers;  // before the call returns: they are the caller's
  std::vector<std::uint64_t> scratch;  // before the program runs again, or gives its scratch back
};

class LendingBlock : public CpuBlock {
 public:
  // Bytes read from another process at a time if they are reduced or forwarded: they stay in the L2 cache until then.
  static constexpr std::uint64_t kPiece = 128 * 1024;
  // Smaller messages are faster through a slot than by a wait for the receiver's acknowledgement, or by a system call,
  // particularly if sender and receiver often share a core, whose caches still hold the slot.
  static constexpr std::uint64_t kLeastLoan = 4096;
  // No rank waits for the acknowledgement of a loan from scratch before the next run of the program.
  static constexpr std::uint64_t kLeastKept = 512;

  template <class Protocol>
  static constexpr std::size_t stage_bytes() {
    return CpuBlock::stage_bytes<Protocol>();
  }

  LendingBlock(Kernel kernel, const LoanAccess& access, std::vector<std::uint8_t>& stage, Loans& loans)
      : CpuBlock(kernel), access_(access), stage_(stage), loans_(loans) {}

  // The loan word for these bytes; 0: they must be copied.
  std::uint64_t lend(const interp::Task&, Loan use, const std::uint8_t* at, std::uint64_t bytes, bool from_scratch) {
    if (bytes < (from_scratch ? kLeastKept : kLeastLoan)) return 0;
    const std::uint64_t offset = access_.job != nullptr ? access_.job->offset_of(at) : core::Window::kNowhere;
    if (offset != core::Window::kNowhere) return kShared | offset;
    const bool halved = access_.helps && use == Loan::moved && bytes >= access_.least_helped;
    if ((bytes < access_.least_remote[static_cast<std::size_t>(use)] && !halved) || wants_copies()) return 0;
    const std::uint64_t helped = halved ? kHelped : 0;
    return kRemote | helped | reinterpret_cast<std::uintptr_t>(at);
  }
  static bool is_shared(std::uint64_t loan) { return !is_remote(loan) && loan != 0; }
  static bool is_remote(std::uint64_t loan) { return (loan & kRemote) != 0; }
  static bool is_helped(std::uint64_t loan) { return (loan & kHelped) != 0; }
  // Whether this many bytes of shared memory can be lent at this address.
  bool holds(std::uint64_t loan, std::uint64_t bytes) const {
    return access_.job != nullptr && access_.job->place(loan & ~kShared, bytes) != nullptr;
  }
  // The address in this process of a loan in shared memory.
  const std::uint8_t* place(const interp::Task&, std::uint64_t loan) const {
    return access_.job->place(loan & ~kShared, 0);
  }
  // Copies a loan from another process's memory. False: the sender has ended, does not let this process read any more
  // (then wants_copies), or its memory does not exist (then fault).
  bool fetch(std::uint8_t* to, std::uint32_t sender, std::uint64_t loan, std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      const iovec local{to + done, bytes - done};
      const iovec remote{address(loan) + offset + done, bytes - done};
      const ssize_t got = process_vm_readv(access_.processes[sender], &local, 1, &remote, 1, 0);
      if (got <= 0) {
        note_refusal(sender, got < 0 ? errno : EFAULT);
        return false;
      }
      done += static_cast<std::uint64_t>(got);
    }
    // The process id may have been reused; the pidfd still refers to the same process.
    return lives(sender);
  }
  bool wants_copies() const {
    return access_.copies != nullptr && std::atomic_ref(*access_.copies).load(std::memory_order_relaxed) != 0;
  }
  // What a block does for connections to other hosts, see network_block.h: sends a message, checks one that was
  // received, returns its slot, and says where the next one goes. Here they are nothing.
  static constexpr bool put(const interp::Run&, interp::Task&, std::uint64_t, std::uint64_t) { return false; }
  static constexpr bool is_whole(const interp::Task&, std::uint64_t) { return true; }
  static constexpr void taken(const interp::Task&) {}
  static constexpr void expect(const interp::Task&, const interp::Piece&) {}
  // Whether a message that the task receives is in memory of this process, outside its slot.
  static constexpr bool is_own(const interp::Task&, std::uint64_t) { return false; }

  // Why a loan could not be read, if asking for a copy would not help.
  struct Fault {
    std::uint32_t sender;
    int error;
  };
  const std::optional<Fault>& fault() const { return fault_; }
  // The location of a loan is invalid.
  void note_fault(std::uint32_t sender) { fault_ = Fault{sender, EFAULT}; }
  // Copies a message for which a copy was requested into its slot. False: there was no request.
  bool copy_where_asked(const interp::Run& run, const interp::Task& task) const {
    bool copied = false;
    if (task.send.head == nullptr) return copied;
    for (std::uint64_t step = await(task.send.head, 0); step < task.send.step; ++step) {
      const std::uint64_t slot = step % run.slots;
      const std::uint64_t loan = task.send.arrivals[2 * slot + 1];  // this rank's own word
      Offer& offer = offers_of(task.send.arrivals, run.slots)[slot];
      const std::uint64_t bytes = is_remote(loan) ? offer.asked(step) : 0;
      if (bytes == 0 || bytes > run.slot_bytes) continue;
      copy_bytes(task.send.slots + slot * run.slot_stride, address(loan), bytes);
      offer.set_copied(step);
      copied = true;
    }
    return copied;
  }
  // Does half of the copy of a message that this task has lent to `receiver`. False: no half was offered, or it cannot
  // be written.
  bool help(const interp::Run& run, const interp::Task& task, std::uint32_t receiver) {
    if (!access_.helps || task.send.head == nullptr) return false;
    for (std::uint64_t step = await(task.send.head, 0); step < task.send.step; ++step) {
      const std::uint64_t slot = step % run.slots;
      const std::uint64_t loan = task.send.arrivals[2 * slot + 1];  // this rank's own word
      Offer& offer = offers_of(task.send.arrivals, run.slots)[slot];
      if (!is_helped(loan) || !lives(receiver) || !offer.take(step)) continue;
      const bool written = offer.write(step, access_.processes[receiver], address(loan));
      has_posted_ |= !written;
      return written;
    }
    return false;
  }

  std::uint32_t sender_to(const interp::Task& task) const { return access_.senders[task.tb]; }
  Loan may_lend(const interp::Step& step) const {
    return access_.may_lend[static_cast<std::size_t>(&step - access_.first_step)];
  }

  // For a piece of a loan in another process's memory that has to be reduced or forwarded, or that the system would
  // copy slowly to where it goes, see lags(). It begins at the byte of a page at which the loan does.
  std::uint8_t* stage(std::uint64_t loan) {
    constexpr std::uint64_t kPage = 4096;
    if (stage_.empty()) stage_.resize(kPiece + kPage);
    const auto begin = reinterpret_cast<std::uintptr_t>(stage_.data());
    return stage_.data() + (reinterpret_cast<std::uintptr_t>(address(loan)) - begin) % kPage;
  }
  static bool is_slow_to(const std::uint8_t* to, std::uint64_t loan) { return lags(to, address(loan)); }

  // Whether any of the caller's memory was lent, or anything borrowed, since the block was made.
  bool has_lent() const { return has_lent_; }
  bool has_borrowed() const { return has_borrowed_; }
  // The message that the task sends next. Scratch that is not memory of the job may vanish with this process.
  void note_lent(const interp::Task& task, bool from_scratch, std::uint64_t loan) {
    const bool kept = from_scratch && is_shared(loan);
    (kept ? loans_.scratch : loans_.buffers)[task.tb] = task.send.step + 1;
    has_lent_ |= !kept;
  }
  void note_borrowed() { has_borrowed_ = true; }
  // Whether the rank has posted something since the last call: a message to a rank of this host, a request for a copy,
  // or that it cannot write its half of one.
  bool take_posted() { return std::exchange(has_posted_, false); }
  void note_posted() { has_posted_ = true; }

 private:
  void note_refusal(std::uint32_t sender, int error) {
    if (error == EPERM || error == EACCES || error == ENOSYS) {
      // Relaxed: a rank that sees it late lends once more, and is asked for a copy.
      std::atomic_ref(*access_.copies).store(1, std::memory_order_relaxed);
    } else if (error != ESRCH && error != EINTR && !fault_) {
      fault_ = Fault{sender, error};
    }
  }
  bool lives(std::uint32_t rank) const {
    pollfd watched = core::watch_for_end(access_.pidfds[rank]);
    return poll(&watched, 1, 0) == 0 || !core::has_ended(watched);
  }

  static constexpr std::uint64_t kShared = std::uint64_t{1} << 62U;
  static constexpr std::uint64_t kRemote = std::uint64_t{1} << 63U;
  static constexpr std::uint64_t kHelped = std::uint64_t{1} << 61U;

  static std::uint8_t* address(std::uint64_t loan) {
    return reinterpret_cast<std::uint8_t*>(loan & ~(kRemote | kHelped));
  }

  const LoanAccess& access_;
  std::vector<std::uint8_t>& stage_;
  Loans& loans_;
  bool has_lent_ = false;
  bool has_borrowed_ = false;
  bool has_posted_ = false;
  std::optional<Fault> fault_;
};

struct Lending : interp::Simple {
  // The rest of a step whose send takes no work.
  template <class S>
  using Kept = interp::Shape<S::receives, false, S::writes && S::reads, S::writes, S::writes && S::reduces>;

  // The rest of a step whose message has arrived where the step puts it.
  template <class S>
  using InPlace = interp::Shape<S::sends, S::sends, false, false, false>;

  // The flag of the message that a task receives next; the word after it is the loan of its sender.
  static const std::uint64_t* arrival_of(const interp::Task& task) {
    return task.recv.arrivals + std::size_t{2} * task.recv.slot;
  }
  static bool has_come(const interp::Run& run, const interp::Task& task) {
    return CpuBlock::await_flag(arrival_of(task), interp::flag_of(run, task.recv.step));
  }

  // interp::transfer for this protocol.
  template <class S, class Block, class R>
  static bool exchange(Block& block, const R& run, interp::Task& task, const interp::Step& step) {
    std::uint64_t borrowed = 0;
    if constexpr (S::receives) {
      if (!has_come(run, task)) {
        if (S::writes && !S::reads && task.waiting != interp::Waiting::input) expect<S>(block, run, task, step);
        task.waiting = interp::Waiting::input;
        return false;
      }
      borrowed = std::atomic_ref(const_cast<std::uint64_t&>(arrival_of(task)[1])).load(std::memory_order_relaxed);
      if (borrowed != 0) block.note_borrowed();
      if (LendingBlock::is_remote(borrowed) && block.wants_copies()) {
        const std::uint64_t bytes = bytes_of(message_of(run, task.tile, step));
        Offer& offer = offers_of(task.recv.arrivals, run.slots)[task.recv.slot];
        const bool asked = offer.asked(task.recv.step) != 0;
        if (!offer.ask(task.recv.step, bytes)) {
          if (!asked && offer.asked(task.recv.step) != 0) block.note_posted();
          task.waiting = interp::Waiting::input;
          return false;
        }
        borrowed = 0;
      }
    }
    if constexpr (S::sends) {
      if (!interp::credit_ready(block, run, task.send)) {
        task.waiting = interp::Waiting::credit;
        return false;
      }
    }
    const auto message = message_of(run, task.tile, step);
    if constexpr (S::receives) {
      if (!block.is_whole(task, bytes_of(message))) {
        task.waiting = interp::Waiting::input;
        return false;
      }
    }
    std::uint64_t lent = 0;
    if constexpr (S::sends && (S::writes || !S::receives)) lent = loan_of<S>(block, run, task, step, message);
    bool moved = false;
    if (S::receives && S::writes && !S::reads && is_in_place(block, run, task, step, message, borrowed)) {
      moved = lent != 0 || move<InPlace<S>>(block, run, task, step, message, borrowed);
    } else {
      moved = lent != 0 ? move<Kept<S>>(block, run, task, step, message, borrowed)
                        : move<S>(block, run, task, step, message, borrowed);
    }
    if (!moved) {
      task.waiting = interp::Waiting::input;
      return false;
    }
    if constexpr (S::sends) {
      if (!block.put(run, task, lent, bytes_of(message))) hand_over<S>(block, run, task, step, message, lent);
    }
    if constexpr (S::receives) {
      interp::release_slot(block, run, task.recv);
      block.taken(task);
    }
    return true;
  }

 private:
  // Says where the message goes that a step waits for, if that is one place.
  template <class S, class Block, class R>
  static void expect(Block& block, const R& run, const interp::Task& task, const interp::Step& step) {
    const auto message = message_of(run, task.tile, step);
    if (message.segments != 1) return;
    const interp::Piece to = whole_target(run, task, step, message);
    if (to.bytes == bytes_of(message)) block.expect(task, to);
  }
  template <class Block, class R, class M>
  static bool is_in_place(const Block& block, const R& run, const interp::Task& task, const interp::Step& step,
                          const M& message, std::uint64_t borrowed) {
    return borrowed != 0 && block.is_own(task, borrowed) && message.segments == 1 &&
           block.place(task, borrowed) == whole_target(run, task, step, message).at;
  }

  // Hands a message to a rank of this host.
  template <class S, class R, class M>
  static void hand_over(LendingBlock& block, const R& run, interp::Task& task, const interp::Step& step,
                        const M& message, std::uint64_t lent) {
    std::uint64_t* arrival = task.send.arrivals + std::size_t{2} * task.send.slot;
    std::atomic_ref(arrival[1]).store(lent, std::memory_order_relaxed);
    if (lent != 0) {
      block.note_lent(task, lends_scratch<S>(step), lent);
      CpuBlock::settle();  // data streamed into a buffer must be visible before it is lent
    }
    CpuBlock::store_flag(arrival, interp::flag_of(run, task.send.step));  // release: the data and the word first
    block.note_posted();
    interp::next_slot(run, task.send);
    if (lent == 0) CpuBlock::expect_write(interp::slot_of(run, task.send), bytes_of(message));
  }
  template <class S, class Block, class R, class M>
  static std::uint64_t loan_of(Block& block, const R& run, const interp::Task& task, const interp::Step& step,
                               const M& message) {
    const Loan use = block.may_lend(step);
    if (use == Loan::none || message.segments != 1) return 0;
    const interp::Piece whole =
        S::writes ? whole_target(run, task, step, message) : whole_source(run, task, step, message);
    return whole.bytes == bytes_of(message) ? block.lend(task, use, whole.at, whole.bytes, lends_scratch<S>(step)) : 0;
  }
  template <class S>
  static bool lends_scratch(const interp::Step& step) {
    return (S::writes ? step.dst : step.src).buffer == 2;
  }

  // All pieces of a message, from where an earlier attempt has stopped.
  template <class S, class Block, class R, class M>
  static bool move(Block& block, const R& run, interp::Task& task, const interp::Step& step, const M& message,
                   std::uint64_t borrowed) {
    if constexpr (!S::receives && !S::sends && !S::writes) return true;
    const std::uint64_t total = bytes_of(message);
    const bool remote = LendingBlock::is_remote(borrowed);
    if (!block.is_own(task, borrowed) && LendingBlock::is_shared(borrowed) && !block.holds(borrowed, total)) {
      block.note_fault(block.sender_to(task));
      return false;
    }
    if constexpr (S::receives && !S::sends && !S::reads) {
      if (remote && message.segments == 1) {
        const interp::Piece to = whole_target(run, task, step, message);
        if (!LendingBlock::is_slow_to(to.at, borrowed)) return fetch_straight(block, run, task, to, message, borrowed);
      }
    }
    const std::uint64_t piece = remote ? LendingBlock::kPiece : total;
    for (; task.offset < total; task.offset += piece) {
      const std::uint64_t offset = task.offset;
      const std::uint64_t bytes = interp::least(piece, total - offset);
      const std::uint8_t* in = nullptr;
      if constexpr (S::receives) {
        if (remote) {
          std::uint8_t* const stage = block.stage(borrowed);
          if (!block.fetch(stage, block.sender_to(task), borrowed, offset, bytes)) return false;
          in = stage;
        } else {
          in = (borrowed != 0 ? block.place(task, borrowed) : interp::slot_of(run, task.recv)) + offset;
        }
      }
      std::uint8_t* out = nullptr;
      if constexpr (S::sends) out = interp::slot_of(run, task.send) + offset;
      move_piece<S>(block, run, task, step, message, offset, bytes, in, out);
    }
    task.offset = 0;
    return true;
  }

  // A message that is only received, in one piece: with one system call, or, if the sender helps, with one for half of
  // it.
  template <class R, class M>
  static bool fetch_straight(LendingBlock& block, const R& run, interp::Task& task, const interp::Piece& to,
                             const M& message, std::uint64_t borrowed) {
    std::uint64_t own = to.bytes;  // to be read by this rank
    if (LendingBlock::is_helped(borrowed) && to.bytes == bytes_of(message)) {
      Offer& offer = offers_of(task.recv.arrivals, run.slots)[task.recv.slot];
      own = first_half(to.at, to.bytes);
      if (!offer.is_of(task.recv.step)) offer.open(task.recv.step, to.at + own, own, to.bytes - own);
      if (task.offset < own) {
        if (!block.fetch(to.at, block.sender_to(task), borrowed, 0, own)) return false;
        task.offset = own;
      }
      const Offer::State state = offer.close(task.recv.step);
      if (state == Offer::State::taken) return false;
      if (state != Offer::State::written) own = to.bytes;
    }
    const std::uint64_t first = task.offset;
    if (!block.fetch(to.at + first, block.sender_to(task), borrowed, first, own - first)) return false;
    task.offset = 0;
    return true;
  }
  // So that no page has parts of both halves.
  static std::uint64_t first_half(const std::uint8_t* at, std::uint64_t bytes) {
    constexpr std::uint64_t kPage = 4096;
    const std::uint64_t half = bytes / 2;
    return half - (reinterpret_cast<std::uintptr_t>(at) + half) % kPage;
  }
};

}  // namespace gc3::cpu
