#include "gc3/runtime/core/hosts/board.h"

#include <sys/socket.h>

#include <atomic>
#include <cstring>

#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"
#include "gc3/runtime/core/sharing/group_blocks.h"

namespace gc3::core {
namespace {

constexpr std::size_t kWakerName = 64;
constexpr std::size_t kWhy = 248;

}  // namespace

struct Board::Words {
  std::uint64_t announced;
  char waker[kWakerName];
  // The state of each rank of the job follows, then the reasons.
};

struct Board::Reason {
  std::uint64_t written;  // last; 1: it is; 2: and the host has left
  char text[kWhy];
};

std::uint64_t Board::bytes(const Hosts& hosts) {
  std::uint64_t ranks = 0;
  for (const Host& host : hosts.all()) ranks += host.ranks.size();
  return sizeof(Words) + ranks * sizeof(std::uint64_t) + hosts.all().size() * sizeof(Reason);
}

void Board::open(Mapping memory, const Hosts& hosts) {
  memory_ = memory;
  hosts_ = &hosts;
  ranks_ = 0;
  for (const Host& host : hosts.all()) ranks_ += static_cast<std::uint32_t>(host.ranks.size());
}

Board::Words& Board::words() const { return *reinterpret_cast<Words*>(memory_.data()); }
Board::Reason& Board::reason(std::uint32_t host) const {
  std::uint8_t* const after = memory_.data() + sizeof(Words) + ranks_ * sizeof(std::uint64_t);
  return reinterpret_cast<Reason*>(after)[host];
}

std::uint64_t& Board::word(std::uint32_t rank) const {
  return reinterpret_cast<std::uint64_t*>(memory_.data() + sizeof(Words))[rank];
}

Board::State Board::state(std::uint32_t rank) const {
  // acquire: what the rank did before it ended is in the mirror.
  return static_cast<State>(load(word(rank), std::memory_order_acquire));
}

void Board::set_state(std::uint32_t rank, State state) {
  store(word(rank), static_cast<std::uint64_t>(state), std::memory_order_release);
}

bool Board::is_lost(std::uint32_t host) const { return load(reason(host).written, std::memory_order_acquire) == 1; }

std::string Board::why(std::uint32_t host) const {
  const Reason& r = reason(host);
  return load(r.written, std::memory_order_acquire) != 0 ? std::string(r.text) : "";
}

void Board::lose(std::uint32_t host, const std::string& why, bool left) {
  Reason& r = reason(host);
  if (load(r.written) != 0) return;  // only the leader's thread writes
  std::strncpy(r.text, why.c_str(), kWhy - 1);
  store(r.written, left ? 2 : 1, std::memory_order_release);
  for (const std::uint32_t rank : hosts_->all()[host].ranks) {
    if (state(rank) != State::ended) set_state(rank, State::lost);
  }
}

void Board::set_waker(const std::string& name) { name.copy(words().waker, kWakerName - 1); }

void Board::ring() const {
  const FileDescriptor from(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Address to = abstract_address({words().waker, strnlen(words().waker, kWakerName)});
  // A full queue has woken the thread already. Without that socket it has ended, which the silence tells.
  static_cast<void>(sendto(from.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, to.get(), to.length));
}

void Board::announce(std::uint64_t group, std::uint64_t& next) {
  std::uint64_t first = load(words().announced);
  do {
    store(next, first);
    // release: the group's memory has been filled before.
  } while (!std::atomic_ref(words().announced).compare_exchange_weak(first, group, std::memory_order_release));
  ring();
}

std::uint64_t Board::take_announced() {
  return std::atomic_ref(words().announced).exchange(0, std::memory_order_acquire);  // pairs with the release above
}

void Board::leave(std::uint32_t rank) {
  set_state(rank, State::left);
  ring();
}

}  // namespace gc3::core
