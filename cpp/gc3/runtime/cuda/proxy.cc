#include "gc3/runtime/cuda/proxy.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/guarded.h"
#include "gc3/base/threads.h"

namespace gc3::cuda {
namespace {

using transport::Links;

constexpr auto kAwake = std::chrono::microseconds(200);         // without a message, before the thread sleeps
constexpr auto kShortestSleep = std::chrono::microseconds(20);  // a part of the time without a message, between these
constexpr auto kLongestSleep = std::chrono::microseconds(1000);
constexpr int kPart = 8;
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

// The kernel is the other side of all of these.
std::uint64_t load(const std::uint64_t& word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
}
void store(std::uint64_t& word, std::uint64_t value) { std::atomic_ref(word).store(value, std::memory_order_release); }

bool has_number(std::uint64_t flag, std::uint64_t number) {
  return (flag & transport::kNumberMask) == ((number + 1) & transport::kNumberMask);
}

// Lets another thread have a mutex that the proxy's thread takes again and again.
class Turn {
 public:
  Turn(std::mutex& mutex, std::atomic<std::uint32_t>& waiting) : waiting_(waiting) {
    ++waiting_;
    lock_ = std::unique_lock(mutex);
  }
  ~Turn() { --waiting_; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<std::uint32_t>& waiting_;
  std::unique_lock<std::mutex> lock_;
};

struct Link {
  std::uint32_t connection;
  std::uint32_t sender;
  std::uint32_t receiver;
};

// Those between hosts, in an order that is the same on all ranks.
std::vector<Link> links_of(const interp::Plan& plan, const std::vector<std::uint32_t>& hosts) {
  std::vector<Link> links;
  for (std::uint32_t c = 0; c < plan.connections.size(); ++c) {
    const std::uint32_t sender = plan.threadblocks[plan.connections[c].sender_tb].rank;
    const std::uint32_t receiver = plan.threadblocks[plan.connections[c].receiver_tb].rank;
    if (hosts[sender] != hosts[receiver]) links.push_back({c, sender, receiver});
  }
  return links;
}

}  // namespace

Status Proxy::check_ranks(std::uint32_t ranks) const {
  if (hosts_.size() == ranks) return {};
  return Diagnostic(ErrorCode::BadArgument, "a program of " + std::to_string(ranks) + " ranks in a communicator of " +
                                                std::to_string(hosts_.size()));
}

Status Proxy::check(const interp::Plan& plan, const interp::FifoGeometry& geometry) const {
  return links_of(plan, hosts_).empty() ? Status() : geometry.check_between_hosts();
}

Result<std::map<std::uint32_t, PinnedFifo>> Proxy::open(const std::shared_ptr<Device>& device, const interp::Plan& plan,
                                                        const interp::FifoGeometry& geometry, std::uint32_t rank,
                                                        const Interrupted& interrupted) {
  const std::vector<Link> links = links_of(plan, hosts_);
  std::map<std::uint32_t, PinnedFifo> fifos;
  std::map<std::uint32_t, Memory> memory;
  std::set<std::uint32_t> peers;
  for (const Link& link : links) {
    if (link.sender != rank && link.receiver != rank) continue;
    peers.insert(link.sender == rank ? link.receiver : link.sender);
    GC3_ASSIGN(memory[link.connection],
               Memory::pinned(device, PinnedFifo::bytes(geometry), "the FIFO of a connection to another host"));
    fifos[link.connection] = PinnedFifo::at(memory[link.connection].data(), geometry);
  }
  const Turn turn(mutex_, waiting_);
  if (std::optional<Diagnostic> why = problem()) return std::move(*why);
  // This thread does the work of the proxy's meanwhile: other ranks may need it before they make this call.
  GC3_CHECK(carrier_->connect({peers.begin(), peers.end()}, [this] { return round(); }, interrupted));
  Links& all = *carrier_->transport().links();
  for (const Link& link : links) {
    const transport::LinkId number = next_++;
    if (link.sender == rank) {
      auto end = std::make_unique<Sending>();
      transport::Outlet outlet;
      outlet.peer = link.receiver;
      outlet.link = number;
      outlet.head = &end->head;
      end->outlet = &all.add(outlet);
      sending_.push_back(std::move(end));
    } else if (link.receiver == rank) {
      auto end = std::make_unique<Receiving>();
      end->arrivals.resize(2 * std::size_t{geometry.slots});
      transport::Inlet inlet;
      inlet.peer = link.sender;
      inlet.link = number;
      inlet.slots = geometry.slots;
      inlet.slot_bytes = geometry.slot_bytes;
      inlet.slot_stride = geometry.slot_stride();
      inlet.data = fifos[link.connection].slots;
      inlet.arrivals = end->arrivals.data();
      end->inlet = &all.add(std::move(inlet));
      receiving_.push_back(std::move(end));
    } else {
      continue;
    }
    End& end = link.sender == rank ? static_cast<End&>(*sending_.back()) : *receiving_.back();
    end.memory = std::move(memory[link.connection]);
    end.fifo = fifos[link.connection];
    end.geometry = geometry;
  }
  if (!thread_.joinable() && !problem()) {
    GC3_ASSIGN(thread_, start_thread("the thread of messages between devices of several hosts", [this] { work(); }));
  }
  return fifos;
}

bool Proxy::send(Sending& end) {
  bool moved = false;
  for (;;) {
    const std::uint64_t slot = end.sent % end.geometry.slots;
    // acquire: the message and its length are visible once its flag is.
    const std::uint64_t flag = load(end.fifo.arrivals[slot]);
    if (!has_number(flag, end.sent)) break;
    const std::uint64_t bytes = std::min(load(end.fifo.lengths[slot]), end.geometry.slot_bytes);
    carrier_->transport().send(*end.outlet, flag, end.slot(end.sent), bytes);
    ++end.sent;
    moved = true;
  }
  if (end.head == end.known) return moved;
  end.known = end.head;
  // release: the transport has read the slots before the kernel writes to them again.
  store(end.fifo.head->value, end.head);
  return true;
}

bool Proxy::receive(Receiving& end) {
  bool moved = false;
  for (;;) {
    const std::uint64_t slot = end.passed % end.geometry.slots;
    const std::uint64_t* const arrival = &end.arrivals[2 * slot];
    if (!has_number(arrival[0], end.passed)) break;
    if (arrival[1] != 0) {  // the transport has it
      std::memcpy(end.slot(end.passed), reinterpret_cast<const void*>(arrival[1] & ~transport::kElsewhere),
                  end.inlet->lengths[slot]);
    }
    // release: the message is visible once its flag is.
    store(end.fifo.arrivals[slot], arrival[0]);
    ++end.passed;
    moved = true;
  }
  // acquire: the kernel has read the slots before the transport writes to them again.
  const std::uint64_t taken = std::min(load(end.fifo.head->value), end.passed);
  while (end.inlet->taken < taken) {
    carrier_->transport().take(*end.inlet);
    moved = true;
  }
  return moved;
}

bool Proxy::round() {
  bool moved = carrier_->transport().progress();
  for (const auto& end : sending_) moved |= send(*end);
  for (const auto& end : receiving_) moved |= receive(*end);
  return moved;
}

void Proxy::give_up(const Diagnostic& why) {
  {
    const std::lock_guard lock(problem_mutex_);
    problem_ = why;
  }
  carrier_->transport().abandon();
  for (const Launcher* launcher : launchers_) launcher->stop();
}

void Proxy::work() {
  Clock::time_point moved_at = Clock::now();
  Clock::time_point checked_at = moved_at;
  while (!closing_) {
    if (waiting_ != 0) {
      std::this_thread::sleep_for(kShortestSleep);
      continue;
    }
    std::unique_lock lock(mutex_);
    bool moved = false;
    const Status status = guarded([&] {
      moved = round();
      return Status();
    });
    if (!status.ok()) return give_up(status.error());
    const Clock::time_point now = Clock::now();
    if (moved) moved_at = now;
    if (now - checked_at > kBetweenChecks) {
      checked_at = now;
      if (const std::optional<Diagnostic> why = carrier_->problem()) return give_up(*why);
    }
    if (moved) continue;
    if (now - moved_at < kAwake) {
      lock.unlock();
      std::this_thread::yield();
      continue;
    }
    if (!carrier_->transport().arm()) continue;
    pollfd network{carrier_->transport().wake_descriptor(), POLLIN, 0};
    lock.unlock();
    const std::chrono::nanoseconds at_most =
        std::clamp<Clock::duration>((now - moved_at) / kPart, kShortestSleep, kLongestSleep);
    const timespec limit{0, at_most.count()};
    ppoll(&network, 1, &limit, nullptr);
  }
}

void Proxy::serve(const Launcher& launcher) {
  const Turn turn(mutex_, waiting_);
  launchers_.insert(&launcher);
  if (problem()) launcher.stop();
}

void Proxy::forget(const Launcher& launcher) {
  if (getpid() != process_) return;
  const Turn turn(mutex_, waiting_);
  launchers_.erase(&launcher);
}

std::optional<Diagnostic> Proxy::problem() const {
  const std::lock_guard lock(problem_mutex_);
  return problem_;
}

std::string Proxy::describe() {
  const Turn turn(mutex_, waiting_);
  return carrier_ == nullptr ? "closed" : carrier_->describe();
}

void Proxy::close() {
  if (getpid() != process_) {  // in a fork, the thread does not exist, and may have held the mutex
    if (thread_.joinable()) thread_.detach();
    static_cast<void>(carrier_.release());
    return;
  }
  closing_ = true;
  if (thread_.joinable()) thread_.join();
  const Turn turn(mutex_, waiting_);
  {
    const std::lock_guard lock(problem_mutex_);
    if (!problem_) problem_ = Diagnostic(ErrorCode::CommunicatorClosed, "");
  }
  for (const Launcher* launcher : launchers_) launcher->stop();
  carrier_.reset();
}

}  // namespace gc3::cuda
