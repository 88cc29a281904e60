#include "gc3/runtime/core/hosts/leaders.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/meeting/handshake.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"

namespace gc3::core {
namespace {

constexpr std::size_t kMostConnected = 64;  // connections that have proven nothing
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::seconds kAttempt{2};  // to connect; the system would try for minutes
constexpr std::size_t kHostName = 64;
constexpr std::uint32_t kMostHosts = 65536;

// What a leader says of its host, after the proof of it. A Member for each rank follows.
struct Claim {
  char release[16] = {};
  std::uint32_t size = 0;  // ranks of the job
  std::uint32_t ranks = 0;
};
struct Opening {
  Head head{Kind::hello};
  Nonce nonce{};
  Digest proof{};
};
struct Packed {
  char name[kHostName] = {};
  char address[kHostName] = {};
  std::uint32_t ranks = 0;
};
struct RankOn {
  std::uint32_t rank = 0;
  std::int32_t process = 0;
};
struct Table {
  Head head{Kind::welcome};
  std::uint32_t own = 0;
  Digest drawn{};  // see key_of
};

std::size_t most_of(std::uint32_t size) {
  return sizeof(Opening) + sizeof(Claim) + sizeof(Packed) + size * sizeof(RankOn);
}
std::size_t most_table(std::uint32_t size) {
  return sizeof(Table) + size * (sizeof(Packed) + sizeof(RankOn)) + kMaxText + sizeof(Head);
}

template <std::size_t n>
void copy_text(char (&to)[n], const std::string& text) {
  text.copy(to, n - 1);
}
template <std::size_t n>
std::string text_of(const char (&from)[n]) {
  return shown(std::string(from, strnlen(from, n)));
}

template <class T>
std::optional<T> take(std::string_view& text) {
  if (text.size() < sizeof(T)) return {};
  T value;
  text.copy(reinterpret_cast<char*>(&value), sizeof value);
  text.remove_prefix(sizeof value);
  return value;
}

// The proofs are for the job, and not for a user: its hosts may give the user different numbers.
std::string purpose(const Meeting& meeting) { return "hosts|" + meeting.job + "#" + std::to_string(meeting.ordinal); }

// The job's key, of what rank 0 has drawn and sends in clear: who does not know the secret cannot compute it.
Digest key_of(const Meeting& meeting, const Digest& drawn) {
  return hmac_sha256(meeting.secret, "gc3 job key:" + std::string(as_text(drawn)));
}

bool tell(Frames& line, Kind kind, std::string_view text) {
  return line.put(std::string(bytes_of(Head{kind})) + std::string(text.substr(0, kMaxText)));
}

std::string pack(const Host& host) {
  Packed head;
  copy_text(head.name, host.name);
  copy_text(head.address, host.address);
  head.ranks = static_cast<std::uint32_t>(host.ranks.size());
  std::string text(bytes_of(head));
  for (std::size_t i = 0; i < host.ranks.size(); ++i) text += bytes_of(RankOn{host.ranks[i], host.processes[i]});
  return text;
}

// Checks everything but whether another host claims a rank, too.
std::optional<Host> unpack(std::string_view& text, std::uint32_t size) {
  const auto head = take<Packed>(text);
  if (!head || head->ranks == 0 || head->ranks > size) return {};
  Host host{text_of(head->name), text_of(head->address), {}, {}};
  for (std::uint32_t i = 0; i < head->ranks; ++i) {
    const auto one = take<RankOn>(text);
    if (!one || one->rank >= size || (i != 0 && one->rank <= host.ranks.back())) return {};
    host.ranks.push_back(one->rank);
    host.processes.push_back(one->process);
  }
  return host;
}

std::string claim_of(const Meeting& meeting, const Host& here) {
  Claim claim;
  copy_text(claim.release, release_of(meeting));
  claim.size = meeting.size;
  return std::string(bytes_of(claim)) + pack(here);
}

class Hub {
 public:
  Hub(const Meeting& meeting, const Host& here, const Digest& drawn)
      : meeting_(meeting), here_(here), drawn_(drawn), deadline_(meeting), host_of_(meeting.size, kNobody) {}

