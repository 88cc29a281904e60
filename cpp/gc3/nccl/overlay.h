// The state of the overlay in this process: the table, the communicators by their handles, and the log.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "gc3/nccl/communicator.h"
#include "gc3/nccl/log.h"

namespace gc3::nccl {

class Overlay {
 public:
  static Overlay& get();

  // Whether the settings could be read. Otherwise all calls go to NCCL without a look at their communicator.
  bool active() const { return active_.load(std::memory_order_acquire); }
  // Communicators that are used for the first time later have this table.
  Status load(const std::string& path);
  // The communicator of a handle; null: NCCL serves all its calls, on every rank. One that cannot be made is an error:
  // NCCL cannot serve the call either, since the other ranks wait for this one.
  Result<std::shared_ptr<Communicator>> communicator(Comm comm);
  // The same for one that may be unknown so far; an error says why it cannot be used.
  Result<std::shared_ptr<Communicator>> made(Comm comm, std::shared_ptr<const Table> table);
  // The communicator if there is one; it is not made.
  std::shared_ptr<Communicator> find(Comm comm);
  // Forgets the handle, which NCCL may use again. `only`: if it is still that of this one; null: of any. Null if not.
  std::shared_ptr<Communicator> forget(Comm comm, const std::shared_ptr<Communicator>& only = nullptr);
  // Whether grouped sends and receives may be served as one collective.
  bool exchanges_are_collective() const { return exchanges_; }
  Log& log() { return log_; }

 private:
  Overlay();

  std::atomic<bool> active_{false};
  double timeout_s_ = 0;
  bool exchanges_ = false;
  std::shared_mutex mutex_;  // of the following members
  std::shared_ptr<const Table> table_;
  std::shared_ptr<cuda::Runtime> runtime_;
  std::map<Comm, std::shared_ptr<Communicator>> communicators_;
  Log log_;
};

}  // namespace gc3::nccl
