// Why a wait of a group ends: another rank has given up, calls something else, is lost, or is late.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/group_blocks.h"

namespace gc3::core {
namespace {

constexpr std::size_t kMaxNamed = 8;  // ranks named in one message

std::string rounded_seconds(double s) {
  if (s < 1) return std::to_string(static_cast<std::uint64_t>(s * 1e3 + 0.5)) + " ms";
  return std::to_string(static_cast<std::uint64_t>(s + 0.5)) + " s";
}

// The chain after call `sequence`; none if `history` does not have the call any more, or not yet.
template <class History>
std::optional<std::uint64_t> chain_at(const History& history, std::uint64_t sequence) {
  const auto call = history[sequence % kHistory].read(sequence);
  if (!call) return {};
  return call->chain;
}

}  // namespace

Status check_timeout(std::optional<double> timeout_s) {
  if (!timeout_s || *timeout_s > 0) return {};
  return Diagnostic(ErrorCode::BadOption,
                    "timeout=" + std::to_string(*timeout_s) + "; expected a number of seconds above 0");
}

Status Group::check_wait(double waited_s, const Interrupted& interrupted) {
  if (std::optional<Diagnostic> reason = given_up()) return std::move(*reason);
  if (std::optional<Diagnostic> reason = difference()) return give_up(*reason);
  if (std::optional<Diagnostic> reason = loss(waited_s)) return give_up(*reason);
  if (interrupted && interrupted()) {
    return give_up(Diagnostic(ErrorCode::Aborted, who(rank_) + " was interrupted"));
  }
  const double limit_s = call_timeout_s_.value_or(timeout_s_);
  if (waited_s > limit_s && !computes_within(limit_s)) return give_up(passed_deadline(waited_s));
  return {};
}

void Group::computes(bool now) {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  const auto ended = static_cast<std::uint64_t>(std::chrono::nanoseconds(time).count());
  store(block(rank_).computed, now ? kComputes : ended);  // relaxed: only the checks of time-outs read it
}

bool Group::computes_within(double limit_s) const {
  const auto now = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  for (std::uint32_t r = 0; r < size(); ++r) {
    const std::uint64_t computed = load(block(r).computed);
    if (computed == kComputes) return true;
    // Another host's clock may be ahead or far behind: then what counts is only that it computes.
    const auto ago = now - static_cast<std::int64_t>(computed);
    if (computed != 0 && ago >= 0 && static_cast<double>(ago) * 1e-9 < limit_s) return true;
  }
  return false;
}

std::string Group::text_of(const Diagnostic& reason) const {
  std::string text = (name_.empty() ? "" : "group " + name_ + ": ") + reason.message;
  for (const Note& n : reason.notes) text += "\n" + n.text;
  return text;
}

Diagnostic Group::give_up(const Diagnostic& reason) {
  if (header().give_up(static_cast<std::uint64_t>(reason.code), text_of(reason))) {
    bells_.ring_all();
    tell_hosts();
  }
  return *given_up();
}

// If several ranks do this at once, the last one's reason counts. What the file has after one write is what any mapping
// shows after the next one.
Diagnostic Group::give_up_unmapped(Extent control, const Diagnostic& problem) const {
  const std::string text =
      text_of(Diagnostic(problem.code, who(rank_) + " cannot map the memory of the communicator: " + problem.message));
  Header told{};
  told.code = static_cast<std::uint64_t>(problem.code);
  std::strncpy(told.reason, text.c_str(), kMaxReason - 1);
  told.given_up = 2;
  const std::uint64_t own = kHeaderBytes + rank_ * sizeof(RankBlock);
  // What cannot be written is not told: then the others wait for the time-out.
  job_->write(control.offset + own + offsetof(RankBlock, left), &kAbsent, sizeof kAbsent);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&told);
  job_->write(control.offset + offsetof(Header, code), bytes + offsetof(Header, code),
              sizeof told.code + sizeof told.reason);
  job_->write(control.offset + offsetof(Header, given_up), &told.given_up, sizeof told.given_up);
  tell_hosts();
  return Diagnostic(problem.code, text);
}

// All ranks report the text of the rank that has given up.
std::optional<Diagnostic> Group::given_up() const {
  const Header& h = header();
  std::uint64_t state = load(h.given_up, std::memory_order_acquire);
  if (state == 0) return {};
  for (int i = 0; state == 1 && i < 1000; ++i) {  // the writer may be killed mid-write
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    state = load(h.given_up, std::memory_order_acquire);
  }
  if (state == 1)
    return Diagnostic(ErrorCode::Aborted,
                      "a rank has given up the communicator, and has ended before it gave the reason");
  const std::string text(h.reason);
  const std::size_t end = std::min(text.find('\n'), text.size());
  Diagnostic reason(static_cast<ErrorId>(h.code), text.substr(0, end));
  for (std::size_t at = end; at < text.size();) {
    const std::size_t next = std::min(text.find('\n', at + 1), text.size());
    reason.note(text.substr(at + 1, next - at - 1));
    at = next;
  }
  return reason;
}

std::string Group::who(std::uint32_t rank) const {
  std::string process = std::to_string(job_->process(members_[rank]));
  if (!is_here(rank)) {
    const Hosts& hosts = job_->hosts();
    process = std::to_string(hosts.process(members_[rank])) + " on " + hosts.all()[hosts.of(members_[rank])].name;
  }
  std::string number = std::to_string(rank);
  if (!numbers_.empty() && numbers_[rank] != rank) {
    number += " of the group, rank " + std::to_string(numbers_[rank]) + " of the job";
  }
  return "rank " + number + " (process " + process + ")";
}

