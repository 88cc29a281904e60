// Messages between two ranks of a group: sends and receives that are matched by rank and tag, beside the group's calls.
//
// Messages from one rank to another with tags that a receive takes are received in the order in which they were sent.
// A short message is copied into the pipe and the send is done. The receiver keeps such messages until they are asked
// for; what it has not asked for of one sender is bounded, and beyond the bound the sender keeps its messages. A long
// message is read from the sender's memory, or goes through the pipe once it is asked for.
//
// Progress is made by whoever sends, receives or tests, for all requests of the messenger, and by whoever waits for
// anything of the job, a collective as well, for all that were started.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/shared_memory.h"
#include "gc3/runtime/core/waiter.h"
#include "gc3/runtime/p2p/held.h"
#include "gc3/runtime/p2p/host_pipes.h"
#include "gc3/runtime/p2p/pipe.h"
#include "gc3/runtime/p2p/request.h"

namespace gc3::p2p {

// How long a call may stand still. None: as long as the group's may, and then the group is given up; a limit of one
// call ends only that call if its message has not begun to move.
struct WaitLimits {
  std::optional<double> timeout_s = {};
  core::Interrupted interrupted = {};
};

class Messenger final : public core::Pending::Work {
 public:
  // `hosts`: see HostPipes::create.
  explicit Messenger(core::Group& group, std::unique_ptr<HostPipes> hosts = {});
  ~Messenger();
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // From any thread. After a failure that concerns the group every later call fails for the same reason. `type`: of
  // Operation.
  Status send(const void* data, std::uint64_t bytes, std::uint32_t to, std::int32_t tag, const WaitLimits& limits = {},
              std::uint32_t type = 0);
  Result<Envelope> receive(void* data, std::uint64_t bytes, std::uint32_t source, std::int32_t tag,
                           const WaitLimits& limits = {}, std::uint32_t type = 0);
  // The same of a message that may be of any length.
  Result<Whole> receive_whole(std::uint32_t source, std::int32_t tag, const WaitLimits& limits = {},
                              std::uint32_t type = 0);
  // All of them at once, so that their order does not matter; what the receives have got, and the sends have sent.
  Result<std::vector<Envelope>> run(std::span<const Operation> operations, const WaitLimits& limits = {});

  // Starts one and returns. `notify` is called by a thread of the messenger when it is done. `got`: a short message
  // that need not wait is sent or received without a request, and null is returned.
  Result<std::shared_ptr<Request>> start(const Operation& operation, std::function<void(const Request&)> notify = {},
                                         Envelope* got = nullptr);
  // Does it, if it is valid and a short message can be sent or received without waiting. If not, nothing has happened;
  // start() says what is wrong.
  bool at_once(const Operation& operation, Envelope& got);
  // Waits until a request that was started is done; GC3-R003 if that takes longer, and then it goes on.
  Status wait(Request& request, const WaitLimits& limits = {});
  // Whether it is done, successfully or not.
  bool test(Request& request);

  // Whether one that was started is not done yet.
  bool busy();
  // Progress of those that were started, unless another thread makes some.
  bool go_on() override;
  // Whether this thread calls the functions of requests, for which close() waits.
  bool notifies_here() const;

  // Ends the waits of other threads and the receives that were started, and waits until what was sent has left.
  void close(const core::Interrupted& interrupted = {});

 private:
  // What goes to a rank.
  struct Outgoing {
    core::Mapping memory;
    PipeSender pipe;
    std::deque<Request*> waiting;                        // in the order of their calls
    std::unordered_map<std::uint64_t, Request*> offers;  // by serial
    std::vector<Request*> in_slots;                      // those of the offers that the receiver can take
    std::vector<std::uint32_t> free_slots;
    std::deque<Request*> wanted;
    // What this rank says of messages in the other direction.
    struct Reply {
      RecordKind kind;
      MessageHead head;
    };
    std::deque<Reply> replies;
    std::uint64_t serial = 0;
    std::uint64_t eager = 0;  // messages of at most so many bytes are sent unasked
  };
  // What comes from a rank.
  struct Incoming {
    core::Mapping memory;
    PipeReceiver pipe;
    HeldMessages held;
    std::uint32_t withdrawable = 0;  // of the held ones
    // The message whose records are arriving, and where it goes: a receive, a held message, or nowhere.
    std::uint64_t rest = 0;
    Request* into = nullptr;
    Held* keeps = nullptr;
    std::unordered_map<std::uint64_t, Request*> wanted;  // by serial
    std::uint64_t parts = 0;                             // of such messages, that have come
    // Of another host: what it has sent unasked, what of it was given to the caller, and what of this it knows.
    std::uint64_t unasked = 0;
    std::uint64_t taken = 0;
    std::uint64_t told = 0;
    std::size_t offered = 0;  // of the held ones
  };
  // A receive that reads from the memory of a sender.
  struct Reading {
    Request* request;
    std::uint32_t source;
    std::optional<std::chrono::steady_clock::time_point> asked = {};  // the sender may send it instead, since then
    std::uint64_t parts = 0;                                          // that had come from it by then
  };
  // A word that another rank changes when it goes on with a request.
  struct Sign {
    const Request* request;
    std::uint64_t* at;
    std::uint64_t value;

    // relaxed: it is only a sign.
    bool shows() const { return word(*at).load(std::memory_order_relaxed) != value || request->is_done(); }
  };
  class Watch;
  class LaneWatch;
  class HandOver;
  class Inside;

