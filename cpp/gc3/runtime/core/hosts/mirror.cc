#include "gc3/runtime/core/hosts/mirror.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/signals.h"
#include "gc3/base/threads.h"
#include "gc3/runtime/core/hosts/job.h"
#include "gc3/runtime/core/hosts/mirror_parts.h"
#include "gc3/runtime/core/meeting/handshake.h"

namespace gc3::core {

using namespace mirror;

namespace {

constexpr std::chrono::milliseconds kBeat{200};
constexpr std::chrono::milliseconds kSilent{3000};
constexpr std::uint32_t kLostBeats = 2;
constexpr std::chrono::seconds kStoppedItself{1};  // between two looks
constexpr std::chrono::seconds kLongestStay{10};   // for ranks of this job that have not left
constexpr std::chrono::seconds kLastSend{1};
constexpr std::size_t kMostMessage = 1 << 18;  // so that many small ones are read at once
constexpr int kMostRings = 64;                 // taken at once

}  // namespace

Mirror::Mirror(Job& job) : job_(job), found_(job.size(), Board::State::here), told_(found_) {}

Result<std::unique_ptr<Mirror>> Mirror::start(Job& job, std::vector<Frames> lines) {
  std::unique_ptr<Mirror> mirror(new Mirror(job));
  const std::uint32_t own = job.hosts().own();
  for (std::uint32_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].valid()) continue;
    Line& line = mirror->lines_.emplace_back(std::move(lines[i]), own == 0 ? i : 0);
    line.heard = Clock::now();
  }
  mirror->waker_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  GC3_ASSIGN(const Nonce drawn, Handshake::new_nonce());
  const std::string name = "gc3-waker-" + hex(drawn).substr(0, 40);
  const Address at = abstract_address(name);
  if (!mirror->waker_.valid() || bind(mirror->waker_.get(), at.get(), at.length) != 0) {
    return refused("a Unix socket");
  }
  job.board().set_waker(name);
  const SignalsBlocked blocked;
  GC3_ASSIGN(mirror->thread_,
             start_thread("the thread of the connections to other hosts", [&mirror = *mirror] { mirror.serve(); }));
  return mirror;
}

Mirror::~Mirror() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  job_.board().ring();
  thread_.join();
}

bool Mirror::is_hub() const { return job_.hosts().own() == 0; }

void Mirror::serve() {
  // Without memory for a message this host's ranks cannot be told of others any more. They must learn that, and the
  // program must not end by an exception of this thread.
  const std::string no_memory = job_.hosts().all()[job_.hosts().own()].str() + " had no memory left for connections";
  std::optional<Clock::time_point> until;
  const auto is_over = [&] {
    if (!stopping_.load(std::memory_order_acquire)) return false;
    if (!until) until = Clock::now() + kLongestStay;
    return is_done() || Clock::now() > *until;
  };
  for (;;) {
    try {
      const bool over = is_over();  // before the last look, which sends what the ranks have written until then
      look();
      if (over) break;
      if (!is_over()) wait();
    } catch (const std::bad_alloc&) {
      for (Line& line : lines_) line.frames.close();
      for (std::uint32_t h = 0; h < job_.hosts().all().size(); ++h) {
        if (h != job_.hosts().own()) job_.board().lose(h, no_memory);
      }
      std::this_thread::sleep_for(kBeat);
    }
  }
  send(bytes_of(MessageHead{What::left, job_.hosts().own()}));
  const Clock::time_point last = Clock::now() + kLastSend;
  for (Line& line : lines_) {
    Frames& frames = line.frames;
    while (frames.valid() && frames.has_unsent() && Clock::now() < last && frames.flush()) {
      pollfd watched{frames.descriptor(), POLLOUT, 0};
      poll(&watched, 1, static_cast<int>(kBeat.count()));
    }
  }
}

// Whether nobody needs this thread any more: the other processes of this host have left or ended, and for rank 0's
// leader the other hosts have.
bool Mirror::is_done() const {
  const std::vector<std::uint32_t>& here = job_.hosts().all()[job_.hosts().own()].ranks;
  const auto needs_it = [&](std::uint32_t r) {
    return r != here.front() && told_[r] == Board::State::here && job_.board().state(r) != Board::State::left;
  };
  if (std::ranges::any_of(here, needs_it)) return false;
  return !is_hub() || std::ranges::none_of(lines_, [](const Line& line) { return line.frames.valid(); });
}

