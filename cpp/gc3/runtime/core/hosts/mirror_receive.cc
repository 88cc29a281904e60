// What a leader does with the messages of others. It checks every field before it uses it.
#include <algorithm>
#include <iterator>

#include "gc3/base/diagnostic.h"
#include "gc3/runtime/core/hosts/job.h"
#include "gc3/runtime/core/hosts/mirror_parts.h"

namespace gc3::core {

using namespace mirror;

bool Mirror::receive(std::uint32_t host, std::string_view message) {
  Reader reader(message);
  MessageHead head;
  if (!reader.take(head) || head.host >= job_.hosts().all().size() || head.host == job_.hosts().own()) return false;
  // Only rank 0's leader says of another host that it is lost, and only blocks are for a single host.
  if (head.what == What::loss && !is_hub() && head.host != 0) return false;
  if (head.what != What::block && head.to != kEverybody) return false;
  if (is_hub()) {
    if (head.host != host) return false;
    if (head.to != kEverybody && head.to != job_.hosts().own()) {
      send_to(head.to, message);
      return true;
    }
    // Blocks for this host alone are sent again to the others, too, because it has answered them without these.
    if (head.what != What::beat && head.what != What::left && head.what != What::want && head.what != What::loss)
      send_except(host, message);
  }
  const auto line = std::ranges::find(lines_, host, &Line::host);
  switch (head.what) {
    case What::beat:
      ++line->beats;
      if (head.heard < line->answered || head.heard - line->answered > line->unanswered.size()) return false;
      for (; line->answered != head.heard; ++line->answered) line->unanswered.pop_front();
      return true;
    case What::block:
      return receive_block(head.host, reader);
    case What::reason:
      return receive_reason(reader);
    case What::want: {
      std::array<std::uint64_t, 2> id{};
      if (!reader.take(id)) return false;
      View* const view = find(id);
      // Rank 0's leader answers for all hosts, with its mirrors, if it has the group.
      if (view == nullptr && is_hub()) send_except(host, message);
      if (view != nullptr) view->told = false;
      for (std::uint32_t r = 0; view != nullptr && r < view->ranks.size(); ++r) {
        const std::uint32_t of = job_.hosts().of(view->ranks[r]);
        if (of == job_.hosts().own() || (is_hub() && of != head.host)) sample(*view, r, head.host);
      }
      return true;
    }
    case What::state: {
      StateOf of;
      if (!reader.take(of) || of.rank >= job_.size() || job_.hosts().of(of.rank) != head.host ||
          of.state > static_cast<std::uint32_t>(Board::State::stopped)) {
        return false;
      }
      job_.board().set_state(of.rank, static_cast<Board::State>(of.state));
      return true;
    }
    case What::loss:
      return receive_loss(host, reader);
    case What::left:
      if (head.host == host) {
        lose(static_cast<std::size_t>(line - lines_.begin()), "has left the job", true);
      } else {  // rank 0's leader tells of it
        job_.board().lose(head.host, job_.hosts().all()[head.host].str() + " has left the job", true);
      }
      return true;
  }
  return false;
}

bool Mirror::receive_block(std::uint32_t host, Reader& reader) {
  Block block;
  if (!reader.take(block) || block.entries > kHistory) return false;
  const std::size_t entries = block.entries * sizeof(group_blocks::Recorded);
  if (reader.rest().size() < entries || reader.rest().size() - entries >= 2 * kMostNoted) return false;
  View* const view = find({block.id[0], block.id[1]});
  if (view == nullptr) return true;  // it is told again when the group is made here
  if (block.rank >= view->ranks.size() || job_.hosts().of(view->ranks[block.rank]) != host) return false;
  group_blocks::RankBlock& to = view->blocks[block.rank];
  // In the order in which a rank writes.
  for (std::uint32_t i = 0; i < block.entries; ++i) {
    group_blocks::Recorded from;
    if (!reader.take(from) || from.sequence == 0 || from.sequence > block.begun) return false;
    to.history[from.sequence % kHistory].write(from);
  }
  const std::string_view note = reader.rest().substr(0, block.note_bytes);
  const std::string_view makes = reader.rest().substr(note.size());
  if (!note.empty()) to.note.say(block.noted, note);
  if (!makes.empty()) to.makes.say(block.made, makes);
  store(to.label, block.label, std::memory_order_release);
  store(to.awaited, block.awaited, std::memory_order_release);
  for (std::size_t i = 0; i < std::size(block.awaits); ++i) store(to.awaits[i], block.awaits[i]);
  store(to.waits, block.waits);
  store(to.begun, block.begun, std::memory_order_release);
  for (std::size_t i = 0; i < std::size(block.turns); ++i) {
    group_blocks::RankBlock::Turn& turn = to.turns[i];
    const Block::Turn& from = block.turns[i];
    if (load(turn.number) >= from.number) continue;
    for (std::size_t p = 0; p < std::size(from.payload); ++p) store(turn.payload[p], from.payload[p]);
    store(turn.chain, from.chain);
    store(turn.number, from.number, std::memory_order_release);
  }
  store(to.finished, block.finished, std::memory_order_release);
  store(to.left, block.left, std::memory_order_release);
  Bells bells;
  bells.open(view->bells, block.rank, static_cast<std::uint32_t>(view->ranks.size()));
  bells.ring();
  return true;
}

bool Mirror::receive_reason(Reader& reader) {
  Reason reason;
  if (!reader.take(reason) || reader.rest().size() >= kMaxReason ||
      std::ranges::none_of(all_errors(),
                           [&](const ErrorInfo& e) { return static_cast<std::uint64_t>(e.id) == reason.code; }))
    return false;
  View* const view = find({reason.id[0], reason.id[1]});
  if (view == nullptr) return true;
  std::string text(reader.rest());
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < ' ' && c != '\n'; }, ' ');
  if (!view->header->give_up(reason.code, text)) return true;
  view->told = true;
  Bells bells;
  bells.open(view->bells, 0, static_cast<std::uint32_t>(view->ranks.size()));
  bells.ring_all();
  return true;
}

bool Mirror::receive_loss(std::uint32_t from, Reader& reader) {
  std::uint32_t host = 0;
  if (!reader.take(host) || host >= job_.hosts().all().size() || reader.rest().size() > kMaxText) return false;
  const std::string why = shown(reader.rest());
  if (is_hub()) {
    const auto line = std::ranges::find(lines_, from, &Line::host);
    if (host == job_.hosts().own())
      lose(static_cast<std::size_t>(line - lines_.begin()), "has given up this host: " + why);
    return host == job_.hosts().own();
  }
  if (host != job_.hosts().own()) {
    job_.board().lose(host, why);
    return true;
  }
  // Rank 0's leader does not hear this host, which therefore hears of no other.
  for (std::uint32_t h = 0; h < job_.hosts().all().size(); ++h) {
    if (h != host) job_.board().lose(h, job_.hosts().all()[0].str() + " has given up this host: " + why);
  }
  return true;
}

}  // namespace gc3::core