Status Group::check_same(std::uint32_t rank) {
  if (chain_at(block(rank).history, sequence_) == chain_) return {};
  const std::optional<Diagnostic> differs = difference();
  return give_up(differs ? *differs : Diagnostic(ErrorCode::CallsDiffer, who(rank) + " is not in this call"));
}

std::optional<Diagnostic> Group::difference() const {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const std::uint64_t common = std::min(sequence_, load(block(r).begun, std::memory_order_acquire));
    if (common == 0) continue;
    const auto own = chain_at(own_->history, common);
    const auto other = chain_at(block(r).history, common);
    if (own && other && *own != *other) return explain_difference(common, r);
  }
  return {};
}

Diagnostic Group::explain_difference(std::uint64_t sequence, std::uint32_t other) const {
  // Go back to the first call that differs, as far as both histories reach.
  while (sequence > 1) {
    const auto own = chain_at(own_->history, sequence - 1);
    const auto theirs = chain_at(block(other).history, sequence - 1);
    if (!own || !theirs || *own == *theirs) break;
    --sequence;
  }
  std::map<std::string, std::vector<std::uint32_t>> said;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (const std::optional<std::string> call = called(r, sequence)) said[*call].push_back(r);
  }
  Diagnostic reason(ErrorCode::CallsDiffer, "call " + std::to_string(sequence) + " of the communicator");
  for (const auto& [what, ranks] : said) {
    std::string names;
    for (std::size_t i = 0; i < ranks.size() && i < kMaxNamed; ++i) {
      names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    if (ranks.size() > kMaxNamed) names += ", ...";
    reason.note("rank " + names + ": " + what);
  }
  return reason;
}

std::optional<std::string> Group::called(std::uint32_t rank, std::uint64_t sequence) const {
  const RankBlock& of = block(rank);
  const std::optional<group_blocks::Recorded> call = of.history[sequence % kHistory].read(sequence);
  if (!call) return {};
  std::string what = CallRecord::unpack(call->packed, call->count, call->program).describe();
  if (const std::optional<std::string> text = of.note.said(sequence)) what += ": " + *text;
  return what;
}

// A lost rank is an error only if it has not finished the current call of this rank, or may not have sent all of it:
// what it has given to its host's system is lost with the host. A wait as long as it takes to notice that is in vain.
std::optional<Diagnostic> Group::loss(double waited_s) const {
  const bool long_wait = waited_s > std::min(kNoticedAfter, call_timeout_s_.value_or(timeout_s_));
  const auto is_over = [&](std::uint32_t r) {
    if (load(block(r).finished, std::memory_order_acquire) < sequence_) return false;
    return !long_wait || is_here(r) || !job_->board().is_lost(job_->hosts().of(members_[r]));
  };
  std::vector<std::uint32_t> needed;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank_ || is_over(r)) continue;
    needed.push_back(r);
  }
  std::vector<std::uint32_t> processes;
  for (const std::uint32_t r : needed) processes.push_back(members_[r]);
  const std::vector<std::uint32_t> dead = job_->dead(processes);
  for (const std::uint32_t r : needed) {
    const bool left = load(block(r).left, std::memory_order_acquire) != 0;
    const std::optional<std::string> why = job_->lost(members_[r]);
    // Before it ended or left, the rank may have finished the call, since `finished` was read.
    if (is_over(r)) continue;
    const bool in_call = load(block(r).begun, std::memory_order_acquire) >= sequence_;
    const std::string when = (in_call ? " during call " : " before call ") + std::to_string(sequence_);
    if (std::find(dead.begin(), dead.end(), members_[r]) != dead.end()) {
      return Diagnostic(ErrorCode::RankLost, who(r) + " has ended" + when);
    }
    if (left) {
      return Diagnostic(ErrorCode::RankLost, who(r) + " has closed the communicator" + when);
    }
    if (why) {
      return Diagnostic(ErrorCode::RankLost,
                        *why + ", " + (in_call ? "during call " : "before call ") + std::to_string(sequence_));
    }
  }
  return {};
}

std::optional<Diagnostic> Group::lost() {
  if (std::optional<Diagnostic> reason = given_up()) return reason;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const Presence presence = this->presence(r);
    if (presence == Presence::left) continue;
    if (presence == Presence::ended) return give_up(Diagnostic(ErrorCode::RankLost, who(r) + " has ended"));
    if (const std::optional<std::string> why = job_->lost(members_[r])) {
      return give_up(Diagnostic(ErrorCode::RankLost, *why));
    }
  }
  return {};
}

Diagnostic Group::passed_deadline(double waited_s) const {
  std::string absent;
  std::string busy;
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (r == rank_ || load(block(r).finished, std::memory_order_acquire) >= sequence_) continue;
    std::string& list = load(block(r).begun, std::memory_order_acquire) < sequence_ ? absent : busy;
    list += (list.empty() ? "" : ", ") + who(r) + (runs(r) ? "" : ", which has been stopped");
  }
  Diagnostic reason(ErrorCode::Timeout,
                    "call " + std::to_string(sequence_) + " has made no progress for " + rounded_seconds(waited_s));
  if (!absent.empty()) reason.note("not called yet by " + absent);
  if (!busy.empty()) reason.note("not finished by " + who(rank_) + ", " + busy);
  return reason;
}

}  // namespace gc3::core
