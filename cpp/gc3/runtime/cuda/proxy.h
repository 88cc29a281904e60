// Messages between kernels on different hosts. A kernel cannot use a network, so a thread of the process does it: the
// proxy. A connection between hosts has a FIFO at each end, in pinned memory, which the kernels use like any other.
//
// The sender's kernel writes a message into a slot, its length, and then its flag. The proxy finds the flag and sends
// the slot. The receiver's proxy gets the message into its slot and stores the flag, for which the receiver's kernel
// waits. That kernel stores how many messages it has taken; the proxies pass that on to the sender's FIFO as credit.
// Graphs are replayed without a call of this library, so a proxy polls as long as it exists; the longer nothing moves,
// the more rarely.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/cuda/arena_layout.h"
#include "gc3/runtime/cuda/device.h"
#include "gc3/runtime/cuda/launcher.h"
#include "gc3/runtime/interp/engine.h"
#include "gc3/transport/carrier.h"

namespace gc3::cuda {

using interp::Interrupted;

class Proxy {
 public:
  explicit Proxy(std::unique_ptr<transport::Carrier> carrier) : carrier_(std::move(carrier)) {}
  ~Proxy() { close(); }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // By rank; those of one host have the same number.
  const std::vector<std::uint32_t>& hosts() const { return hosts_; }
  // Fails if these are not the ranks of the communicator.
  Status check_ranks(std::uint32_t ranks) const;
  // Fails if connections of the program between hosts are not possible.
  Status check(const interp::Plan& plan, const interp::FifoGeometry& geometry) const;
  // Collective, for the same programs in the same order: makes the FIFOs of this rank to other hosts, by connection,
  // which exist as long as this object. No rank may launch before all have done it.
  Result<std::map<std::uint32_t, PinnedFifo>> open(const std::shared_ptr<Device>& device, const interp::Plan& plan,
                                                   const interp::FifoGeometry& geometry, std::uint32_t rank,
                                                   const Interrupted& interrupted);
  // Whose launches are stopped when messages are lost.
  void serve(const Launcher& launcher);
  void forget(const Launcher& launcher);
  // Why messages do not arrive any more; none: they may.
  std::optional<Diagnostic> problem() const;
  // "tcp, 10.0.0.1:4711".
  std::string describe();
  // Ends the thread and the connections. Messages that are still needed are lost then.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  struct End {
    Memory memory;
    PinnedFifo fifo;
    interp::FifoGeometry geometry;
    std::uint8_t* slot(std::uint64_t number) const {
      return fifo.slots + number % geometry.slots * geometry.slot_stride();
    }
  };
  struct Sending : End {
    transport::Outlet* outlet = nullptr;
    std::uint64_t sent = 0;
    std::uint64_t head = 0;   // as the transport has it
    std::uint64_t known = 0;  // of that, to the kernel
  };
  struct Receiving : End {
    transport::Inlet* inlet = nullptr;
    std::vector<std::uint64_t> arrivals;  // as the transport has them
    std::uint64_t passed = 0;             // messages of which the kernel knows
  };

  // Whether anything has moved. These are called with the mutex.
  bool round();
  bool send(Sending& end);
  bool receive(Receiving& end);
  void give_up(const Diagnostic& why);
  void work();

  std::unique_ptr<transport::Carrier> carrier_;
  const std::vector<std::uint32_t> hosts_ = carrier_->hosts();
  const pid_t process_ = getpid();
  std::atomic<std::uint32_t> waiting_ = 0;  // threads that want the mutex, which the proxy's thread then leaves to them
  std::mutex mutex_;                        // of what follows
  std::vector<std::unique_ptr<Sending>> sending_;
  std::vector<std::unique_ptr<Receiving>> receiving_;
  std::set<const Launcher*> launchers_;
  transport::LinkId next_ = 0;

  mutable std::mutex problem_mutex_;
  std::optional<Diagnostic> problem_;
  std::atomic<bool> closing_ = false;
  std::thread thread_;
};

}  // namespace gc3::cuda
