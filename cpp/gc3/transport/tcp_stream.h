// An authenticated TCP connection between two ranks: frames in both directions, without blocking.
//
// A frame is a header of 24 bytes and, for a message, its data. Data is sent from where it lies, and received where it
// goes; one system call takes the rest of a message and the headers after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/transport/links.h"

namespace gc3::transport {

class TcpStream {
 public:
  TcpStream(core::FileDescriptor socket, std::uint32_t peer) : socket_(std::move(socket)), peer_(peer) {}

  int descriptor() const { return socket_.get(); }
  std::uint32_t peer() const { return peer_; }

  // Queues frames; flush() sends them.
  void add_data(LinkId link, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes);
  void add_credit(LinkId link, std::uint64_t taken);
  // Whether anything was sent. A failure is in broken().
  bool flush();
  bool has_output() const { return !output_.empty(); }

  // Receives what has come, but at most one long message: the step that takes it then says where the next one goes.
  // `arrived(inlet, flag, at)`: a message is complete. Whether anything has come.
  using Arrived = std::function<void(Inlet&, std::uint64_t flag, const std::uint8_t* at)>;
  bool receive(Links& links, const Arrived& arrived);

  // Why messages do not pass any more, in one of the directions; empty: they do.
  const std::string& broken() const { return broken_; }
  bool has_lost() const { return lost_; }    // a message that was to be sent
  bool has_ended() const { return ended_; }  // nothing more will come
  // What the peer has sent that is no valid frame; empty: nothing.
  const std::string& nonsense() const { return nonsense_; }

  // Sends the rest and says that nothing follows, for at most so long. Closing a socket with unread input would
  // discard what the peer has not received yet.
  bool finish(double at_most_s);

 private:
  struct Frame;
  struct Output {
    std::uint8_t header[24];
    const std::uint8_t* data;
    std::uint64_t bytes;  // of the data
    std::uint64_t done;   // bytes of header and data that are sent
  };
  bool take(Links& links, const Arrived& arrived, bool short_only);
  void add(std::uint32_t kind, LinkId link, std::uint64_t number, const std::uint8_t* from, std::uint64_t bytes);

  core::FileDescriptor socket_;
  std::uint32_t peer_;
  std::deque<Output> output_;
  bool mute_ = false;  // nothing can be sent any more
  bool lost_ = false;
  bool ended_ = false;  // nothing can be received any more
  std::vector<std::uint8_t> input_ = std::vector<std::uint8_t>(kInput);
  std::size_t begin_ = 0;  // of the bytes in input_ that have not been taken
  std::size_t end_ = 0;
  Inlet* inlet_ = nullptr;  // of the message that is arriving; null: none
  std::uint64_t flag_ = 0;
  std::uint8_t* at_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t missing_ = 0;  // of these
  std::string broken_;
  std::string nonsense_;

  static constexpr std::size_t kInput = 16384;
  static constexpr std::size_t kLong = kInput;  // a message with which only headers are read
  static constexpr std::size_t kHeaders = 4 * sizeof(Output::header);
};

}  // namespace gc3::transport
