#include "gc3/verify/reachability.h"

#include <algorithm>
#include <array>

namespace gc3::verify {
namespace {

// Which of up to 256 earlier steps precede a step.
constexpr std::size_t kLanes = 256;
struct Lanes {
  std::array<std::uint64_t, kLanes / 64> words{};
  void merge(const Lanes& o) {
    for (std::size_t w = 0; w < words.size(); ++w) words[w] |= o.words[w];
  }
  void set(std::size_t lane) { words[lane / 64] |= std::uint64_t{1} << (lane % 64); }
  bool has(std::size_t lane) const { return (words[lane / 64] >> (lane % 64) & 1U) != 0; }
};

// Per instruction, the instruction that sent what it receives (kNone: it receives nothing).
std::vector<std::uint32_t> senders_of(const ProgramIndex& index, const Connections& connections) {
  const ir::Program& program = index.program();
  std::vector<std::uint32_t> sender(program.instructions.size(), kNone);
  for (const Connection& c : connections.all) {
    if (c.messages == 0) continue;
    std::uint32_t s = program.threadblocks[c.send_tb].first_instruction;
    std::uint32_t r = program.threadblocks[c.recv_tb].first_instruction;
    for (std::uint32_t k = 0; k < c.messages; ++k, ++s, ++r) {
      while (!ir::info(program.instructions[s].opcode).sends) ++s;
      while (!ir::info(program.instructions[r].opcode).receives) ++r;
      sender[r] = s;
    }
  }
  return sender;
}

}  // namespace

Reachability::Reachability(const ProgramIndex& index, const Connections& connections, const Schedule& schedule)
    : index_(index), position_(index.program().instructions.size()) {
  const ir::Program& program = index.program();
  const std::vector<std::uint32_t> sender = senders_of(index, connections);
  std::uint32_t next = 0;
  first_.reserve(position_.size() + 1);
  for (const Run& run : schedule) {
    for (std::uint32_t s = run.first; s < run.end; ++s, ++next) {
      const Step step{run.tb, s};
      const std::uint32_t id = instruction_id(step);
      position_[id] = next;
      first_.push_back(predecessors_.size());
      if (s > 0) predecessors_.push_back(position_[id - 1]);
      if (sender[id] != kNone) predecessors_.push_back(position_[sender[id]]);
      for (const ir::Dependency& d : program.deps(program.instructions[id])) {
        predecessors_.push_back(position(index.awaited(index.rank_of(run.tb), d)));
      }
    }
  }
  first_.push_back(predecessors_.size());
}

std::vector<std::size_t> Reachability::unordered(std::span<const Pair> pairs, std::size_t limit) const {
  std::vector<std::size_t> found;
  std::vector<Lanes> reached;
  std::vector<std::uint32_t> sources;
  std::size_t begin = 0;
  while (begin < pairs.size() && found.size() < limit) {
    // A batch: pairs of up to kLanes different earlier steps. Only positions between first and last matter to it.
    sources.clear();
    std::uint32_t last = 0;
    std::size_t end = begin;
    for (; end < pairs.size(); ++end) {
      const bool is_new = sources.empty() || sources.back() != pairs[end].earlier;
      if (is_new && sources.size() == kLanes) break;
      if (is_new) sources.push_back(pairs[end].earlier);
      last = std::max(last, pairs[end].later);
    }
    const std::uint32_t base = sources.front();
    reached.assign(last - base + 1, {});
    std::size_t lane = 0;
    for (std::uint32_t p = base; p <= last; ++p) {
      Lanes& here = reached[p - base];
      for (std::size_t k = first_[p]; k < first_[p + 1]; ++k) {
        if (predecessors_[k] >= base) here.merge(reached[predecessors_[k] - base]);
      }
      if (lane < sources.size() && sources[lane] == p) here.set(lane++);
    }
    lane = 0;
    for (; begin < end; ++begin) {
      while (sources[lane] != pairs[begin].earlier) ++lane;
      if (!reached[pairs[begin].later - base].has(lane)) found.push_back(begin);
    }
  }
  return found;
}

}  // namespace gc3::verify
