// One send or receive, from its call to its end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/result.h"
#include "gc3/model/types.h"
#include "gc3/runtime/core/waiting/wait_policy.h"
#include "gc3/runtime/p2p/pipe.h"

namespace gc3::p2p {

inline constexpr std::uint32_t kAnySource = ~std::uint32_t{0};
inline constexpr std::int32_t kAnyTag = -1;

struct Operation {
  enum class Kind : std::uint8_t { send, receive };
  Kind kind = Kind::send;
  std::uint8_t* data = nullptr;  // that of a send is only read
  std::uint64_t bytes = 0;       // of a receive: at most so many
  std::uint32_t peer = 0;        // or kAnySource
  std::int32_t tag = 0;          // 0 or more, or kAnyTag
  std::uint32_t type = 0;        // of the elements, see type_of()
  bool whole = false;            // of a receive: its message gets memory when it has come, as much as it needs
};

// A pickled object has kObject, as in gc3.datatypes. Types that the engine does not have have numbers that do not fit
// into the word of a record, which the caller makes of their names; 0 is one without a name.
inline constexpr std::uint32_t kObject = kTypesInWord - 1;
inline std::uint32_t type_of(model::DataType type) { return 1 + static_cast<std::uint32_t>(type); }
static_assert(model::kDataTypes.size() < kObject);

inline Operation send_of(const void* data, std::uint64_t bytes, std::uint32_t to, std::int32_t tag,
                         std::uint32_t type = 0) {
  return {Operation::Kind::send, static_cast<std::uint8_t*>(const_cast<void*>(data)), bytes, to, tag, type};
}
inline Operation receive_of(void* data, std::uint64_t bytes, std::uint32_t source, std::int32_t tag,
                            std::uint32_t type = 0) {
  return {Operation::Kind::receive, static_cast<std::uint8_t*>(data), bytes, source, tag, type};
}

// What was sent, or has been received.
struct Envelope {
  std::uint32_t peer = 0;
  std::int32_t tag = 0;
  std::uint64_t bytes = 0;

  // How many elements of a size; an error if it is no whole number of them.
  Result<std::uint64_t> count(std::uint64_t element) const {
    if (bytes % element == 0) return bytes / element;
    return Diagnostic(ErrorCode::BadBuffer, "a message of " + std::to_string(bytes) + " bytes from rank " +
                                                std::to_string(peer) + " with tag " + std::to_string(tag) +
                                                " is no whole number of elements of " + std::to_string(element) +
                                                " bytes");
  }
};

// A message with the memory that it got.
struct Whole {
  Envelope got;
  std::unique_ptr<std::uint8_t[]> data;
};

// Its buffer belongs to it until it is done. All members but `done` are the Messenger's until then, and guarded by its
// lock.
class Request {
 public:
  explicit Request(const Operation& operation) : call(operation), got{operation.peer, operation.tag, operation.bytes} {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // acquire: the result and the buffer are the caller's afterwards.
  bool is_done() const { return done.load(std::memory_order_acquire); }
  // Once it is done.
  Status status() const { return ended; }

  enum class State : std::uint8_t {
    waiting,   // a send that has not left, a receive without a message
    offered,   // a send whose message the receiver has to take
    incoming,  // a receive whose message arrives in records
    reading,   // a receive that reads its message from the sender's memory
    wanted,    // either: the message goes through records because the receiver has asked for it
  };

  Operation call;
  Envelope got;
  std::unique_ptr<std::uint8_t[]> memory;  // of a `whole` one
  State state = State::waiting;
  std::uint32_t slot = ~std::uint32_t{0};      // of an offer
  std::uint64_t serial = 0;                    // of an offer
  std::uint64_t moved = 0;                     // bytes
  core::WaitClock since{{}};                   // of one that was started, with a `notify`
  Status ended;                                // how
  std::function<void(const Request&)> notify;  // called by the Messenger's thread once it is done
  std::atomic<bool> done = false;

  // Places in lists.
  struct Links {
    Request* before = nullptr;
    Request* next = nullptr;
    bool listed = false;
  };
  Links as_posted;
  Links as_started;
  std::shared_ptr<Request> self;  // of one that was started and is not done
};

// Requests in the order in which they came.
template <Request::Links Request::* place>
class RequestList {
 public:
  Request* first() const { return first_; }
  static Request* after(const Request& request) { return (request.*place).next; }
  void push_back(Request& request) {
    request.*place = {last_, nullptr, true};
    (last_ != nullptr ? (last_->*place).next : first_) = &request;
    last_ = &request;
  }
  void push_front(Request& request) {
    request.*place = {nullptr, first_, true};
    (first_ != nullptr ? (first_->*place).before : last_) = &request;
    first_ = &request;
  }
  // Whether it was in it.
  bool erase(Request& request) {
    const Request::Links links = std::exchange(request.*place, {});
    if (!links.listed) return false;
    (links.before != nullptr ? (links.before->*place).next : first_) = links.next;
    (links.next != nullptr ? (links.next->*place).before : last_) = links.before;
    return true;
  }

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
};

}  // namespace gc3::p2p