void Mirror::wait() const {
  std::vector<pollfd> watched{{waker_.get(), POLLIN, 0}};
  for (const Line& line : lines_) {
    watched.push_back(
        {line.frames.descriptor(), static_cast<short>(POLLIN | (line.frames.has_unsent() ? POLLOUT : 0)), 0});
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(beaten_ + kBeat - Clock::now());
  poll(watched.data(), watched.size(), std::max(static_cast<int>(left.count()), 0) + 1);
}

void Mirror::look() {
  std::array<char, 16> byte{};
  // A process that rings without end must not keep the thread from its work.
  for (int i = 0; i < kMostRings && recv(waker_.get(), byte.data(), byte.size(), MSG_DONTWAIT) >= 0; ++i) {
  }
  const Clock::time_point now = Clock::now();
  if (const Clock::duration gap = now - looked_; gap > kStoppedItself) {
    for (Line& line : lines_) {
      line.heard += gap;
      for (Clock::time_point& sent : line.unanswered) sent += gap;
    }
  }
  looked_ = now;
  adopt_groups();
  hear();
  if (now - beaten_ >= kBeat) find_ended();  // before the blocks, so that these are the last ones of a rank that ended
  for (const auto& view : views_) {
    // Read first: what the ranks wrote before they left is sent below.
    const bool released = load(view->header->released, std::memory_order_acquire) != 0;
    sample(*view);
    if (!released) continue;
    job_.discard(view->control);
    view->header = nullptr;
  }
  std::erase_if(views_, [](const auto& view) { return view->header == nullptr; });
  if (now - beaten_ >= kBeat) beat(now);
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].frames.valid() && !lines_[i].frames.flush()) lose(i, "");
  }
}

void Mirror::beat(Clock::time_point now) {
  beaten_ = now;
  const std::uint32_t own = job_.hosts().own();
  for (std::uint32_t r = 0; r < found_.size(); ++r) {
    if (found_[r] == told_[r]) continue;
    told_[r] = found_[r];
    send(message_of(What::state, own, StateOf{r, static_cast<std::uint32_t>(told_[r])}));
  }
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    Line& line = lines_[i];
    if (!line.frames.valid()) continue;
    if (line.stopped && now - line.unanswered.back() < kSilent) continue;  // its system can only keep so many
    line.unacknowledged = line.frames.acknowledged() ? 0 : line.unacknowledged + 1;
    put(line, bytes_of(MessageHead{What::beat, own, kEverybody, line.beats}));
    line.unanswered.push_back(now);
    if (now - line.heard > kSilent) {
      // What was sent just now may be on its way; a lost host has not acknowledged what was sent beats ago, either.
      if (line.unacknowledged > (line.stopped ? 0 : kLostBeats)) {
        lose(i, "has not been heard of for 3.0 s");
      } else if (line.unacknowledged == 0 && !line.stopped) {
        set_stopped(line, true);
      }
    } else if (now - line.unanswered.front() > kSilent + kBeat) {
      // The link fails in one direction, and the other host's TCP repeats what is not acknowledged, so it is still
      // heard. An answer waits for the next beat.
      lose(i, "has heard nothing of this host for 3.0 s");
    } else if (line.broken) {
      lose(i, "does not read what is sent to it");
    }
  }
}

void Mirror::find_ended() {
  const std::vector<std::uint32_t>& here = job_.hosts().all()[job_.hosts().own()].ranks;
  const std::vector<std::uint32_t> dead = job_.dead(here);
  for (const std::uint32_t r : here) {
    const bool ended = std::ranges::find(dead, r) != dead.end();
    const bool stopped = !ended && r != here.front() && job_.stopped(r);
    found_[r] = ended ? Board::State::ended : stopped ? Board::State::stopped : Board::State::here;
  }
}

void Mirror::adopt_groups() {
  for (std::uint64_t offset = job_.board().take_announced(); offset != 0;) {
    std::uint64_t next = 0;
    adopt(offset, next);
    offset = next;
  }
}

