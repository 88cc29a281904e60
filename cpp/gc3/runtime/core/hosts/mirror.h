// What the leader of a host does for a job of several hosts, in a thread of its own.
//
// Every group has a block for each of its ranks in the control memory of each host. A rank writes its block on its own
// host; the leader's thread sends what has changed to the other leaders, and theirs copy it: the mirror. So the ranks
// compare calls, exchange words, find losses and explain them as on one host, by looking at blocks. Rank 0's leader
// passes on what the others send. The thread looks when a rank rings (Board), when a message comes, and every 200 ms,
// when it also sends a sign of life.
//
// A host of which nothing is heard for 3 s is lost, as are one that has heard nothing of this host for so long, and one
// whose leader has ended. Who loses it tells the others. If a silent host's system still acknowledges what is sent,
// only its leader has been stopped, and is late like any other rank; nor does the time count in which this leader was.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/hosts/board.h"
#include "gc3/runtime/core/meeting/network.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/runtime/core/waiting/bells.h"

namespace gc3::core {

class Job;

class Mirror {
 public:
  // `lines`: see LeadersMet. The thread runs until this object is deleted, which waits until the other ranks that need
  // it have left, or for some seconds.
  static Result<std::unique_ptr<Mirror>> start(Job& job, std::vector<Frames> lines);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Line;
  struct View;
  class Reader;

  explicit Mirror(Job& job);

  void serve();
  void look();
  bool is_done() const;
  void wait() const;
  void hear();
  void find_ended();
  void adopt_groups();
  void adopt(std::uint64_t offset, std::uint64_t& next);
  // Sends what has changed in the blocks of the ranks of this host.
  void sample(View& view);
  // `to`: a host that knows nothing of the block yet; none: all hosts, if it has changed.
  void sample(View& view, std::uint32_t rank, std::optional<std::uint32_t> to = {});
  void tell_given_up(View& view);
  void beat(Clock::time_point now);

  // False: the message is malformed.
  bool receive(std::uint32_t host, std::string_view message);
  bool receive_block(std::uint32_t host, Reader& reader);
  bool receive_reason(Reader& reader);
  bool receive_loss(std::uint32_t from, Reader& reader);
  View* find(const std::array<std::uint64_t, 2>& id);

  static void put(Line& line, std::string_view message);
  void send(std::string_view message);
  void send_to(std::uint32_t host, std::string_view message);
  void send_except(std::uint32_t host, std::string_view message);
  void lose(std::size_t line, const std::string& what, bool left = false);
  // Tells all that the leader at the other end has been stopped, or goes on.
  void set_stopped(Line& line, bool stopped);
  bool is_hub() const;

  Job& job_;
  std::vector<Line> lines_;
  FileDescriptor waker_;
  std::vector<std::unique_ptr<View>> views_;
  // By rank of the job, of those of this host.
  std::vector<Board::State> found_;
  std::vector<Board::State> told_;
  Clock::time_point beaten_;
  Clock::time_point looked_ = Clock::now();
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // the last member, because it uses the rest
};

}  // namespace gc3::core