  Result<LeadersMet> meet() {
    const Route& route = *meeting_.route;
    LeadersMet met;
    met.key = key_of(meeting_, drawn_);
    for (const std::uint32_t rank : here_.ranks) host_of_[rank] = 0;
    hosts_ = {here_};
    lines_.emplace_back(FileDescriptor());
    const Endpoint at = address_at(route.listener->get());
    hosts_.front().address = at.host();
    where_ = at.str() + " of " + route.interface;
    if (Status status = gather(); !status.ok()) {
      for (Frames& line : lines_) {
        if (line.valid()) tell(line, Kind::refusal, status.error().message);
      }
      return status.error();
    }
    const std::string all = pack_hosts(hosts_);
    for (std::uint32_t h = 1; h < hosts_.size(); ++h) {
      Table table;
      table.own = h;
      table.drawn = drawn_;
      if (!lines_[h].put(std::string(bytes_of(table)) + all)) return gone(h);
    }
    met.hosts = std::move(hosts_);
    met.lines = std::move(lines_);
    return met;
  }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  struct Connected {
    Frames line;
    Nonce nonce{};
    Clock::time_point since;
  };

  Status gather() {
    for (;;) {
      const auto missing = std::ranges::count(host_of_, kNobody);
      if (missing == 0) return {};
      GC3_CHECK(look_at_all());
      GC3_CHECK(deadline_.check());
      if (deadline_.over()) return absent();
    }
  }

  Diagnostic absent() const {
    std::string names;
    std::size_t named = 0;
    for (std::uint32_t r = 0; r < meeting_.size; ++r) {
      if (host_of_[r] != kNobody) continue;
      if (++named > 8) {
        names += ", ...";
        break;
      }
      names += (names.empty() ? "" : ", ") + std::to_string(r);
    }
    Diagnostic problem = not_met("of " + std::to_string(meeting_.size) + " ranks these have not joined within " +
                                 seconds(meeting_.timeout_s) + ": " + names + "; rank 0 listens at " + where_);
    for (const Host& host : hosts_) problem.note("joined: " + host.str());
    if (turned_away_ != 0) problem.note("connections turned away: " + std::to_string(turned_away_));
    if (!refused_.empty()) problem.note(refused_);
    return problem;
  }

  Diagnostic gone(std::uint32_t h) const {
    return not_met(hosts_[h].str() + " has disconnected while the others were joining");
  }

  Status look_at_all() {
    std::vector<pollfd> watched{{meeting_.route->listener->get(), POLLIN, 0}};
    for (const Frames& line : lines_) watched.push_back({line.descriptor(), POLLIN, 0});
    for (const Connected& guest : guests_) watched.push_back({guest.line.descriptor(), POLLIN, 0});
    if (poll(watched.data(), watched.size(), static_cast<int>(kLook.count())) < 0 && errno != EINTR) {
      return refused("poll");
    }
    const std::size_t lines = lines_.size();
    for (std::uint32_t h = 1; h < lines; ++h) {
      if (watched[1 + h].revents != 0) return gone(h);  // a leader has nothing to say before the answer
    }
    std::vector<Connected> guests = std::exchange(guests_, {});
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < guests.size(); ++i) {
      Connected& guest = guests[i];
      if (watched[1 + lines + i].revents != 0) {
        if (!guest.line.fill(most_of(meeting_.size))) {
          if (guest.line.has_other_version()) refused_ = "a connection was of another version of gc3";
          ++turned_away_;
          continue;
        }
        if (const std::optional<std::string> frame = guest.line.next()) {
          Status status = admit(guest, *frame);
          if (!status.ok()) {
            tell(guest.line, Kind::refusal, status.error().message);
            return status;
          }
          continue;
        }
      }
      if (now - guest.since > kSilenceLimit) {
        ++turned_away_;
      } else {
        guests_.push_back(std::move(guest));
      }
    }
    for (int i = 0; i < kAtOnce && watched[0].revents != 0; ++i) {
      FileDescriptor socket(accept4(meeting_.route->listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        if (errno != EAGAIN) std::this_thread::sleep_for(kRetry);  // such as without a free descriptor: it comes again
        break;
      }
      if (guests_.size() >= kMostConnected + hosts_most()) {
        guests_.erase(guests_.begin());
        ++turned_away_;
      }
      Connected guest{Frames(std::move(socket)), {}, Clock::now()};
      GC3_ASSIGN(guest.nonce, Handshake::new_nonce());
      Challenge challenge;
      challenge.nonce = guest.nonce;
      if (guest.line.put(bytes_of(challenge))) guests_.push_back(std::move(guest));
    }
    return {};
  }

