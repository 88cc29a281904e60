// Calls that go on while the program does something else, one after the other on a thread of their own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "gc3/base/result.h"

namespace gc3::core {

class Progress {
 public:
  using Call = std::function<Status()>;

  Progress() = default;
  ~Progress();  // when the calls that were started are done
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  std::shared_future<Status> start(Call call);
  // Makes a call after those that were started: here and now if they are done.
  Status in_turn(Call call);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Status()>> waiting_;
  std::size_t left_ = 0;  // started and not done
  bool stopping_ = false;
  std::thread thread_;  // from the first call on
};

}  // namespace gc3::core
