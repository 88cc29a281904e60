// Threads that the system may refuse to start.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/result.h"

namespace gc3 {

// `what` it is, for the message if there can be no more of them.
template <class Work>
Result<std::thread> start_thread(const std::string& what, Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& refused) {
    return Diagnostic(ErrorCode::SystemRefused,
                      what + ": " + refused.code().message() +
                          "; the number of threads and processes is limited by `ulimit -u` and by a container's "
                          "pids.max");
  }
}

}  // namespace gc3
