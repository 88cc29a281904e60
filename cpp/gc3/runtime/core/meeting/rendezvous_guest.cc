// The rendezvous of a rank other than 0.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "gc3/runtime/core/meeting/kinship.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"

namespace gc3::core {
namespace {

// A packet and the descriptor that was sent with it.
struct Received {
  std::string bytes;
  FileDescriptor descriptor;
  bool cut = false;  // whether there were more bytes or descriptors
};

Received receive(int socket, std::size_t most) {
  Received got;
  got.bytes.resize(most);
  iovec data{got.bytes.data(), got.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the buffer could hold two, and the second would never be closed
  const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  got.bytes.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  if (size < 0) return got;
  got.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
      rights->cmsg_len == CMSG_LEN(sizeof(int))) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    got.descriptor = FileDescriptor(descriptor);
  }
  return got;
}

class Visit {
 public:
  Visit(const Meeting& meeting, const Terms& terms)
      : meeting_(meeting),
        terms_(terms),
        kinship_(meeting.job, !meeting.secret.empty()),
        own_(kinship_.origin_of(getpid(), meeting.rank)),
        deadline_(meeting) {}

  Result<Met> meet() {
    for (;;) {
      std::uint32_t held = 0;  // names that other users listen on
      for (std::uint32_t i = 0; i <= names_of(meeting_); ++i) {
        GC3_ASSIGN(const Host host, find(address_of(meeting_, i < names_of(meeting_) ? i : kGone)));
        held += host.foreign && i < names_of(meeting_) ? 1 : 0;
        if (!host.socket.valid()) continue;
        GC3_ASSIGN(std::optional<Met> met, join(host));
        if (met) return std::move(*met);
      }
      if (held >= names_of(meeting_))
        return not_met("other processes hold all names of the job's socket: " + foreigner_);
      GC3_CHECK(deadline_.check());
      deadline_.pause();
      if (deadline_.over()) return nobody();
    }
  }

 private:
  struct Host {
    FileDescriptor socket;
    pid_t process = 0;
    bool foreign = false;

    std::string str() const { return "rank 0 (process " + std::to_string(process) + ")"; }
  };

  // A socket to the process that listens there, if it may be rank 0 of this launch.
  Result<Host> find(const Address& address) {
    Host host{FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
    if (!host.socket.valid()) return refused("socket");
    if (connect(host.socket.get(), address.get(), address.length) != 0) {
      // No process listens there, or its queue is full.
      if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) return refused("connecting to rank 0");
      return Host{};
    }
    const Result<PeerUser> who = user_at(host.socket.get());
    if (!who.ok()) return Host{};
    host.process = who.value().process;
    if (who.value().user != geteuid()) {
      foreigner_ = "process " + std::to_string(host.process) + " of user " + std::to_string(who.value().user);
      host.foreign = true;
      host.socket = FileDescriptor();
      return host;
    }
    if (!sees(host.process)) {
      elsewhere_ = process_outside(host.process) + " and listens on a name of rank 0's socket; it was ignored";
      host.socket = FileDescriptor();
      return host;
    }
    own_ = kinship_.origin_of(getpid(), meeting_.rank);  // again, because the launcher may have ended
    const Origin origin = kinship_.origin_of(host.process, 0);
    if (!kinship_.may_join(own_, origin)) {
      elsewhere_ = host.str() + " is of another launch with the same name: " + kinship_.difference(own_, origin);
      host.socket = FileDescriptor();
    }
    return host;
  }

  // The next packet from the host; empty if it disconnects, or sends nothing within `a_while`.
  Result<Received> wait_for(const Host& host, std::size_t most, std::optional<Clock::duration> a_while = {}) {
    const Clock::time_point start = Clock::now();
    while (!deadline_.over() && (!a_while || Clock::now() - start < *a_while)) {
      pollfd waiting{host.socket.get(), POLLIN, 0};
      if (poll(&waiting, 1, static_cast<int>(kLook.count())) < 0 && errno != EINTR) return refused("poll");
      if (waiting.revents != 0) return receive(host.socket.get(), most);
      GC3_CHECK(deadline_.check());
    }
    return Received{};
  }

