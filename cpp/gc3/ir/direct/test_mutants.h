// Damages direct programs at random, so that the prover can be compared with the executor in test_weaver.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gc3/ir/direct/program.h"

namespace gc3::ir::direct::test {

struct Mutant {
  std::string name;  // what was done
  Program program;
};

class Mutator {
 public:
  explicit Mutator(const Program& program) : from_(program) {
    for (const RankProgram& rank : program.ranks) {
      ranks_.push_back({rank.scratch_chunks, {}});
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) {
        auto& steps = ranks_.back().tbs.emplace_back();
        for (const Step& s : program.steps_of(program.threadblocks[rank.first_tb + t])) {
          const auto sources = program.sources(s);
          const auto targets = program.targets(s);
          const auto objects = program.objects_of(s);
          Loose loose{s, {}, {}, {objects.begin(), objects.end()}};
          if (s.op == Op::move) loose.sources = {sources.begin(), sources.end()};
          if (s.op == Op::move) loose.targets = {targets.begin(), targets.end()};
          steps.push_back(std::move(loose));
        }
      }
    }
  }

  // A program with one change that still has the form of a program, and is another one.
  Mutant mutate(std::mt19937_64& random) {
    random_ = &random;
    for (;;) {
      const std::vector<Loose>::size_type kind = below(kKinds.size());
      Mutator copy = *this;
      if (!(copy.*kKinds[kind].change)()) continue;
      Program made = copy.assembled();
      Findings findings(1);
      if (made != from_ && check_structure(made, findings)) {
        return {std::string(kKinds[kind].name) + copy.where_, std::move(made)};
      }
    }
  }

