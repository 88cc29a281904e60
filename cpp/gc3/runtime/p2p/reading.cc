// Receives that read their message where it lies: in the sender's memory, or in memory that all ranks have mapped.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "gc3/base/copy_bytes.h"
#include "gc3/runtime/p2p/messenger.h"

namespace gc3::p2p {
namespace {

// Bytes read at a time, so that other messages are looked at in between.
constexpr std::uint64_t kPiece = std::uint64_t{1} << 20U;

// A sender that is in one of its calls answers within a microsecond, after what it has answered before. One that is not
// may stay away for long, and the receiver waits for its next record at most about as long as it takes to read the
// smallest of these messages.
constexpr std::chrono::microseconds kForAnswer{10};

}  // namespace

bool Messenger::read_some() {
  bool moved = false;
  for (std::size_t i = 0; i < reading_.size();) {
    Reading& reading = reading_[i];
    moved |= read_piece(reading);
    if (reading.request == nullptr) {
      reading_.erase(reading_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return moved;
}

// Whether something was read; without a request afterwards if it reads no more.
bool Messenger::read_piece(Reading& reading) {
  Request& request = *reading.request;
  Incoming& in = in_[reading.source];
  PipeReceiver& pipe = in.pipe;
  if (reading.asked) {
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(reading.parts, in.parts) != in.parts) reading.asked = now;  // it answers, one after the other
    if (now - *reading.asked < kForAnswer) return false;
    if (!pipe.take_back_slot(request.slot, request.serial)) {
      request.state = Request::State::wanted;
      reading.request = nullptr;
      return true;
    }
    in.wanted.erase(request.serial);
    reading.asked.reset();
  }
  const std::uint64_t address = pipe.address(request.slot);
  const std::uint64_t rest = request.got.bytes - request.moved;
  const std::uint64_t bytes = std::min(rest, kPiece);
  const std::uint64_t offset = (address & ~Slot::kShared) + request.moved;
  const auto end_with = [&](int error) {
    const Diagnostic reason(ErrorCode::SystemRefused, group_.who(rank_) + " cannot read the message of " +
                                                          group_.who(reading.source) + ": " + std::strerror(error));
    reading.request = nullptr;
    fail(request, group_.give_up(reason));
    return true;
  };
  if ((address & Slot::kShared) != 0) {
    const std::uint8_t* const from = group_.job()->place(offset, bytes);
    if (from == nullptr) return end_with(EFAULT);
    copy_bytes(request.call.data + request.moved, from, bytes);
    request.moved += bytes;
  } else if (rest != 0) {
    const iovec local{request.call.data + request.moved, bytes};
    const iovec remote{reinterpret_cast<void*>(address + request.moved), bytes};
    const ssize_t got = reads_ ? process_vm_readv(group_.process(reading.source), &local, 1, &remote, 1, 0) : -1;
    if (got <= 0) {
      if (reads_ && got < 0 && errno == ESRCH) return false;  // who waits for it finds out that the sender has ended
      if (reads_ && (got == 0 || errno == EFAULT)) return end_with(EFAULT);
      want(reading.source, request);  // the system refuses
      reading.request = nullptr;
      return true;
    }
    request.moved += static_cast<std::uint64_t>(got);
  }
  if (request.moved < request.got.bytes) return true;
  // What was read is the message if its sender is still there: a process id is used again, and a sender that gives up
  // takes its memory back.
  if (!group_.check().ok() || group_.presence(reading.source) != core::Group::Presence::here) return false;
  pipe.finish_slot(request.slot, request.serial);
  ring(reading.source);
  reading.request = nullptr;
  finish(request);
  return true;
}

}  // namespace gc3::p2p
