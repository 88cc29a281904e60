// A communicator of NCCL as one of its ranks sees it, and what ranks tell each other through it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/nccl/real.h"
#include "gc3/runtime/cuda/runtime.h"

namespace gc3::nccl {

struct Member {
  Comm comm = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::shared_ptr<cuda::Runtime> runtime;
  std::shared_ptr<cuda::Device> device;
  cuda::Stream stream;                    // for exchanges
  cuda::Memory memory;                    // likewise
  std::atomic<bool> aborted{false};       // by any thread; ends an exchange
  std::atomic<bool> non_blocking{false};  // known after the first exchange: NCCL has said ncclInProgress

  mutable std::mutex handle;  // see Held

  ~Member();

  Status alive() const;  // fails if the communicator was aborted
  // By any thread. NCCL's handle may be freed afterwards.
  void abort();
  // Whether a non-blocking communicator has not ended its last call; NCCL refuses further ones.
  bool in_progress() const;
  // Asks NCCL for the rank; fails while a non-blocking communicator is being made.
  static Result<std::unique_ptr<Member>> of(Comm comm, const std::shared_ptr<cuda::Runtime>& runtime);
};

// Keeps an abort from freeing NCCL's handles while this thread uses them. NCCL must not wait meanwhile, so this is so
// for non-blocking communicators only; their calls go on in a thread of the overlay, so that the user cannot know when
// it is in NCCL. Otherwise it is in NCCL as the caller's thread is without the overlay.
class Held {
 public:
  // Fails if the communicator was aborted.
  Status add(const Member& member);

 private:
  std::vector<std::unique_lock<std::mutex>> locks_;
};

inline constexpr std::size_t kMessageBytes = 512;

// What one rank tells all others: its own message, and those of all ranks afterwards.
struct Message {
  Member* of;
  std::vector<std::byte> own;
  std::vector<std::vector<std::byte>> all = {};
};

// All ranks of every communicator exchange a message, by an ncclAllGather of each. A thread that makes the calls of
// several ranks gives their messages at once. `begin` makes NCCL's calls, and returns NCCL's answer; `end` waits for
// the other ranks, at most for `timeout_s`.
Result<int> begin_telling(std::span<Message> messages);
Status end_telling(std::span<Message> messages, int answer, double timeout_s);
Status tell_all(std::span<Message> messages, double timeout_s);
// Waits until a non-blocking communicator has ended its last call.
Status wait_for_last(const Member& member, double timeout_s);

template <class T>
Message message_of(Member& member, const T& content) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMessageBytes);
  Message made{&member, std::vector<std::byte>(kMessageBytes)};
  std::memcpy(made.own.data(), &content, sizeof content);
  return made;
}
template <class T>
T content_of(const Message& message, std::uint32_t rank) {
  T content;
  std::memcpy(&content, message.all[rank].data(), sizeof content);
  return content;
}

// A text of limited length, as part of a message. Empty: no problem.
struct Problem {
  char text[256] = {};

  void set(const Diagnostic& diagnostic);
  bool none() const { return text[0] == 0; }
  std::string str() const { return std::string(text, strnlen(text, sizeof text)); }
};

}  // namespace gc3::nccl
