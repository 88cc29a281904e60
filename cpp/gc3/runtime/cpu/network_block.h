// The block of a rank some of whose connections lead to other hosts. Messages on these are sent from where they lie, in
// the caller's memory if the step may lend them, and received into private slots; all others go as in LendingBlock.
// What `Lending` does for both is compiled a second time for this block, so a communicator of one host executes none of
// this.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/cpu/host_links.h"
#include "gc3/runtime/cpu/lending.h"

namespace gc3::cpu {

// The connections of a program's tasks that lead to other hosts; null: the task has none.
struct NetworkEnds {
  HostLinks* links = nullptr;
  std::vector<transport::Outlet*> outlets;  // by threadblock
  std::vector<transport::Inlet*> inlets;
};

class NetworkBlock : public LendingBlock {
 public:
  NetworkBlock(const NetworkEnds& ends, Kernel kernel, const LoanAccess& access, std::vector<std::uint8_t>& stage,
               Loans& loans)
      : LendingBlock(kernel, access, stage, loans), ends_(ends), transport_(ends.links->transport()) {}

  std::uint64_t lend(const interp::Task& task, Loan use, const std::uint8_t* at, std::uint64_t bytes,
                     bool from_scratch) {
    if (ends_.outlets[task.tb] == nullptr) return LendingBlock::lend(task, use, at, bytes, from_scratch);
    return transport::kElsewhere | reinterpret_cast<std::uintptr_t>(at);
  }
  // Sends the message of a task, from its slot or from where it was lent. False: its receiver is on this host.
  bool put(const interp::Run& run, interp::Task& task, std::uint64_t lent, std::uint64_t bytes) {
    transport::Outlet* const outlet = ends_.outlets[task.tb];
    if (outlet == nullptr) return false;
    const std::uint8_t* const from = lent != 0 ? reinterpret_cast<const std::uint8_t*>(lent & ~transport::kElsewhere)
                                               : interp::slot_of(run, task.send);
    settle();  // what was streamed is read by the system
    transport_.send(*outlet, interp::flag_of(run, task.send.step), from, bytes);
    interp::next_slot(run, task.send);
    return true;
  }
  // Whether the message that a task receives is as long as its step.
  bool is_whole(const interp::Task& task, std::uint64_t due) {
    const transport::Inlet* const inlet = ends_.inlets[task.tb];
    if (inlet == nullptr || inlet->lengths[task.recv.slot] == due) return true;
    ends_.links->note_length(*inlet, inlet->lengths[task.recv.slot], due);
    return false;
  }
  void taken(const interp::Task& task) {
    if (transport::Inlet* const inlet = ends_.inlets[task.tb]) transport_.take(*inlet);
  }
  // The message that the task waits for need not go through its slot.
  void expect(const interp::Task& task, const interp::Piece& to) {
    transport::Inlet* const inlet = ends_.inlets[task.tb];
    if (inlet == nullptr || to.bytes < kLeastExpected) return;
    inlet->expected = task.recv.step;
    inlet->expected_at = to.at;
    inlet->expected_bytes = to.bytes;
  }
  bool is_own(const interp::Task& task, std::uint64_t) const { return ends_.inlets[task.tb] != nullptr; }
  const std::uint8_t* place(const interp::Task& task, std::uint64_t loan) const {
    if (!is_own(task, loan)) return LendingBlock::place(task, loan);
    return reinterpret_cast<const std::uint8_t*>(loan & ~transport::kElsewhere);
  }

  static constexpr std::uint64_t kLeastExpected = 4096;

  bool progress() { return transport_.progress(); }
  // Readable when progress() has work, if nothing moves and arm() is called before.
  int descriptor() const { return transport_.wake_descriptor(); }
  bool arm() { return transport_.arm(); }
  // Whether all that was sent has left the caller's memory.
  bool idle() const { return transport_.idle(); }

 private:
  const NetworkEnds& ends_;
  transport::Transport& transport_;
};

// The waits of such a rank: for other hosts it sleeps on the network, else as ranks of one host do.
class NetworkWait final : public core::Waiter::Elsewhere {
 public:
  // `live`: the unfinished tasks, of which the first `left` count.
  NetworkWait(const NetworkEnds& ends, std::span<const interp::Task> tasks, std::span<const std::uint32_t> live,
              const std::size_t& left)
      : ends_(ends), tasks_(tasks), live_(live), left_(left) {}

  bool sleep(std::chrono::nanoseconds at_most) override {
    transport::Transport& transport = ends_.links->transport();
    if (awaited().empty() && transport.idle()) return false;
    if (!transport.arm()) return true;
    pollfd waiting{transport.wake_descriptor(), POLLIN, 0};
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(at_most);
    const timespec limit{s.count(), (at_most - s).count()};
    ppoll(&waiting, 1, &limit, nullptr);
    return true;
  }
  // Why the wait will not end; none: it may.
  std::optional<Diagnostic> problem() const {
    if (ends_.links->transport().failures().empty()) return {};
    return ends_.links->problem(awaited());
  }

 private:
  // The ranks of other hosts without which a task cannot go on.
  std::vector<std::uint32_t> awaited() const {
    std::vector<std::uint32_t> peers;
    for (std::size_t i = 0; i < left_; ++i) {
      const interp::Task& task = tasks_[live_[i]];
      const transport::Inlet* const inlet = ends_.inlets[task.tb];
      const transport::Outlet* const outlet = ends_.outlets[task.tb];
      if (task.waiting == interp::Waiting::input && inlet != nullptr) peers.push_back(inlet->peer);
      if (task.waiting == interp::Waiting::credit && outlet != nullptr) peers.push_back(outlet->peer);
    }
    return peers;
  }

  const NetworkEnds& ends_;
  std::span<const interp::Task> tasks_;
  std::span<const std::uint32_t> live_;
  const std::size_t& left_;
};

}  // namespace gc3::cpu