void Mirror::adopt(std::uint64_t offset, std::uint64_t& next) {
  auto* const header = reinterpret_cast<group_blocks::Header*>(job_.place(offset, kHeaderBytes));
  if (header == nullptr) return;
  next = load(header->next);
  auto view = std::make_unique<View>();
  const auto ranks = static_cast<std::uint32_t>(load(header->ranks));
  view->control = {offset, load(header->bytes)};
  std::uint8_t* const memory = job_.place(offset, view->control.bytes);
  if (memory == nullptr || view->control.bytes < group_blocks::control_bytes(ranks, true)) return;
  view->header = reinterpret_cast<group_blocks::Header*>(memory);
  view->blocks = reinterpret_cast<group_blocks::RankBlock*>(memory + kHeaderBytes);
  view->bells = reinterpret_cast<std::uint8_t*>(view->blocks + ranks);
  view->id = {load(header->id[0]), load(header->id[1])};
  const auto* const members =
      reinterpret_cast<const std::uint32_t*>(memory + group_blocks::control_bytes(ranks, false));
  view->ranks.assign(members, members + ranks);
  if (std::ranges::any_of(view->ranks, [&](std::uint32_t r) { return r >= job_.size(); })) return;
  view->sent.resize(ranks);
  send(message_of(What::want, job_.hosts().own(), view->id));
  views_.push_back(std::move(view));
}

Mirror::View* Mirror::find(const std::array<std::uint64_t, 2>& id) {
  for (const auto& view : views_) {
    if (view->id == id) return view.get();
  }
  return nullptr;
}

void Mirror::sample(View& view) {
  for (std::uint32_t r = 0; r < view.ranks.size(); ++r) {
    if (job_.hosts().is_here(view.ranks[r])) sample(view, r);
  }
}

void Mirror::sample(View& view, std::uint32_t rank, std::optional<std::uint32_t> to) {
  const group_blocks::RankBlock& from = view.blocks[rank];
  Block nothing;  // new memory is zeros, so a block of zeros is not sent
  Block& sent = to ? nothing : view.sent[rank];
  Block block;
  block.id[0] = view.id[0];
  block.id[1] = view.id[1];
  block.rank = rank;
  // In the reverse order of writing, acquire: what comes with a number is at least as new.
  block.left = load(from.left, std::memory_order_acquire);
  tell_given_up(view);  // before the others hear that the rank has left, which it may have done for that reason
  block.finished = load(from.finished, std::memory_order_acquire);
  for (std::size_t i = 0; i < std::size(block.turns); ++i) {
    const group_blocks::RankBlock::Turn& turn = from.turns[i];
    const std::uint64_t number = load(turn.number, std::memory_order_acquire);
    // A turn does not change before all ranks have had it, so it is read once.
    if (number == sent.turns[i].number) {
      block.turns[i] = sent.turns[i];
      continue;
    }
    block.turns[i].number = number;
    block.turns[i].chain = load(turn.chain);
    for (std::size_t p = 0; p < std::size(turn.payload); ++p) block.turns[i].payload[p] = load(turn.payload[p]);
  }
  block.begun = load(from.begun, std::memory_order_acquire);
  block.waits = load(from.waits);
  block.awaited = load(from.awaited, std::memory_order_acquire);
  block.label = load(from.label, std::memory_order_acquire);
  const auto news = [](const group_blocks::Text& text, std::uint64_t& number, std::uint64_t before) {
    number = load(text.noted);
    std::optional<std::string> said;
    if (number != before) said = text.said(number);
    if (!said) number = before;  // or it is being written
    return said.value_or("");
  };
  const std::string note = news(from.note, block.noted, sent.noted);
  const std::string makes = news(from.makes, block.made, sent.made);
  block.note_bytes = note.size();
  for (std::size_t i = 0; i < std::size(block.awaits); ++i) block.awaits[i] = load(from.awaits[i]);
  const bool same = block.begun == sent.begun && block.finished == sent.finished && block.left == sent.left &&
                    block.noted == sent.noted && block.made == sent.made && block.awaited == sent.awaited &&
                    block.label == sent.label && std::ranges::equal(block.turns, sent.turns) &&
                    std::ranges::equal(block.awaits, sent.awaits);
  if (same) return;
  std::string entries;
  const std::uint64_t oldest = block.begun > kHistory ? block.begun - kHistory : 0;
  for (std::uint64_t sequence = std::max(sent.begun, oldest) + 1; sequence <= block.begun; ++sequence) {
    const std::optional<group_blocks::Recorded> entry = from.history[sequence % kHistory].read(sequence);
    if (!entry) continue;  // overwritten meanwhile
    entries += bytes_of(*entry);
    ++block.entries;
  }
  MessageHead head{What::block, job_.hosts().of(view.ranks[rank])};
  if (to) head.to = *to;
  const std::string message = std::string(bytes_of(head)) + std::string(bytes_of(block)) + entries + note + makes;
  to ? send_to(*to, message) : send(message);
  sent = block;
}

