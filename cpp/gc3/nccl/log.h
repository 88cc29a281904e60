// The log of a process: which call was served by what, how often, and how long the host took.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "gc3/nccl/call.h"

namespace gc3::nccl {

class Log {
 public:
  // The log is written into a file of this folder when this process ends, or when it calls `write`; empty: there is
  // none, and only the calls that are left to NCCL are counted.
  void open(const std::string& folder);
  bool on() const { return !file_.empty(); }

  // A call that NCCL serves. Lock-free, since it happens in each of them.
  void left(const Call& call) {
    // Relaxed: a counter orders nothing.
    left_[static_cast<std::size_t>(call.function)][log2(call.count)].fetch_add(1, std::memory_order_relaxed);
  }
  // Why, for `gc3 nccl explain`.
  void left_because(const Call& call, const std::string& why);
  // A call that a program serves, and the time that the host needed.
  void served(const Call& call, const std::string& program, std::int64_t ns);
  // As JSON.
  std::string text();
  void write();

 private:
  static std::size_t log2(std::size_t count) {
    return count == 0 ? 0 : 64 - static_cast<std::size_t>(__builtin_clzl(count));
  }
  struct Served {
    std::uint64_t calls = 0;
    std::int64_t ns = 0;
  };

  std::string file_;  // this and the next two are set by `open`
  std::string host_;
  int process_ = 0;
  // By function and the number of bits of the count.
  std::array<std::array<std::atomic<std::uint64_t>, 65>, kFunctionNames.size()> left_{};
  std::mutex mutex_;  // of the following members
  std::map<std::tuple<Function, std::size_t, std::string>, Served> served_;
  std::map<std::tuple<Function, std::string>, std::uint64_t> reasons_;
};

}  // namespace gc3::nccl