 private:
  struct Loose {
    Step step;
    std::vector<Operand> sources, targets;
    std::vector<std::uint32_t> objects;
  };
  struct LooseRank {
    std::uint32_t scratch_chunks;
    std::vector<std::vector<Loose>> tbs;
  };
  struct Kind {
    std::string_view name;
    bool (Mutator::*change)();
  };
  static const std::array<Kind, 23> kKinds;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>((*random_)() % bound); }

  // Chooses a step that fits; false: there is none.
  template <class Fits>
  bool choose(const Fits& fits) {
    std::vector<std::array<std::size_t, 3>> found;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t t = 0; t < ranks_[r].tbs.size(); ++t) {
        for (std::size_t s = 0; s < ranks_[r].tbs[t].size(); ++s) {
          if (fits(ranks_[r].tbs[t][s])) found.push_back({r, t, s});
        }
      }
    }
    if (found.empty()) return false;
    std::tie(rank_, tb_, at_) = std::tuple_cat(found[below(found.size())]);
    where_ = ", rank " + std::to_string(rank_) + " threadblock " + std::to_string(tb_) + " step " + std::to_string(at_);
    return true;
  }
  std::vector<Loose>& steps() { return ranks_[rank_].tbs[tb_]; }
  Loose& chosen() { return steps()[at_]; }
  Operand& operand() {
    Loose& s = chosen();
    const std::size_t k = below(s.sources.size() + s.targets.size());
    return k < s.sources.size() ? s.sources[k] : s.targets[k - s.sources.size()];
  }
  static bool any(const Loose&) { return true; }
  static bool moves(const Loose& s) { return s.step.op == Op::move; }
  static bool synchronises(const Loose& s) { return s.step.op != Op::move; }
  static bool of(const Loose& s, Op a, Op b) { return s.step.op == a || s.step.op == b; }

  bool drop(bool (*fits)(const Loose&)) {
    if (!choose(fits)) return false;
    steps().erase(steps().begin() + static_cast<std::ptrdiff_t>(at_));
    return true;
  }
  bool drop_synchronising() { return drop(synchronises); }
  bool drop_sync() {
    return drop([](const Loose& s) { return s.step.op == Op::sync; });
  }
  bool drop_move() { return drop(moves); }
  bool shift(bool (*fits)(const Loose&)) {
    if (!choose(fits) || steps().size() < 2) return false;
    Loose s = std::move(chosen());
    steps().erase(steps().begin() + static_cast<std::ptrdiff_t>(at_));
    const std::size_t far = 1 + below(3);
    const std::size_t to = below(2) == 0 ? at_ - std::min(at_, far) : std::min(at_ + far, steps().size());
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(to), std::move(s));
    return true;
  }
  bool shift_synchronising() { return shift(synchronises); }
  bool shift_any() { return shift(any); }
  bool other_threadblock() {
    if (!choose(any) || ranks_[rank_].tbs.size() < 2) return false;
    Loose s = std::move(chosen());
    steps().erase(steps().begin() + static_cast<std::ptrdiff_t>(at_));
    tb_ = (tb_ + 1) % ranks_[rank_].tbs.size();
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(below(steps().size() + 1)), std::move(s));
    return true;
  }
  bool repeat() {
    if (!choose(any)) return false;
    Loose s = chosen();
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(at_), std::move(s));
    return true;
  }
  bool drop_object() {
    if (!choose([](const Loose& s) { return s.objects.size() > 1; })) return false;
    chosen().objects.erase(chosen().objects.begin() + static_cast<std::ptrdiff_t>(below(chosen().objects.size())));
    return true;
  }
  bool other_object() {
    if (!choose([](const Loose& s) { return !s.objects.empty(); })) return false;
    const std::size_t most = std::max({from_.channels.size(), from_.semaphores.size(), from_.barriers.size()});
    chosen().objects[below(chosen().objects.size())] = static_cast<std::uint32_t>(below(most));
    return true;
  }
  bool exchange_objects() {
    if (!choose([](const Loose& s) { return s.objects.size() > 1; })) return false;
    std::swap(chosen().objects[0], chosen().objects[1 + below(chosen().objects.size() - 1)]);
    return true;
  }
  // In steps() alone, or on all ranks.
  bool relax() {
    if (!choose([](const Loose& s) { return of(s, Op::signal, Op::wait); })) return false;
    chosen().step.relaxed = !chosen().step.relaxed;
    return true;
  }
  bool relax_everywhere() {
    if (!choose([](const Loose& s) { return of(s, Op::signal, Op::wait); })) return false;
    const bool relaxed = !chosen().step.relaxed;
    for (LooseRank& rank : ranks_) {
      if (tb_ >= rank.tbs.size() || at_ >= rank.tbs[tb_].size()) continue;
      Loose& s = rank.tbs[tb_][at_];
      if (of(s, Op::signal, Op::wait)) s.step.relaxed = relaxed;
    }
    return true;
  }
  bool other_chunk() {
    if (!choose(moves)) return false;
    Operand& o = operand();
    o.chunk += below(2) == 0 && o.chunk != 0 ? ~std::uint32_t{0} : 1;
    return true;
  }
  bool other_owner() {
    if (!choose(moves)) return false;
    operand().owner = static_cast<std::uint32_t>(below(ranks_.size()));
    return true;
  }
  bool other_buffer() {
    if (!choose(moves)) return false;
    operand().buffer = static_cast<model::Buffer>(below(3));
    return true;
  }
  bool other_count() {
    if (!choose(moves)) return false;
    chosen().step.count += below(2) == 0 ? 1 : ~std::uint32_t{0};
    return true;
  }
  bool packet_or_plain() {
    if (!choose(moves)) return false;
    Operand& o = operand();
    const bool packet = is_packet(o.access);
    if (is_multicast(o.access)) {
      o.access = packet ? Access::multicast : Access::multicast_packet;
    } else {
      o.access = packet ? Access::plain : Access::packet;
    }
    if (packet && below(2) == 0) o.chunk *= 2;
    return true;
  }
  bool drop_operand() {
    if (!choose(moves)) return false;
    auto& operands = chosen().targets.empty() || below(2) == 0 ? chosen().sources : chosen().targets;
    operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(below(operands.size())));
    return true;
  }
  bool exchange_operands() {
    if (!choose([](const Loose& s) { return s.sources.size() > 1 || s.targets.size() > 1; })) return false;
    auto& operands = chosen().targets.size() > 1 ? chosen().targets : chosen().sources;
    operands[below(operands.size())] = operands[below(operands.size())];
    return true;
  }
  bool other_channel() {
    if (!choose([](const Loose& s) { return moves(s) && s.step.channel != kNone; })) return false;
    chosen().step.channel = below(3) == 0 ? kNone : static_cast<std::uint32_t>(below(from_.channels.size()));
    return true;
  }
  bool other_halves() {
    halves_ = from_.halves == 1 ? 2 : 1;
    return from_.halves == 2 || below(8) == 0;
  }
  bool other_sharing() {
    shared_ = true;
    return below(4) == 0;
  }
  bool other_number() {  // of tokens, or of threadblocks
    numbers_ = below(2) == 0 ? 1 : ~std::uint32_t{0};
    const std::size_t known = from_.semaphores.size() + from_.barriers.size();
    if (known == 0) return false;
    number_ = below(known);
    return numbers_ == 1 || number_ >= from_.semaphores.size() || from_.semaphores[number_].initial != 0;
  }

  Program assembled() const {
    Program made = from_;
    made.halves = halves_ == 0 ? from_.halves : halves_;
    made.shared_scratch |= shared_;
    if (numbers_ != 0 && number_ < made.semaphores.size()) {
      std::uint32_t& initial = made.semaphores[number_].initial;
      if (numbers_ == 1 || initial != 0) initial += numbers_;
    }
    if (numbers_ != 0 && number_ >= made.semaphores.size()) {
      made.barriers[number_ - made.semaphores.size()].threadblocks += numbers_;
    }
    made.ranks.clear();
    made.threadblocks.clear();
    made.steps.clear();
    made.operands.clear();
    made.objects.clear();
    made.source = {};
    const auto size = [](const auto& all) { return static_cast<std::uint32_t>(all.size()); };
    for (const LooseRank& rank : ranks_) {
      made.ranks.push_back({size(made.threadblocks), size(rank.tbs), rank.scratch_chunks});
      for (const std::vector<Loose>& tb : rank.tbs) {
        made.threadblocks.push_back({size(made.steps), size(tb)});
        for (const Loose& s : tb) {
          Step step = s.step;
          const bool is_move = step.op == Op::move;
          step.first = is_move ? size(made.operands) : size(made.objects);
          step.sources = is_move ? size(s.sources) : size(s.objects);
          step.targets = size(s.targets);
          made.steps.push_back(step);
          made.operands.insert(made.operands.end(), s.sources.begin(), s.sources.end());
          made.operands.insert(made.operands.end(), s.targets.begin(), s.targets.end());
          made.objects.insert(made.objects.end(), s.objects.begin(), s.objects.end());
        }
      }
    }
    return made;
  }

  Program from_;
  std::vector<LooseRank> ranks_;
  std::mt19937_64* random_ = nullptr;
  std::size_t rank_ = 0, tb_ = 0, at_ = 0;  // of the step chosen last
  std::string where_;
  std::uint32_t halves_ = 0;
  bool shared_ = false;
  std::uint32_t numbers_ = 0;
  std::size_t number_ = 0;
};