  std::size_t hosts_most() const { return std::min(meeting_.size, kMostHosts); }

  // An error concerns the whole job; a guest that proves nothing is only turned away.
  Status admit(Connected& guest, std::string_view frame) {
    const std::optional<Opening> opening = take<Opening>(frame);
    if (!opening || opening->head.kind != Kind::hello || opening->head.version != kVersion) {
      ++turned_away_;
      return {};
    }
    const Handshake handshake(meeting_.secret, purpose(meeting_), guest.nonce, opening->nonce);
    if (!handshake.proven(Handshake::Role::guest, frame, opening->proof)) {
      ++turned_away_;
      refused_ = "a connection had another GC3_SECRET, or was of another job than " + meeting_.job;
      guest.line.put(bytes_of(Head{Kind::unproven}));
      return {};
    }
    Answer answer;
    answer.proof = handshake.proof(Handshake::Role::host, frame);
    if (!guest.line.put(bytes_of(answer))) return {};
    // The guest has proven itself, so its data is used from here on.
    const std::optional<Claim> claim = take<Claim>(frame);
    if (!claim) return not_met("a host has sent a malformed claim");
    if (text_of(claim->release) != release_of(meeting_)) {
      return not_met("a host has version " + text_of(claim->release) + " of gc3, rank 0 has " + release_of(meeting_));
    }
    if (claim->size != meeting_.size) {
      return not_met("a host says there are " + std::to_string(claim->size) + " ranks, rank 0 says " +
                     std::to_string(meeting_.size));
    }
    std::optional<Host> host = unpack(frame, meeting_.size);
    if (!host || !frame.empty()) return not_met("a host has sent a malformed claim");
    for (const std::uint32_t rank : host->ranks) {
      if (host_of_[rank] != kNobody) {
        return not_met("two processes say they are rank " + std::to_string(rank) + ": one on " +
                       hosts_[host_of_[rank]].str() + ", one on " + host->str());
      }
    }
    for (const std::uint32_t rank : host->ranks) host_of_[rank] = static_cast<std::uint32_t>(hosts_.size());
    hosts_.push_back(std::move(*host));
    lines_.push_back(std::move(guest.line));
    return {};
  }

  const Meeting& meeting_;
  const Host& here_;
  const Digest& drawn_;
  JoinDeadline deadline_;
  std::vector<std::uint32_t> host_of_;  // by rank
  std::vector<Host> hosts_;
  std::vector<Frames> lines_;
  std::vector<Connected> guests_;
  std::string where_;
  std::uint64_t turned_away_ = 0;
  std::string refused_;
};

// A leader other than rank 0.
class Visitor {
 public:
  Visitor(const Meeting& meeting, const Host& here) : meeting_(meeting), here_(here), deadline_(meeting) {}

