// For tests: processes that take part in a rendezvous, and helpers for processes that only pretend to.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/sharing/window.h"
#include "gc3/runtime/core/waiting/test_process.h"

namespace gc3::core::testing {

using namespace std::chrono_literals;

inline const pid_t kTests = getpid();  // the test program, which forks all other processes
inline constexpr uid_t kNobody = 65534;
inline constexpr const char* kSecret = "a secret of 24 bytes ...";
inline constexpr int kSilentOnPurpose = 60;  // seconds, longer than any test waits

inline Meeting meeting_of(std::uint32_t rank, std::uint32_t size, double timeout_s = 20) {
  Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.job = "rendezvous test " + std::to_string(kTests);
  meeting.timeout_s = timeout_s;
  return meeting;
}

inline std::string meets(const Meeting& meeting) {
  SharedMemory memory;
  Terms terms;
  terms.give = [&memory](const std::vector<pid_t>&, const std::vector<std::uint64_t>&) -> Result<Given> {
    GC3_ASSIGN(memory, SharedMemory::create());
    GC3_CHECK(memory.reserve({0, 4096}, "a test"));
    return Given{0, memory.descriptor(), {0, 4096}};
  };
  Result<Met> met = meet(meeting, terms);
  if (!met.ok()) return met.error().str();
  if (met.value().processes.size() != meeting.size || met.value().processes[meeting.rank] != getpid()) return "who?";
  for (std::uint32_t r = 0; r < meeting.size; ++r) {
    if ((r == meeting.rank) == met.value().pidfds[r].valid()) return "pidfds";
  }
  // No process ends before all have met.
  Window window;
  const SharedMemory& file = meeting.rank == 0 ? memory : met.value().memory;
  std::uint8_t* const shared = window.map(file, met.value().given.control).value();
  const std::atomic_ref met_by(*reinterpret_cast<std::uint64_t*>(shared));
  met_by.fetch_add(1);
  const auto start = std::chrono::steady_clock::now();
  while (met_by.load() < meeting.size) {
    if (std::chrono::steady_clock::now() - start > 60s) return "the others have not met";
    std::this_thread::sleep_for(1ms);
  }
  return "";
}

inline std::string fails(const Meeting& meeting, const std::string& said) {
  const std::string told = meets(meeting);
  return told.find(said) != std::string::npos ? "" : "expected '" + said + "', got: " + told;
}

inline Process rank(std::uint32_t r, std::uint32_t size) {
  return Process([=] { return meets(meeting_of(r, size)); });
}

inline FileDescriptor connected(std::uint32_t which = 0) {
  for (;;) {
    FileDescriptor guest(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const Address address = address_of(meeting_of(1, 2), which);
    if (connect(guest.get(), address.get(), address.length) == 0) return guest;
    std::this_thread::sleep_for(1ms);
  }
}

inline FileDescriptor listening(std::uint32_t which) {
  FileDescriptor host(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address = address_of(meeting_of(0, 2), which);
  if (bind(host.get(), address.get(), address.length) != 0 || listen(host.get(), 100) != 0) return {};
  return host;
}

// The next packet, without a deadline; empty: the other end has disconnected.
inline std::string next_packet(int from) {
  pollfd waiting{from, POLLIN, 0};
  poll(&waiting, 1, -1);
  return receive_packet(from, 4096);
}

inline Hello hello_for(const Challenge& challenge, std::uint32_t rank) {
  Hello hello;
  hello.nonce = Handshake::new_nonce().value();
  hello.identity.rank = rank;
  hello.identity.size = 2;
  hello.identity.process = getpid();
  release_of(meeting_of(1, 2)).copy(hello.identity.release, sizeof hello.identity.release - 1);
  const Handshake handshake("", purpose_of(meeting_of(1, 2)), challenge.nonce, hello.nonce);
  hello.proof = handshake.proof(Handshake::Role::guest, bytes_of(hello.identity));
  return hello;
}

}  // namespace gc3::core::testing
