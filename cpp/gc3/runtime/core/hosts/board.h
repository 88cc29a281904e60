// What the ranks of one host know of the other hosts: in shared memory, written by the thread of their leader.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/runtime/core/hosts/hosts.h"
#include "gc3/runtime/core/sharing/shared_memory.h"

namespace gc3::core {

class Board {
 public:
  // Of a rank of another host, ended and stopped are its leader's findings; lost: nothing is heard of its host. A rank
  // of this host says itself that it has left the job, which other hosts are not told.
  enum class State : std::uint64_t { here, ended, stopped, lost, left };

  static std::uint64_t bytes(const Hosts& hosts);
  void open(Mapping memory, const Hosts& hosts);

  State state(std::uint32_t rank) const;
  void set_state(std::uint32_t rank, State state);
  // Why a host is lost; only the first reason counts. `left`: its ranks have left the job, and all that they sent
  // before has come.
  std::string why(std::uint32_t host) const;
  void lose(std::uint32_t host, const std::string& why, bool left = false);
  // False also if it has left.
  bool is_lost(std::uint32_t host) const;

  // Wakes the leader's thread, by a datagram to its socket of this name; from any thread of any process of this host.
  void set_waker(const std::string& name);
  void ring() const;

  // Groups that the leader's thread does not know yet form a list, by the offset of their control memory. Processes of
  // this host add to it, and the thread takes it whole.
  void announce(std::uint64_t group, std::uint64_t& next);
  std::uint64_t take_announced();

  // A rank of this host leaves the job.
  void leave(std::uint32_t rank);

 private:
  struct Words;
  struct Reason;

  Words& words() const;
  std::uint64_t& word(std::uint32_t rank) const;
  Reason& reason(std::uint32_t host) const;

  Mapping memory_;
  std::uint32_t ranks_ = 0;
  const Hosts* hosts_ = nullptr;
};

}  // namespace gc3::core