  Result<LeadersMet> meet() {
    GC3_ASSIGN(const std::vector<Endpoint> all, resolve(meeting_.route->address));
    for (std::size_t turn = 0;; ++turn) {
      const Endpoint& to = all[turn % all.size()];
      GC3_ASSIGN(const Interface from, choose_interface(meeting_.route->network, to));
      where_ = "rank 0's host at " + to.str() + ", from " + from.str();
      GC3_ASSIGN(FileDescriptor socket, connect(to, from));
      if (!socket.valid() && !deadline_.over()) continue;  // another address of that host
      if (!socket.valid()) {
        if (!lacks_.empty()) return not_met(lacks_);
        return not_met("no connection to " + where_ + " within " + seconds(meeting_.timeout_s) + ": " + why_);
      }
      Frames line(std::move(socket));
      Host here = here_;
      here.address = address_at(line.descriptor()).host();
      GC3_ASSIGN(std::optional<LeadersMet> met, enter(line, here));
      if (met) return std::move(*met);
      GC3_CHECK(pause());
      if (deadline_.over()) {
        return not_met(lacks_.empty() ? where_ + " has not answered within " + seconds(meeting_.timeout_s) : lacks_);
      }
    }
  }

 private:
  Status pause() {
    std::this_thread::sleep_for(kRetry);
    return deadline_.check();
  }

  // An invalid descriptor: rank 0 does not answer there, or not yet.
  Result<FileDescriptor> connect(const Endpoint& to, const Interface& from) {
    const Clock::time_point until = Clock::now() + kAttempt;
    {
      FileDescriptor made(socket(to.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!made.valid()) return refused("socket");
      if (!meeting_.route->network.empty() && from.address.get()->sa_family == to.get()->sa_family) {
        if (bind(made.get(), from.address.get(), from.address.length) != 0) return refused("binding to " + from.str());
      }
      int code = ::connect(made.get(), to.get(), to.length) == 0 ? 0 : errno;
      if (code == EINPROGRESS) {
        pollfd waiting{made.get(), POLLOUT, 0};
        while (poll(&waiting, 1, static_cast<int>(kLook.count())) <= 0 && !deadline_.over() && Clock::now() < until)
          GC3_CHECK(deadline_.check());
        socklen_t length = sizeof code;
        if (waiting.revents == 0) {
          code = ETIMEDOUT;
        } else if (getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &code, &length) != 0) {
          code = errno;
        }
      }
      if (code == 0) return made;
      why_ = std::strerror(code);  // rank 0 may not listen yet, and its host may not be up
      GC3_CHECK(pause());
    }
    return FileDescriptor();
  }

  // The next frame; empty: the other end has closed, does not follow the protocol, or the time is over.
  Result<std::string> wait_for(Frames& line, std::size_t most, std::optional<Clock::duration> a_while = {}) {
    const Clock::time_point start = Clock::now();
    while (!deadline_.over() && (!a_while || Clock::now() - start < *a_while)) {
      pollfd waiting{line.descriptor(), POLLIN, 0};
      if (poll(&waiting, 1, static_cast<int>(kLook.count())) < 0 && errno != EINTR) return refused("poll");
      if (waiting.revents != 0 && !line.fill(most)) return std::string();
      if (std::optional<std::string> frame = line.next()) return std::move(*frame);
      GC3_CHECK(deadline_.check());
    }
    return std::string();
  }