  // None if this host does not admit this rank, or not yet.
  Result<std::optional<Met>> join(const Host& host) {
    GC3_ASSIGN(const Received first, wait_for(host, sizeof(Challenge), kSilenceLimit));
    GC3_ASSIGN(const bool challenged, is(Kind::challenge, first, host));
    if (!challenged) return std::optional<Met>();
    const std::optional<Challenge> challenge = unpacked<Challenge>(first.bytes);
    if (!challenge) return not_met(host.str() + " does not follow gc3's protocol");

    Hello hello;
    GC3_ASSIGN(hello.nonce, Handshake::new_nonce());
    hello.identity.rank = meeting_.rank;
    hello.identity.size = meeting_.size;
    hello.identity.process = getpid();
    release_of(meeting_).copy(hello.identity.release, sizeof hello.identity.release - 1);
    std::copy_n(terms_.known.begin(), std::min(terms_.known.size(), Terms::kMostKnown), hello.identity.known);
    const Handshake handshake(meeting_.secret, purpose_of(meeting_), challenge->nonce, hello.nonce);
    const std::string_view said = bytes_of(hello.identity);
    hello.proof = handshake.proof(Handshake::Role::guest, said);
    if (!send_packet(host.socket.get(), bytes_of(hello))) return std::optional<Met>();

    GC3_ASSIGN(const Received second, wait_for(host, sizeof(Answer)));
    GC3_ASSIGN(const bool accepted, is(Kind::answer, second, host));
    if (!accepted) return std::optional<Met>();
    const std::optional<Answer> answer = unpacked<Answer>(second.bytes);
    if (!answer || !handshake.proven(Handshake::Role::host, said, answer->proof)) {
      return not_met(host.str() + " has not proven that it knows this rank's GC3_SECRET");
    }

    // The host has proven itself, so its refusals are accepted from here on.
    if (!std::exchange(extended_, true)) deadline_.extend(kAfterRank0);
    GC3_ASSIGN(Received last, wait_for(host, std::max(kMaxText, meeting_.size * sizeof(Member)) + sizeof(Welcome)));
    if (last.bytes.empty()) {
      return not_met(deadline_.over() ? "rank 0 has waited for other ranks for " + seconds(meeting_.timeout_s)
                                      : "rank 0 has disconnected before all ranks had joined");
    }
    GC3_ASSIGN(const bool all_there, is(Kind::welcome, last, host));
    if (!all_there) return std::optional<Met>();
    return enter(host, std::move(last));
  }

  // Whether the packet is of the expected kind. A refusal is an error; the text of a rank 0 of another launch is kept
  // for a later message. Texts are used only after the host's proof.
  Result<bool> is(Kind due, const Received& got, const Host& host) {
    Head head;
    if (got.bytes.size() < sizeof head) return false;
    std::memcpy(&head, got.bytes.data(), sizeof head);
    if (head.version != kVersion) return not_met(host.str() + " has another version of gc3");
    if (head.kind == Kind::unproven) {
      return not_met(host.str() + " has another GC3_SECRET than this rank, or only one of the two has one");
    }
    if (due != Kind::welcome) return head.kind == due;
    const std::string text = shown(std::string_view(got.bytes).substr(sizeof head, kMaxText));
    if (head.kind == Kind::refusal) return not_met(text);
    if (head.kind == Kind::elsewhere) elsewhere_ = text;
    return head.kind == due;
  }

  // The data of rank 0 is checked like all data from other processes.
  Result<std::optional<Met>> enter(const Host& host, Received welcome) const {
    std::vector<Member> members(meeting_.size);
    const std::size_t table = members.size() * sizeof(Member);
    Welcome head;
    if (welcome.cut || welcome.bytes.size() != sizeof head + table) {
      return not_met(host.str() + " has sent a malformed list of ranks");
    }
    std::memcpy(&head, welcome.bytes.data(), sizeof head);
    std::memcpy(members.data(), welcome.bytes.data() + sizeof head, table);
    Met met;
    met.given = {head.job, -1, {head.control[0], head.control[1]}};
    if (welcome.descriptor.valid() != (head.job == 0)) {
      return not_met(host.str() + " has sent a malformed list of ranks");
    }
    if (head.job == 0) {
      GC3_ASSIGN(met.memory, SharedMemory::adopt(std::move(welcome.descriptor)));
    } else if (std::ranges::find(terms_.known, head.job) == terms_.known.end()) {
      return not_met(host.str() + " has named a job that this process has not joined");
    }
    std::set<pid_t> all;
    for (std::uint32_t r = 0; r < meeting_.size; ++r) {
      const Member& member = members[r];
      const bool expected = (r == meeting_.rank) == (member.process == getpid()) &&
                            (r != 0 || member.process == host.process) && all.insert(member.process).second;
      if (!expected) {
        return not_met(host.str() + " says that rank " + std::to_string(r) + " is process " +
                       std::to_string(member.process));
      }
      met.processes.push_back(member.process);
      met.pidfds.emplace_back();
      if (r == meeting_.rank) continue;
      Result<PeerProcess> peer = process_named(member.process, member.started);
      if (!peer.ok()) {
        return Diagnostic(peer.error().code, "rank " + std::to_string(r) + ": " + peer.error().message);
      }
      met.pidfds.back() = std::move(peer.value().pidfd);
    }
    return std::optional<Met>(std::move(met));
  }

  Diagnostic nobody() const {
    Diagnostic problem = not_met("rank 0 has not called gc3.init() on this host within " + seconds(meeting_.timeout_s));
    if (!elsewhere_.empty()) problem.note(elsewhere_);
    if (!foreigner_.empty()) problem.note(foreigner_ + " listens on a name of rank 0's socket; it was ignored");
    for (const std::string& other : kinship_.other_names(own_)) problem.note(other + ", this one with " + meeting_.job);
    return problem;
  }

  const Meeting& meeting_;
  const Terms& terms_;
  Kinship kinship_;
  Origin own_;
  JoinDeadline deadline_;
  bool extended_ = false;
  std::string foreigner_;  // the last process of another user that listened on a name
  std::string elsewhere_;  // the message of the last rank 0 of another launch
};

}  // namespace

Result<Met> visit_meeting(const Meeting& meeting, const Terms& terms) { return Visit(meeting, terms).meet(); }

}  // namespace gc3::core