  // messenger.cc, arriving.cc and reading.cc: matching and moving, all under the lock.
  // The lock, for a call of any thread; an error if the messenger is closed, or in a fork. Before that, nothing of the
  // group may be used.
  Result<std::unique_lock<std::mutex>> enter();
  Status check(const Operation& operation) const;
  // After something was posted for a rank, or room was made for what it sends.
  void ring(std::uint32_t rank) const {
    if (bells_[rank] != nullptr) bells_[rank]->ring();
  }
  Diagnostic of_another_process() const;
  Status begin(Request& request);
  Status begin_send(Request& request);
  Status open(std::uint32_t to);
  void begin_receive(Request& request);
  bool do_at_once(const Operation& call, Envelope& got);
  bool send_at_once(const Operation& call);
  bool receive_at_once(const Operation& call, Envelope& got);
  // For all requests; nothing is taken out of a pipe once `until` is done.
  bool advance(const Request* until = nullptr);
  bool find_pipe(std::uint32_t source);
  bool drain(std::uint32_t source, const Request* until);
  bool drain_host(std::uint32_t source, const Request* until);
  std::string defect(std::uint32_t source, const Record& record) const;
  void arrive(std::uint32_t source, const Record& record);
  void arrive_first(std::uint32_t source, const MessageHead& head, const std::uint8_t* data, std::uint64_t bytes);
  void arrive_more(Incoming& in, const std::uint8_t* data, std::uint64_t bytes);
  void arrive_part(Incoming& in, const MessageHead& head, const std::uint8_t* data, std::uint64_t bytes);
  void arrive_offer(std::uint32_t source, const MessageHead& head);
  void arrive_want(std::uint32_t source, const MessageHead& head);
  void arrive_gone(Incoming& in, const MessageHead& head);
  void taken(std::uint32_t source, std::uint64_t cost);
  bool apart(std::uint32_t rank) const { return hosts_ != nullptr && hosts_->apart(rank); }
  bool pump(std::uint32_t to);
  bool leave(Outgoing& out, Request& request);
  bool settle_offers(Outgoing& out);
  bool send_wanted(std::uint32_t to);
  void free_slot(Outgoing& out, Request& request);
  void want(std::uint32_t source, Request& request);
  bool read_some();
  bool read_piece(Reading& reading);
  Request* find_posted(std::uint32_t source, std::int32_t tag) const;
  bool find_held(Request& request);
  bool take(std::uint32_t source, Held& held, Request& request);
  bool take_offer(std::uint32_t source, const MessageHead& head, Request& request);
  bool fits(std::uint32_t source, const MessageHead& head, Request& request);
  void finish(Request& request);
  void fail(Request& request, const Diagnostic& problem);

  // waits.cc and started.cc: waiting, and why it ends.
  Status complete(std::span<Request* const> requests, const WaitLimits& limits, bool withdraws);
  static bool shows_soon(const Sign& sign);
  std::optional<Sign> sign_for(std::span<Request* const> requests);
  // Takes a request back that nobody else works on. False: somebody does.
  bool withdraw(Request& request);
  // Takes it back after the group was given up: nobody uses its buffer then.
  void abandon(Request& request, const Diagnostic& problem);
  std::optional<Diagnostic> loss(const Request& request) const;
  std::optional<Diagnostic> broken(const Request& request) const;
  bool arm();
  // What was sent to ranks on other hosts moves while this rank does something else: carry() is a thread's, which
  // carry_on() wakes. Whether something has not left is known under the lock.
  bool has_unsent() const;
  void carry_on();
  void carry();
  // Waits until ranks on other hosts have what was sent to them.
  void hand_over(const core::Interrupted& interrupted);
  std::string circle_through(std::uint32_t peer) const;
  Diagnostic overdue(const Request& request, double waited_s) const;
  std::string wish(const Request& request) const;
  Status look_at(std::span<Request* const> requests, const core::Interrupted& interrupted);
  void serve();

  core::Group& group_;
  std::uint32_t rank_;
  std::unique_ptr<HostPipes> hosts_;    // null: all ranks are on one host
  std::vector<core::Doorbell*> bells_;  // by rank; null: on another host
  std::uint64_t eager_;                 // messages of at most so many bytes are sent unasked
  bool reads_;                          // whether ranks can read each other's memory
  std::uint64_t least_read_;            // bytes of messages that are read at once
  std::uint64_t beyond_caches_;         // of those that two cores copy faster than one reads them from memory
  bool spins_;                          // whether each rank has a core

  std::mutex mutex_;  // of the next ones
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
  RequestList<&Request::as_posted> posted_;  // receives without a message, in the order of their calls
  std::uint32_t unlooked_ = 0;               // receives that were started since one has looked for messages
  std::vector<Reading> reading_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t own_held_ = 0;                    // bytes that this rank has sent itself
  RequestList<&Request::as_started> started_;     // those that are not done
  std::chrono::steady_clock::time_point looked_;  // by test()
  std::vector<std::shared_ptr<Request>> to_notify_;
  std::condition_variable to_notify_changed_;
  std::thread carrier_;
  std::condition_variable unsent_changed_;
  bool carrier_ends_ = false;
  std::thread lane_;  // calls the functions of requests

  std::atomic<bool> begun_ = false;          // whether started_ has some
  std::atomic<std::uint32_t> inside_ = 0;    // threads
  std::atomic<std::uint32_t> entering_ = 0;  // threads that wait for the lock in enter()
  std::atomic<bool> closing_ = false;
};

}  // namespace gc3::p2p