  // None if that was no rank 0 of this job, or not yet. Before its proof anybody may have its port, and rank 0 may
  // still come: what is said until then is kept for a later message.
  Result<std::optional<LeadersMet>> enter(Frames& line, const Host& here) {
    GC3_ASSIGN(const std::string first, wait_for(line, sizeof(Challenge), kSilenceLimit));
    if (line.has_other_version())
      lacks_ = where_ + " has another version of gc3 than this rank, " + release_of(meeting_);
    const std::optional<Challenge> challenge = unpacked<Challenge>(first);
    if (!challenge) return std::optional<LeadersMet>();
    const std::string said = claim_of(meeting_, here);
    Opening opening;
    GC3_ASSIGN(opening.nonce, Handshake::new_nonce());
    const Handshake handshake(meeting_.secret, purpose(meeting_), challenge->nonce, opening.nonce);
    opening.proof = handshake.proof(Handshake::Role::guest, said);
    if (!line.put(std::string(bytes_of(opening)) + said)) return std::optional<LeadersMet>();
    GC3_ASSIGN(const std::string second, wait_for(line, sizeof(Answer), kSilenceLimit));
    const std::optional<Answer> answer = unpacked<Answer>(second);
    if (second == bytes_of(Head{Kind::unproven})) {
      lacks_ = where_ + " has another GC3_SECRET than this rank, or only one of the two has one, or it is of another " +
               "job than " + meeting_.job;
    } else if (answer && !handshake.proven(Handshake::Role::host, said, answer->proof)) {
      lacks_ = where_ + " has not proven that it knows this rank's GC3_SECRET";
    }
    if (!answer || !handshake.proven(Handshake::Role::host, said, answer->proof)) return std::optional<LeadersMet>();
    // Rank 0 has proven itself, so its messages are used from here on.
    deadline_.extend(kAfterRank0);
    GC3_ASSIGN(const std::string last, wait_for(line, most_table(meeting_.size)));
    std::string_view rest = last;
    Head head;
    if (rest.size() < sizeof head) {
      return not_met(where_ + (deadline_.over() ? " has waited for other hosts for " + seconds(meeting_.timeout_s)
                                                : " has disconnected before all ranks had joined"));
    }
    std::memcpy(&head, rest.data(), sizeof head);
    if (head.kind == Kind::refusal) return not_met(shown(rest.substr(sizeof head, kMaxText)));
    const std::optional<Table> table = take<Table>(rest);
    if (!table || table->head.kind != Kind::welcome) return not_met(where_ + " has sent a malformed list of hosts");
    LeadersMet met;
    GC3_ASSIGN(met.hosts, unpack_hosts(rest, meeting_.size));
    met.own = table->own;
    met.key = key_of(meeting_, table->drawn);
    if (met.own == 0 || met.own >= met.hosts.size() || met.hosts[met.own].ranks != here.ranks) {
      return not_met(where_ + " has sent a malformed list of hosts");
    }
    met.lines.push_back(std::move(line));
    return std::optional<LeadersMet>(std::move(met));
  }

  const Meeting& meeting_;
  const Host& here_;
  JoinDeadline deadline_;
  std::string where_;
  std::string why_ = "rank 0 does not answer";
  std::string lacks_;  // what the last one that answered lacks; kept when it no longer listens
};

}  // namespace

std::string name_of_this_host() {
  std::array<char, kHostName> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "?";
  return shown(name.data());
}

std::string pack_hosts(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += pack(host);
  return text;
}

Result<std::vector<Host>> unpack_hosts(std::string_view text, std::uint32_t ranks) {
  std::vector<Host> hosts;
  std::vector<bool> known(ranks);
  std::size_t count = 0;
  const auto malformed = [] { return not_met("rank 0 has sent a malformed list of hosts"); };
  while (!text.empty()) {
    std::optional<Host> host = unpack(text, ranks);
    if (!host) return malformed();
    for (const std::uint32_t rank : host->ranks) {
      if (known[rank]) return malformed();
      known[rank] = true;
      ++count;
    }
    hosts.push_back(std::move(*host));
  }
  if (count != ranks || hosts.empty() || hosts.front().ranks.front() != 0) return malformed();
  return hosts;
}

Result<LeadersMet> meet_leaders(const Meeting& meeting, const Host& here, const Digest& drawn) {
  if (meeting.rank == 0) return Hub(meeting, here, drawn).meet();
  return Visitor(meeting, here).meet();
}

}  // namespace gc3::core
