#include "gc3/nccl/exchange_pattern.h"

#include <vector>

namespace gc3::nccl {

std::optional<Call> as_all_to_all(std::span<const Call> calls, const Member& member) {
  const std::size_t ranks = member.ranks;
  if (calls.size() != 2 * ranks) return std::nullopt;
  std::vector<const std::uint8_t*> sent(ranks);
  std::vector<std::uint8_t*> received(ranks);
  const Call& first = calls.front();
  const auto type = type_of(first);
  if (!type) return std::nullopt;
  for (const Call& call : calls) {
    const auto peer = static_cast<std::size_t>(call.root);
    if (call.count != first.count || call.type != first.type || call.stream != first.stream || peer >= ranks) {
      return std::nullopt;
    }
    if (call.function == Function::send) {
      if (sent[peer] != nullptr) return std::nullopt;
      sent[peer] = static_cast<const std::uint8_t*>(call.send);
    } else {
      if (received[peer] != nullptr) return std::nullopt;
      received[peer] = static_cast<std::uint8_t*>(call.recv);
    }
  }
  const std::size_t block = first.count * model::size_of(*type);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (sent[r] == nullptr || received[r] == nullptr || sent[r] != sent[0] + r * block ||
        received[r] != received[0] + r * block) {
      return std::nullopt;
    }
  }
  return Call{Function::all_to_all, sent[0], received[0], first.count, first.type, 0, 0, first.comm, first.stream};
}

}  // namespace gc3::nccl
