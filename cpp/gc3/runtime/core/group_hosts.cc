// Groups whose ranks run on several hosts. The ranks of each host meet as on one host, and their leader meets the
// others. Then each host has control memory with a block for every rank of the group; see mirror.h.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/sha256.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/hosts/leaders.h"
#include "gc3/runtime/core/hosts/mirror.h"
#include "gc3/runtime/core/meeting/rendezvous_wire.h"
#include "gc3/runtime/core/sharing/group_blocks.h"

namespace gc3::core {
namespace {

template <class T>
void update(Sha256& hash, const T& value) {
  hash.update(bytes_of(value));
}

std::array<std::uint64_t, 2> words_of(Sha256& hash) {
  const Digest digest = hash.finish();
  std::array<std::uint64_t, 2> id{};
  std::memcpy(id.data(), digest.data(), sizeof id);
  return id;
}

constexpr std::uint64_t kMostExchanged = std::uint64_t{1} << 20U;  // of a rank in exchange_bytes
constexpr double kToTell = 10;  // seconds in which a leader tells its host how the meeting has ended

// What the leader of a host gives its ranks: this, and the hosts.
struct Shared {
  std::uint32_t own = 0;
  std::uint32_t reserved = 0;
  Digest key{};
};

}  // namespace

void Group::find_places() {
  const Hosts& hosts = job_->hosts();
  placement_ = {};
  std::map<std::uint32_t, std::uint32_t> numbers;  // of hosts of the job, in this group
  for (std::uint32_t r = 0; r < size(); ++r) {
    const std::uint32_t host = hosts.of(members_[r]);
    const auto [known, is_new] = numbers.emplace(host, static_cast<std::uint32_t>(numbers.size()));
    if (is_new) placement_.ranks_of.emplace_back();
    if (is_new && hosts.several()) placement_.hosts.push_back(hosts.all()[host]);
    placement_.host_of.push_back(known->second);
    placement_.ranks_of[known->second].push_back(r);
  }
  const std::size_t each = placement_.ranks_of.front().size();
  const bool equal = std::ranges::all_of(placement_.ranks_of, [&](const auto& ranks) { return ranks.size() == each; });
  placement_.ranks_per_node = equal ? static_cast<std::uint32_t>(each) : 0;
  std::vector<std::uint32_t> order;
  for (const std::vector<std::uint32_t>& ranks : placement_.ranks_of)
    order.insert(order.end(), ranks.begin(), ranks.end());
  if (!std::ranges::is_sorted(order))
    placement_.order = std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

void Group::tell_hosts() const {
  if (placement_.several()) job_->board().ring();
}

Group::Id Group::child_id(const Id& parent, std::string_view what) {
  Sha256 hash;
  update(hash, parent);
  hash.update(what);
  return words_of(hash);
}

Status Group::describe(Extent control, const Id& id) const {
  GC3_ASSIGN(const Mapping memory, job_->map(control));
  auto& header = *reinterpret_cast<Header*>(memory.data());
  store(header.id[0], id[0]);
  store(header.id[1], id[1]);
  store(header.ranks, size());
  store(header.bytes, control.bytes);
  std::memcpy(memory.data() + group_blocks::control_bytes(size(), false), members_.data(), size() * sizeof members_[0]);
  return {};
}

Status Group::announce_to_leader(Extent control) const {
  if (!placement_.several()) return {};
  GC3_ASSIGN(const Mapping memory, job_->map(control));
  job_->board().announce(control.offset, reinterpret_cast<Header*>(memory.data())->next);
  return {};
}

Result<std::unique_ptr<Group>> Group::across(const Meeting& meeting, const Options& options) {
  Meeting near = meeting;
  near.rank = meeting.route->here.rank;
  near.size = meeting.route->here.size;
  near.job = meeting.route->here_job;
  near.jobs = {};  // one job for each join: where it is used again, its processes must have the same hosts
  near.route.reset();
  // The other ranks of this host wait for their leader, which may wait for other hosts until the time to join is over.
  Options patient = options;
  patient.timeout_s = std::max(options.timeout_s, 2 * meeting.timeout_s + kToTell);
  GC3_ASSIGN(const std::unique_ptr<Group> local, on_host(near, patient));
  Result<std::unique_ptr<Group>> made = local->extend(meeting, options.timeout_s);
  if (!made.ok()) return local->give_up(made.error());  // so that the other ranks of this host get the reason
  Group& group = *made.value();
  group.choose_waiting();
  GC3_CHECK(group.begin({CallKind::barrier}));
  GC3_ASSIGN(const auto offers,
             group.exchange({options.offers[0], options.offers[1], options.offers[2]}, meeting.interrupted));
  group.compare(options, offers);
  group.finish();
  return made;
}

// Of the ranks of a host: their leader meets the others, and then all of them make the group of all ranks.
Result<std::unique_ptr<Group>> Group::extend(const Meeting& meeting, double timeout_s) {
  GC3_CHECK(begin({CallKind::split}));
  const bool leads = rank_ == 0;
  GC3_ASSIGN(const auto said, exchange({meeting.rank, meeting.size}, meeting.interrupted));
  Host here;
  here.name = name_of_this_host();
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (said[r][1] != meeting.size) {
      return not_met("rank " + std::to_string(said[r][0]) + " says there are " + std::to_string(said[r][1]) +
                     " ranks, rank " + std::to_string(meeting.rank) + " says " + std::to_string(meeting.size));
    }
    if (r != 0 && said[r][0] <= said[r - 1][0]) {
      return Diagnostic(ErrorCode::BadOption,
                        "local rank " + std::to_string(r) + " is rank " + std::to_string(said[r][0]) +
                            ", and local rank " + std::to_string(r - 1) + " of the same host is rank " +
                            std::to_string(said[r - 1][0]) + ": local ranks must ascend with ranks");
    }
    here.ranks.push_back(static_cast<std::uint32_t>(said[r][0]));
    here.processes.push_back(job_->process(members_[r]));
  }
  LeadersMet met;
  std::string text;
  Extent list;
  Extent board;
  if (leads) {
    Digest key{};
    job_->key().copy(reinterpret_cast<char*>(key.data()), key.size());
    GC3_ASSIGN(met, meet_leaders(meeting, here, key));
    text = std::string(bytes_of(Shared{met.own, 0, met.key})) + pack_hosts(met.hosts);
    GC3_ASSIGN(list, job_->allocate(text.size(), "the list of hosts"));
    GC3_ASSIGN(const Mapping memory, job_->map(list));
    text.copy(reinterpret_cast<char*>(memory.data()), text.size());
    GC3_ASSIGN(board, job_->allocate(Board::bytes(Hosts(met.hosts, met.own)), "the states of other hosts"));
  }
  GC3_ASSIGN(const auto given, exchange({list.offset, text.size(), board.offset, board.bytes}, meeting.interrupted));
  board = {given[0][2], given[0][3]};
  GC3_ASSIGN(const Mapping memory, job_->map({given[0][0], given[0][1]}));
  const std::string_view all(reinterpret_cast<const char*>(memory.data()), given[0][1]);
  Shared head;
  all.copy(reinterpret_cast<char*>(&head), sizeof head);
  GC3_ASSIGN(std::vector<Host> hosts, unpack_hosts(all.substr(sizeof head), meeting.size));
  GC3_CHECK(job_->extend(Hosts(std::move(hosts), head.own), board, head.key));
  members_ = here.ranks;
  find_places();
  if (leads && job_->hosts().several()) {
    GC3_ASSIGN(std::unique_ptr<Mirror> mirror, Mirror::start(*job_, std::move(met.lines)));
    job_->keep(std::move(mirror));
  }
  std::vector<std::uint32_t> everybody(meeting.size);
  std::iota(everybody.begin(), everybody.end(), 0U);
  std::unique_ptr<Group> group = child(std::move(everybody), meeting.rank, timeout_s);
  group->numbers_.clear();  // it has all ranks of the job
  Extent control;
  if (leads) {
    GC3_ASSIGN(control, job_->allocate(group->control_bytes(), "a communicator"));
    GC3_CHECK(group->describe(control, child_id({}, job_->key())));
    GC3_CHECK(group->announce_to_leader(control));
  }
  GC3_ASSIGN(const auto offers, exchange({control.offset, control.bytes}, meeting.interrupted));
  if (leads) job_->discard(list);
  GC3_CHECK(group->attach({offers[0][0], offers[0][1]}));
  finish();
  return group;
}

Result<std::vector<std::uint64_t>> Group::exchange_by_turns(const std::vector<std::uint64_t>& own,
                                                            const Interrupted& interrupted) {
  std::vector<std::uint64_t> all(own.size() * size());
  constexpr std::size_t kWords = std::tuple_size_v<Payload>;
  for (std::size_t at = 0; at < own.size() || at == 0; at += kWords) {
    const std::size_t words = std::min(kWords, own.size() - at);
    Payload part{};
    std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(at), words, part.begin());
    GC3_ASSIGN(const std::vector<Payload> parts, exchange(part, interrupted));
    for (std::uint32_t r = 0; r < size(); ++r) {
      for (std::size_t i = 0; i < words; ++i) all[r * own.size() + at + i] = parts[r][i];
    }
  }
  return all;
}

Result<std::vector<std::string>> Group::exchange_bytes(std::string_view own, const Interrupted& interrupted) {
  GC3_ASSIGN(const std::vector<Payload> lengths, exchange({own.size()}, interrupted));
  std::uint64_t most = 0;
  for (const Payload& length : lengths) most = std::max(most, length[0]);
  if (most > kMostExchanged) {
    return give_up(Diagnostic(ErrorCode::BadArgument, "a rank gives " + std::to_string(most) + " bytes to all ranks"));
  }
  std::vector<std::uint64_t> words((most + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  own.copy(reinterpret_cast<char*>(words.data()), own.size());
  GC3_ASSIGN(const std::vector<std::uint64_t> all, exchange_by_turns(words, interrupted));
  std::vector<std::string> found;
  for (std::uint32_t r = 0; r < size(); ++r) {
    found.emplace_back(reinterpret_cast<const char*>(all.data() + r * words.size()), lengths[r][0]);
  }
  return found;
}

}  // namespace gc3::core
