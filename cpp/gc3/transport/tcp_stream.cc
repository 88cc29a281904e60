#include "gc3/transport/tcp_stream.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/mix64.h"

namespace gc3::transport {

// The header of a frame, in the byte order that both ranks have.
struct TcpStream::Frame {
  static constexpr std::uint32_t kData = 0x47433301;
  static constexpr std::uint32_t kCredit = 0x47433302;

  std::uint32_t kind;
  LinkId link;
  std::uint64_t number;  // data: the flag; credit: the messages taken
  std::uint32_t bytes;
  std::uint32_t check;

  std::uint32_t sum() const {
    return static_cast<std::uint32_t>(mix64((std::uint64_t{kind} << 32U | link) ^ mix64(number ^ mix64(bytes))));
  }
};

void TcpStream::add(std::uint32_t kind, LinkId link, std::uint64_t number, const std::uint8_t* from,
                    std::uint64_t bytes) {
  static_assert(sizeof(Frame) == sizeof(Output::header));
  if (mute_) {
    lost_ |= kind == Frame::kData;
    return;
  }
  Frame frame{kind, link, number, static_cast<std::uint32_t>(bytes), 0};
  frame.check = frame.sum();
  Output& out = output_.emplace_back();
  std::memcpy(out.header, &frame, sizeof frame);
  out.data = from;
  out.bytes = bytes;
  out.done = 0;
}

void TcpStream::add_data(LinkId link, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) {
  add(Frame::kData, link, flag, from, bytes);
}
void TcpStream::add_credit(LinkId link, std::uint64_t taken) { add(Frame::kCredit, link, taken, nullptr, 0); }

bool TcpStream::flush() {
  bool moved = false;
  while (!output_.empty()) {
    std::array<iovec, 64> parts;
    std::size_t count = 0;
    std::size_t wanted = 0;
    const auto add_part = [&](const std::uint8_t* at, std::uint64_t bytes) {
      if (bytes == 0) return;
      parts[count++] = {const_cast<std::uint8_t*>(at), bytes};
      wanted += bytes;
    };
    for (const Output& out : output_) {
      if (count + 2 > parts.size()) break;
      const std::uint64_t head = std::min<std::uint64_t>(out.done, sizeof out.header);
      add_part(out.header + head, sizeof out.header - head);
      add_part(out.data + (out.done - head), out.bytes - (out.done - head));
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      // What the peer has sent before can still be received.
      if (broken_.empty()) broken_ = std::strerror(errno);
      mute_ = true;
      lost_ = std::ranges::any_of(output_, [](const Output& out) { return out.data != nullptr; });
      output_.clear();
      return moved;
    }
    moved = true;
    auto left = static_cast<std::uint64_t>(sent);
    while (left != 0) {
      Output& out = output_.front();
      const std::uint64_t part = std::min(left, sizeof out.header + out.bytes - out.done);
      out.done += part;
      left -= part;
      if (out.done == sizeof out.header + out.bytes) output_.pop_front();
    }
    if (static_cast<std::size_t>(sent) < wanted) return moved;  // the socket is full
  }
  return moved;
}

bool TcpStream::receive(Links& links, const Arrived& arrived) {
  bool moved = begin_ != end_ && take(links, arrived, false);  // left by a long message
  while (nonsense_.empty() && !ended_) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (begin_ != 0 && end_ == input_.size()) {  // the part of a header
      std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    // The message after a long one may be expected somewhere once that is taken.
    const bool is_long = missing_ != 0 && bytes_ >= kLong;
    const std::size_t ahead = is_long ? kHeaders : input_.size() - end_;
    const iovec parts[2] = {{at_ + (bytes_ - missing_), missing_}, {input_.data() + end_, ahead}};
    const bool straight = missing_ != 0;
    const ssize_t got = readv(socket_.get(), straight ? parts : parts + 1, straight ? 2 : 1);
    if (got < 0) {
      if (errno == EINTR) continue;
      ended_ = errno != EAGAIN && errno != EWOULDBLOCK;
      if (ended_ && broken_.empty()) broken_ = std::strerror(errno);
      return moved;
    }
    if (got == 0) {
      ended_ = true;
      if (broken_.empty()) broken_ = "it has closed the connection";
      return moved;
    }
    moved = true;
    const auto bytes = static_cast<std::uint64_t>(got);
    const bool full = bytes == (straight ? missing_ : 0) + ahead;
    const std::uint64_t placed = std::min(bytes, missing_);
    missing_ -= placed;
    end_ += bytes - placed;
    if (inlet_ != nullptr && missing_ == 0) arrived(*std::exchange(inlet_, nullptr), flag_, at_);
    // What stays in the input is part of a frame: more will come of it, which the system tells.
    while (take(links, arrived, is_long)) {
    }
    if (!full || is_long) return moved;  // nothing more has come
  }
  return moved;
}

// Takes a frame out of the input; with `short_only`, no long message. False: the next one has not come completely.
bool TcpStream::take(Links& links, const Arrived& arrived, bool short_only) {
  if (inlet_ != nullptr || !nonsense_.empty() || end_ - begin_ < sizeof(Frame)) return false;
  Frame frame;
  std::memcpy(&frame, input_.data() + begin_, sizeof frame);
  if (short_only && frame.kind == Frame::kData && frame.bytes >= kLong) return false;
  begin_ += sizeof frame;
  if (frame.check != frame.sum() || (frame.kind != Frame::kData && frame.kind != Frame::kCredit)) {
    nonsense_ = "it has sent something else than frames";
    return false;
  }
  if (frame.kind == Frame::kCredit) {
    const Status valid = links.credit(peer_, frame.link, frame.number);
    if (!valid.ok()) nonsense_ = valid.error().message;
    return valid.ok();
  }
  const Result<Inlet*> opened = links.begin(peer_, frame.link, frame.number, frame.bytes);
  if (!opened.ok()) {
    nonsense_ = opened.error().message;
    return false;
  }
  at_ = Links::place_of(*opened.value(), frame.number, frame.bytes);
  const std::uint64_t here = std::min<std::uint64_t>(frame.bytes, end_ - begin_);
  copy_bytes(at_, input_.data() + begin_, here);
  begin_ += here;
  if (here == frame.bytes) {
    arrived(*opened.value(), frame.number, at_);
    return true;
  }
  inlet_ = opened.value();
  flag_ = frame.number;
  bytes_ = frame.bytes;
  missing_ = frame.bytes - here;
  return false;
}

bool TcpStream::finish(double at_most_s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(at_most_s);
  std::array<std::uint8_t, 4096> unread;
  bool open = true;
  while (std::chrono::steady_clock::now() < until) {
    flush();
    if (mute_) return true;
    if (output_.empty()) shutdown(socket_.get(), SHUT_WR);
    while (open) {  // reads and drops
      const ssize_t got = recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT);
      if (got > 0) continue;
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno != EAGAIN) return true;
      open = got < 0;
      break;
    }
    int unsent = 0;
    if (output_.empty() && (ioctl(socket_.get(), SIOCOUTQ, &unsent) != 0 || unsent == 0)) return true;
    pollfd waiting{socket_.get(), static_cast<short>((open ? POLLIN : 0) | (output_.empty() ? 0 : POLLOUT)), 0};
    poll(&waiting, 1, 1);
    if ((waiting.revents & (POLLERR | POLLHUP)) != 0) return true;
  }
  return false;
}

}  // namespace gc3::transport