inline const std::array<Mutator::Kind, 23> Mutator::kKinds = {{
    {"drop what synchronises", &Mutator::drop_synchronising},
    {"drop a sync", &Mutator::drop_sync},
    {"drop a move", &Mutator::drop_move},
    {"shift what synchronises", &Mutator::shift_synchronising},
    {"shift a step", &Mutator::shift_any},
    {"another threadblock", &Mutator::other_threadblock},
    {"repeat a step", &Mutator::repeat},
    {"drop an object", &Mutator::drop_object},
    {"another object", &Mutator::other_object},
    {"exchange objects", &Mutator::exchange_objects},
    {"relax", &Mutator::relax},
    {"relax everywhere", &Mutator::relax_everywhere},
    {"another chunk", &Mutator::other_chunk},
    {"another owner", &Mutator::other_owner},
    {"another buffer", &Mutator::other_buffer},
    {"another count", &Mutator::other_count},
    {"packets or not", &Mutator::packet_or_plain},
    {"drop an operand", &Mutator::drop_operand},
    {"exchange operands", &Mutator::exchange_operands},
    {"another channel of a move", &Mutator::other_channel},
    {"another number of halves", &Mutator::other_halves},
    {"shared scratch", &Mutator::other_sharing},
    {"another number", &Mutator::other_number},
}};

}  // namespace gc3::ir::direct::test
