// What a fork finds of a communicator of its parent.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <mutex>
#include <string>

#include "gc3/base/errors/processes.h"
#include "gc3/base/result.h"

namespace gc3 {

inline Diagnostic of_another_process(pid_t owner) {
  return Diagnostic(ErrorCode::UsedAfterFork, "the communicator belongs to process " + std::to_string(owner));
}

// Takes a mutex of the process `owner`, which `lock` names; an error in a fork, where a thread that does not exist may
// have it.
inline Status take(std::unique_lock<std::mutex>& lock, pid_t owner) {
  if (lock.try_lock()) return {};
  if (getpid() != owner) return of_another_process(owner);
  lock.lock();
  return {};
}

}  // namespace gc3
