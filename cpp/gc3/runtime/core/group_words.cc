// Exchanges of more words than fit a rank's block: in memory of their own, which the first of them gets.
#include <algorithm>
#include <optional>
#include <utility>

#include "gc3/runtime/core/group.h"
#include "gc3/runtime/core/sharing/group_blocks.h"
#include "gc3/runtime/core/waiter.h"

namespace gc3::core {
namespace {

constexpr std::size_t kLine = 128 / sizeof(std::uint64_t);  // so that no two ranks write to adjacent lines
constexpr std::size_t kHead = 2;                            // the exchange's number and the writer's chain

}  // namespace

Result<std::vector<std::uint64_t>> Group::exchange_words(const std::vector<std::uint64_t>& own,
                                                         const Interrupted& interrupted) {
  if (placement_.several()) return exchange_by_turns(own, interrupted);
  const std::size_t row = (kHead + own.size() + kLine - 1) / kLine * kLine;
  const std::size_t turn_words = row * size();
  if (words_.size() == 0) {
    GC3_ASSIGN(words_, allocate(2 * turn_words * sizeof(std::uint64_t), "the counts of calls", interrupted));
  }
  // Two turns, as in `exchange`: a rank that writes the next but one knows that all have read this one.
  const std::uint64_t number = ++word_exchanges_;
  auto* const turn = reinterpret_cast<std::uint64_t*>(words_.data()) + number % 2 * turn_words;
  std::uint64_t* const mine = turn + rank_ * row;
  for (std::size_t i = 0; i < own.size(); ++i) store(mine[kHead + i], own[i]);
  store(mine[1], chain_);
  store(mine[0], number, std::memory_order_release);  // after the words that it announces
  bells_.ring();
  std::vector<std::uint64_t> all(own.size() * size());
  Waiter waiter(*this, interrupted);
  waiter.post_nothing();
  bool same = true;
  for (std::uint32_t r = 0; r < size(); ++r) {
    const std::uint64_t* const from = turn + r * row;
    while (load(from[0], std::memory_order_acquire) < number) {  // pairs with the release above
      if (!waiter.rest([&] { return Bells::bit(r) | Bells::kAny; })) return std::move(waiter.problem());
    }
    waiter.renew();
    for (std::size_t i = 0; i < own.size(); ++i) all[r * own.size() + i] = load(from[kHead + i]);
    same = same && load(from[1]) == chain_;
  }
  if (!same) {
    if (const std::optional<Diagnostic> differs = difference()) return give_up(*differs);
  }
  return all;
}

}  // namespace gc3::core
