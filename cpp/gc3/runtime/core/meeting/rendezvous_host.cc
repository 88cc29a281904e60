// The rendezvous of rank 0.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "gc3/base/errors/processes.h"
#include "gc3/base/guarded.h"
#include "gc3/base/signals.h"
#include "gc3/runtime/core/meeting/kinship.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/meeting/turned_away.h"

namespace gc3::core {
namespace {

constexpr std::size_t kMostUnproven = 128;
constexpr std::size_t kMostOfAProcess = 4;  // unproven guests
constexpr std::chrono::milliseconds kBetweenCensuses{100};
constexpr double kShortestRefusal = 60;  // seconds for which late ranks get the reason
constexpr double kLongestRefusal = 600;
constexpr std::chrono::milliseconds kLastLook{300};  // for guests that have sent nothing when rank 0 gives up
#if defined(CLOSE_RANGE_UNSHARE)
constexpr unsigned kCloseRangeUnshare = CLOSE_RANGE_UNSHARE;
#else
constexpr unsigned kCloseRangeUnshare = 2;
#endif
constexpr std::chrono::seconds kAmbiguous{2};  // two launches may be seen at once for a short time while one ends

struct Unproven {
  FileDescriptor socket;
  pid_t process = 0;
  Nonce nonce{};  // of the host
  Clock::time_point since;
};

struct Joined {
  FileDescriptor socket;
  PeerProcess peer;
  Origin origin;
  std::vector<std::uint64_t> known;  // see Terms
};

Result<FileDescriptor> new_listener() {
  FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return refused("socket");
  return listener;
}

FileDescriptor let_in(int listener) {
  return FileDescriptor(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::string self() { return "rank 0 (process " + std::to_string(getpid()) + ")"; }

class RendezvousHost {
 public:
  explicit RendezvousHost(const Meeting& meeting)
      : meeting_(meeting),
        kinship_(meeting.job, !meeting.secret.empty()),
        own_(kinship_.origin_of(getpid(), 0)),
        deadline_(meeting),
        joined_(meeting.size) {}
  ~RendezvousHost() {
    // A forked process may still have the descriptor; without the shutdown, guests would wait there for an answer.
    if (listener_.valid()) shutdown(listener_.get(), SHUT_RDWR);
  }
  RendezvousHost(const RendezvousHost&) = delete;
  RendezvousHost& operator=(const RendezvousHost&) = delete;

  Result<Met> meet(const Terms& terms) {
    Met met;
    Status status = listen_for_others();
    if (status.ok()) status = gather();
    if (status.ok()) {
      unproven_.clear();  // they may hold all descriptors, and the welcome needs some
      status = welcome(terms, met);
    }
    if (!status.ok()) {
      if (const std::string turned = counts_.str(); !turned.empty()) status.error().note("turned away: " + turned);
      give_up(status.error());
      return status.error();
    }
    met.pidfds.emplace_back();
    for (std::uint32_t r = 1; r < meeting_.size; ++r) met.pidfds.push_back(std::move(joined_[r].peer.pidfd));
    return met;
  }

  // Runs on a thread of its own after another RendezvousHost has given up. Answers late ranks for as long as they would
  // wait, or until this process ends. The thread has a descriptor table of its own, so that forked processes do not get
  // the socket.
  void answer_late_ranks(std::string told) {
    if (syscall(SYS_close_range, 3U, ~0U, kCloseRangeUnshare) != 0) return;  // before Linux 5.9 late ranks time out
    Result<FileDescriptor> listener = new_listener();
    const Address address = address_of(meeting_, kGone);
    if (!listener.ok() || bind(listener.value().get(), address.get(), address.length) != 0 ||
        listen(listener.value().get(), kBacklog) != 0) {
      return;  // an earlier RendezvousHost answers them
    }
    listener_ = std::move(listener).value();
    refusal_ = std::move(told);
    while (!deadline_.over() && look_at_all().ok()) {
    }
  }

 private:
  // Listens on the first free name. Names that other users or other launches hold are skipped. If another rank 0 of
  // this launch holds one, this waits until that process has ended.
  Status listen_for_others() {
    for (;;) {
      pid_t twin = 0;
      std::string holders;
      for (std::uint32_t which = 0; which < names_of(meeting_) && twin == 0; ++which) {
        GC3_ASSIGN(FileDescriptor listener, new_listener());
        const Address address = address_of(meeting_, which);
        if (bind(listener.get(), address.get(), address.length) == 0) {
          if (listen(listener.get(), kBacklog) != 0) return refused("listen");
          listener_ = std::move(listener);
          return {};
        }
        if (errno != EADDRINUSE) return refused("bind");
        twin = holder(address, holders);
      }
      if (twin == 0) {
        if (holders.empty()) holders = ", on sockets that do not listen, so their users are not known";
        return not_met("other processes hold all names of the job's socket" + holders);
      }
      GC3_CHECK(check_for_ambiguity({own_}));
      GC3_CHECK(deadline_.check());
      deadline_.pause();
      if (deadline_.over()) {
        return not_met("another rank 0 of this job is waiting on this host: process " + std::to_string(twin));
      }
    }
  }

  // The other rank 0 of this job that listens there; 0 if the process is no rank 0, or is not visible.
  pid_t holder(const Address& address, std::string& holders) const {
    const FileDescriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid() || connect(probe.get(), address.get(), address.length) != 0) return 0;
    const Result<PeerUser> who = user_at(probe.get());
    if (!who.ok()) return 0;
    if (who.value().user != geteuid()) {
      const std::string name =
          " user " + std::to_string(who.value().user) + " (process " + std::to_string(who.value().process) + ")";
      if (holders.find(name) == std::string::npos) holders += (holders.empty() ? ":" : ",") + name;
      return 0;
    }
    return kinship_.may_join(own_, kinship_.origin_of(who.value().process, 0)) ? who.value().process : 0;
  }

  // Accepts guests until all ranks have joined.
  Status gather() {
    Clock::time_point counted;
    for (;;) {
      std::uint32_t come = 1;
      for (const Joined& rank : joined_) come += rank.socket.valid() ? 1 : 0;
      if (come == meeting_.size && Clock::now() - counted > kBetweenCensuses) {
        counted = Clock::now();
        GC3_CHECK(check_for_ambiguity(members()));
        if (!ambiguity_) return {};
      }
      GC3_CHECK(look_at_all());
      GC3_CHECK(deadline_.check());
      if (deadline_.over()) {
        return come == meeting_.size && ambiguity_ ? two_launches(*ambiguity_) : missing();
      }
    }
  }

  // Drops guests until a rank that joins can be looked at: this takes its pidfd, a file of /proc, and one more.
  void make_room() {
    std::array<FileDescriptor, 3> room;
    for (FileDescriptor& one : room) {
      const auto take = [&] { one = FileDescriptor(fcntl(listener_.get(), F_DUPFD_CLOEXEC, 0)); };
      for (take(); !one.valid() && !unproven_.empty(); take()) drop(unproven_.begin());
    }
  }

  // Waits for the next event, and handles all pending ones.
  Status look_at_all() {
    make_room();
    std::vector<pollfd> watched{{listener_.get(), POLLIN, 0}};
    for (const Joined& rank : joined_) watched.push_back({rank.socket.get(), 0, 0});  // poll ignores -1
    for (const Unproven& guest : unproven_) watched.push_back({guest.socket.get(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), static_cast<int>(kLook.count())) < 0 && errno != EINTR) {
      return refused("poll");
    }
    for (std::uint32_t r = 0; r < meeting_.size; ++r) {
      if (watched[1 + r].revents != 0) return gone(r);
    }
    std::vector<Unproven> guests = std::exchange(unproven_, {});
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < guests.size(); ++i) {
      if (watched[1 + meeting_.size + i].revents != 0) {
        Status status = handle_hello(guests[i]);
        if (!status.ok()) {
          send_text(guests[i].socket.get(), Kind::refusal, status.error().message);
          unproven_.insert(unproven_.end(), std::move_iterator(guests.begin() + static_cast<std::ptrdiff_t>(i) + 1),
                           std::move_iterator(guests.end()));  // so that they get the reason, too
          return status;
        }
      } else if (now - guests[i].since > kSilenceLimit) {
        ++counts_.silent;
      } else {
        unproven_.push_back(std::move(guests[i]));
      }
    }
    if (watched[0].revents != 0) GC3_CHECK(let_guests_in());
    return {};
  }

  Status let_guests_in() {
    for (int i = 0; i < kAtOnce; ++i) {
      Unproven guest{let_in(listener_.get()), 0, {}, Clock::now()};
      if (!guest.socket.valid()) {
        if (errno != EMFILE && errno != ENFILE) return {};
        if (unproven_.empty()) return refused("accept");
        drop(unproven_.begin());
        continue;
      }
      const Result<PeerUser> who = user_at(guest.socket.get());
      if (!who.ok() || who.value().user != geteuid()) {
        ++counts_.other_users;
        continue;
      }
      guest.process = who.value().process;
      const auto of_it = [&](const Unproven& g) { return g.process == guest.process; };
      if (std::ranges::count_if(unproven_, of_it) >= static_cast<std::ptrdiff_t>(kMostOfAProcess)) {
        drop(std::ranges::find_if(unproven_, of_it));
      } else if (unproven_.size() >= kMostUnproven) {
        drop(unproven_.begin());
      }
      GC3_ASSIGN(guest.nonce, Handshake::new_nonce());
      Challenge challenge;
      challenge.nonce = guest.nonce;
      if (send_packet(guest.socket.get(), bytes_of(challenge))) unproven_.push_back(std::move(guest));
    }
    return {};
  }

  void drop(std::vector<Unproven>::iterator guest) {
    ++counts_.silent;
    unproven_.erase(guest);
  }

  // Handles the message of a guest. An error concerns the whole job; other problems only end this guest's connection.
  Status handle_hello(Unproven& guest) {
    const std::string packet = receive_packet(guest.socket.get(), sizeof(Hello));
    const std::optional<Hello> hello = unpacked<Hello>(packet);
    if (!hello) {
      ++(packet.empty() ? counts_.silent : counts_.wrong);
      if (packet.empty()) find_stranger(guest.process);
      return {};
    }
    const Handshake handshake(meeting_.secret, purpose_of(meeting_), guest.nonce, hello->nonce);
    const std::string_view said = bytes_of(hello->identity);
    if (!handshake.proven(Handshake::Role::guest, said, hello->proof)) {
      ++counts_.unproven;
      send_packet(guest.socket.get(), bytes_of(Head{Kind::unproven}));
      return {};
    }
    // The guest has proven itself, so its data is used from here on.
    Identity identity = hello->identity;
    identity.release[sizeof identity.release - 1] = 0;
    Result<PeerProcess> peer = process_at(guest.socket.get());
    if (!peer.ok()) {
      ++counts_.silent;
      if (peer.error().code == ErrorCode::NotMet) stranger_ = name_of(identity) + ": " + peer.error().message;
      return {};
    }
    Answer answer;
    answer.proof = handshake.proof(Handshake::Role::host, said);
    if (!send_packet(guest.socket.get(), bytes_of(answer))) return {};
    if (identity.process != peer.value().process) {
      ++counts_.elsewhere;
      stranger_ = name_of(identity) + " (process " + std::to_string(peer.value().process) + ") says it is process " +
                  std::to_string(identity.process) +
                  ": it is in another PID namespace (another container), or pretends to be that process";
      send_text(guest.socket.get(), Kind::refusal, stranger_);
      return {};
    }
    const Origin origin = kinship_.origin_of(peer.value().process, identity.rank);
    own_ = kinship_.origin_of(getpid(), 0);  // again, because the launcher may have ended
    if (!kinship_.may_join(own_, origin)) {
      send_elsewhere(guest.socket.get(), origin);
      return {};
    }
    if (!refusal_.empty()) {
      // A rank that was started later may be of the next launch, whose rank 0 may still start.
      send_text(guest.socket.get(), peer.value().started <= begun_ ? Kind::refusal : Kind::elsewhere, refusal_);
      return {};
    }
    GC3_CHECK(check(identity, peer.value().process));
    Joined& place = joined_[identity.rank];
    if (place.socket.valid()) {
      if (Kinship::kin(own_, origin) == Kinship::kin(own_, place.origin)) {
        return not_met("two processes say they are " + name_of(identity) + ": " + std::to_string(place.peer.process) +
                       " and " + std::to_string(peer.value().process));
      }
      const bool earlier_stays = Kinship::kin(own_, place.origin);
      send_elsewhere(earlier_stays ? guest.socket.get() : place.socket.get(), earlier_stays ? origin : place.origin);
      if (earlier_stays) return {};
    }
    place = {std::move(guest.socket), std::move(peer).value(), origin,
             std::vector<std::uint64_t>(std::begin(identity.known), std::end(identity.known))};
    return {};
  }

  // A rank that finds that it may not join disconnects. Finds out why; at limited intervals, because a process may
  // disconnect often.
  void find_stranger(pid_t process) {
    if (Clock::now() - looked_ < kBetweenCensuses) return;
    looked_ = Clock::now();
    const Origin origin = kinship_.origin_of(process);
    if (!sees(process)) {
      stranger_ = process_outside(process);
    } else if (origin.declared && !kinship_.may_join(own_, origin)) {
      stranger_ = kinship_.difference(own_, origin);
    }
  }

  static std::string name_of(const Identity& identity) { return "rank " + std::to_string(identity.rank); }

  // Checks what a rank of this launch says about itself.
  Status check(const Identity& identity, pid_t process) const {
    const std::string name = name_of(identity);
    if (identity.release != release_of(meeting_)) {
      return not_met(name + " has version " + shown(identity.release) + " of gc3, rank 0 has " + release_of(meeting_));
    }
    if (identity.size != meeting_.size) {
      return not_met(name + " says there are " + std::to_string(identity.size) + " ranks, rank 0 says " +
                     std::to_string(meeting_.size));
    }
    if (identity.rank == 0 || identity.rank >= meeting_.size) {
      return not_met("two processes say they are " + name + ": " + std::to_string(getpid()) + " and " +
                     std::to_string(process));
    }
    return {};
  }

  void send_elsewhere(int guest, const Origin& origin) {
    ++counts_.other_launches;
    send_text(guest, Kind::elsewhere,
              self() + " is of another launch with the same name: " + kinship_.difference(own_, origin));
  }

  std::vector<Origin> members() const {
    std::vector<Origin> all{own_};
    for (const Joined& rank : joined_) {
      if (rank.socket.valid()) all.push_back(rank.origin);
    }
    return all;
  }

  // An error if several processes were told to be the same rank for some time; for a short time it is normal.
  Status check_for_ambiguity(const std::vector<Origin>& members) {
    std::optional<std::string> ambiguity = kinship_.ambiguity(members);
    if (ambiguity && !ambiguity_) since_ = Clock::now();
    ambiguity_ = std::move(ambiguity);
    if (!ambiguity_ || Clock::now() - since_ < kAmbiguous) return {};
    return two_launches(*ambiguity_);
  }

  Diagnostic two_launches(const std::string& ambiguity) const {
    Diagnostic problem = not_met(ambiguity + ": two launches have the same name");
    return problem.note("the name is " + meeting_.job +
                        "; give each launch its own, or wait until the first has ended");
  }

  Diagnostic gone(std::uint32_t rank) const {
    return not_met("rank " + std::to_string(rank) + " (process " + std::to_string(joined_[rank].peer.process) +
                   ") has disconnected while the others were joining");
  }

  Diagnostic missing() const {
    std::string names;
    for (std::uint32_t r = 1; r < meeting_.size; ++r) {
      if (!joined_[r].socket.valid()) names += (names.empty() ? "" : ", ") + std::to_string(r);
    }
    Diagnostic problem = not_met("of " + std::to_string(meeting_.size) + " ranks these have not joined within " +
                                 seconds(meeting_.timeout_s) + ": " + names);
    for (const std::string& other : kinship_.other_names(own_)) problem.note(other + ", this one with " + meeting_.job);
    if (!stranger_.empty()) problem.note(stranger_);
    return problem;
  }

  Status welcome(const Terms& terms, Met& met) const {
    std::vector<std::uint64_t> common = terms.known;
    met.processes.push_back(getpid());
    for (std::uint32_t r = 1; r < meeting_.size; ++r) {
      const Joined& rank = joined_[r];
      std::erase_if(common, [&](std::uint64_t id) { return std::ranges::find(rank.known, id) == rank.known.end(); });
      met.processes.push_back(rank.peer.process);
    }
    GC3_ASSIGN(met.given, terms.give(met.processes, common));
    const std::optional<ProcessFacts> own = facts_of(getpid());
    if (!own) return refused("reading /proc/self/stat");
    std::string packet(
        bytes_of(Welcome{Head{Kind::welcome}, met.given.job, {met.given.control.offset, met.given.control.bytes}}));
    packet += bytes_of(Member{getpid(), 0, own->started});
    for (std::uint32_t r = 1; r < meeting_.size; ++r) {
      packet += bytes_of(Member{joined_[r].peer.process, 0, joined_[r].peer.started});
    }
    for (std::uint32_t r = 1; r < meeting_.size; ++r) {
      if (!send_with(joined_[r].socket.get(), packet, met.given.descriptor)) return gone(r);
    }
    return {};
  }

  // Sends the reason to all ranks that have joined, then to guests that are still connecting, and for some time to late
  // ranks.
  void give_up(const Diagnostic& problem) {
    const std::string told = problem.code == ErrorCode::NotMet
                                 ? problem.message
                                 : "rank 0 gave up while the others were joining: " + problem.message;
    for (Joined& rank : joined_) {
      if (rank.socket.valid()) send_text(rank.socket.get(), Kind::refusal, told);
      rank = {};
    }
    refusal_ = self() + " has given up: " + problem.message;
    const Clock::time_point until = Clock::now() + kLastLook;
    bool more = listener_.valid();
    while (more && Clock::now() < until) more = look_at_all().ok() && !unproven_.empty();
    linger();
  }

  void linger() const {
    Meeting after = meeting_;
    after.interrupted = {};
    after.jobs = {};
    after.timeout_s = std::clamp(meeting_.timeout_s, kShortestRefusal, kLongestRefusal);
    const auto serve = [after = std::move(after), told = refusal_] {
      static_cast<void>(guarded([&] {  // without memory late ranks time out, too
        RendezvousHost(after).answer_late_ranks(told);
        return Status();
      }));
    };
    const SignalsBlocked blocked;
    try {
      std::thread(serve).detach();
    } catch (const std::system_error&) {
      // The system gives no thread; late ranks time out.
    }
  }

  const Meeting& meeting_;
  Kinship kinship_;
  Origin own_;
  JoinDeadline deadline_;
  FileDescriptor listener_;
  std::vector<Unproven> unproven_;  // oldest first
  std::vector<Joined> joined_;      // by rank
  TurnedAway counts_;
  std::string stranger_;                  // why the last process of another launch could not join
  Clock::time_point looked_;              // when stranger_ was last looked for
  std::optional<std::string> ambiguity_;  // the result of the last check for two launches
  Clock::time_point since_;               // when ambiguity_ was first set
  std::string refusal_;                   // the reason for late ranks; empty: this has not given up
  std::uint64_t begun_ = ticks_since_boot();
};

}  // namespace

Result<Met> host_meeting(const Meeting& meeting, const Terms& terms) {
  if (meeting.size != 1) return RendezvousHost(meeting).meet(terms);
  Met met;
  met.processes.push_back(getpid());
  met.pidfds.emplace_back();
  GC3_ASSIGN(met.given, terms.give(met.processes, terms.known));
  return met;
}

}  // namespace gc3::core