void Mirror::tell_given_up(View& view) {
  if (view.told || load(view.header->given_up, std::memory_order_acquire) != 2) return;
  view.told = true;
  const Reason reason{{view.id[0], view.id[1]}, view.header->code};
  const std::string_view text(view.header->reason, strnlen(view.header->reason, kMaxReason));
  send(message_of(What::reason, job_.hosts().own(), reason) + std::string(text));
}

void Mirror::hear() {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    Line& line = lines_[i];
    if (!line.frames.valid()) continue;
    // Whole frames that came before the other end closed are still used.
    const bool goes_on = line.frames.fill(kMostMessage);
    while (std::optional<std::string> message = line.frames.next()) {
      line.heard = Clock::now();
      if (line.stopped) set_stopped(line, false);
      if (!receive(line.host, *message)) {
        lose(i, "has sent a malformed message");
        break;
      }
      if (!line.frames.valid()) break;
    }
    if (goes_on || !line.frames.valid()) continue;
    lose(i, "");
  }
}

// A host that has missed a message is lost at the next beat, because what it knows is not true any more.
void Mirror::put(Line& line, std::string_view message) {
  if (line.frames.valid() && !line.broken) line.broken = !line.frames.queue(message);
}

void Mirror::send(std::string_view message) {
  for (Line& line : lines_) {
    put(line, message);
  }
}

// By way of rank 0's leader.
void Mirror::send_to(std::uint32_t host, std::string_view message) {
  for (Line& line : lines_) {
    if (is_hub() && line.host != host) continue;
    put(line, message);
  }
}

void Mirror::send_except(std::uint32_t host, std::string_view message) {
  for (Line& line : lines_) {
    if (line.host != host) put(line, message);
  }
}

void Mirror::set_stopped(Line& line, bool stopped) {
  line.stopped = stopped;
  if (!stopped) std::ranges::fill(line.unanswered, line.heard);  // it may say something else before it answers
  const std::uint32_t leader = job_.hosts().all()[line.host].ranks.front();
  const Board::State state = stopped ? Board::State::stopped : Board::State::here;
  job_.board().set_state(leader, state);
  if (!is_hub()) return;
  send_except(line.host, message_of(What::state, line.host, StateOf{leader, static_cast<std::uint32_t>(state)}));
}

// `what` has happened to the host at the other end; empty: it has closed the connection without a word.
void Mirror::lose(std::size_t at, const std::string& what, bool left) {
  Line& line = lines_[at];
  const Host& host = job_.hosts().all()[line.host];
  const std::string why = what.empty() ? "rank " + std::to_string(host.ranks.front()) + " (process " +
                                             std::to_string(host.processes.front()) + "), which connects " +
                                             host.str() + ", has ended"
                                       : host.str() + " " + what;
  if (is_hub()) {
    job_.board().lose(line.host, why, left);
    const std::string loss = std::string(bytes_of(MessageHead{What::loss, 0})) + std::string(bytes_of(line.host)) + why;
    send(left ? bytes_of(MessageHead{What::left, line.host}) : loss);
  } else {
    for (std::uint32_t h = 0; h < job_.hosts().all().size(); ++h) {
      if (h != job_.hosts().own()) job_.board().lose(h, why, left);
    }
    // It may hear this host although this host does not hear it, and cannot know why the connection ends.
    line.frames.put(std::string(bytes_of(MessageHead{What::loss, job_.hosts().own()})) +
                    std::string(bytes_of(line.host)) + why);
  }
  line.frames.close();
}

}  // namespace gc3::core
