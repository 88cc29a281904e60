#include "gc3/verify/direct/counters.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/index.h"

namespace gc3::verify::direct {
namespace {

using ir::plural;
using ir::direct::Objects;
using ir::direct::Op;
using ir::direct::Program;
using ir::direct::Step;

class Pairing {
 public:
  Pairing(const Program& program, Findings& findings)
      : p_(program), findings_(findings), taken_channels_(p_.channels.size()), taken_semaphores_(p_.semaphores.size()) {
    found_.channels.resize(p_.channels.size());
    found_.semaphores.resize(p_.semaphores.size());
    for (std::size_t k = 0; k < p_.semaphores.size(); ++k) found_.semaphores[k].initial = p_.semaphores[k].initial;
  }

  Counters run() {
    std::vector<std::map<std::uint32_t, std::uint32_t>> comers(p_.barriers.size());  // threadblock: times
    for (std::uint32_t tb = 0; tb < p_.threadblocks.size(); ++tb) {
      threads_.clear();
      for (const Step& s : p_.steps_of(p_.threadblocks[tb])) {
        if (s.op == Op::sync || s.op == Op::barrier) threads_.clear();
        for (std::uint32_t thread = 0; thread < s.sources && s.op != Op::move; ++thread) {
          const std::uint32_t k = p_.objects_of(s)[thread];
          if (s.op != Op::barrier) by_one_thread(s.op, k, thread);
          if (s.op == Op::barrier) ++comers[k][tb];
          if (s.op == Op::signal) give(found_.channels[k], tb);
          if (s.op == Op::release) give(found_.semaphores[k], tb);
          if (s.op == Op::wait) take(found_.channels[k], taken_channels_[k], tb, "channel " + std::to_string(k));
          if (s.op == Op::acquire) {
            take(found_.semaphores[k], taken_semaphores_[k], tb, "semaphore " + std::to_string(k));
          }
        }
      }
    }
    for (std::size_t k = 0; k < p_.channels.size(); ++k) {
      const ir::direct::Channel& c = p_.channels[k];
      balance(
          found_.channels[k], taken_channels_[k],
          "channel " + std::to_string(k) + " from rank " + std::to_string(c.from) + " to rank " + std::to_string(c.to),
          "signalled", "waited for");
    }
    for (std::size_t k = 0; k < p_.semaphores.size(); ++k) {
      balance(found_.semaphores[k], taken_semaphores_[k],
              "semaphore " + std::to_string(k) + " of rank " + std::to_string(p_.semaphores[k].rank), "released",
              "acquired");
    }
    for (std::size_t k = 0; k < comers.size(); ++k) {
      const bool alike = std::ranges::all_of(comers[k], [&](auto& c) { return c.second == comers[k].begin()->second; });
      if (comers[k].empty() || (comers[k].size() == p_.barriers[k].threadblocks && alike)) continue;
      add("barrier " + std::to_string(k) + " of rank " + std::to_string(p_.barriers[k].rank) + " waits for " +
          plural(p_.barriers[k].threadblocks, "threadblock") + ", and " + std::to_string(comers[k].size()) +
          (alike ? " come to it" : " come to it, not all of them equally often"));
    }
    return std::move(found_);
  }

 private:
  void add(std::string message) { findings_.add({ErrorCode::UnpairedSignals, std::move(message)}); }

  // Threads have no order between two syncs, so which of them gives or takes first is undefined.
  void by_one_thread(Op op, std::uint32_t object, std::uint32_t thread) {
    const auto [at, first] = threads_.try_emplace({op, object}, thread);
    if (first || at->second == thread) return;
    add("threads " + std::to_string(at->second) + " and " + std::to_string(thread) + " of a threadblock " +
        std::string(ir::direct::info(op).name) + " number " + std::to_string(object) +
        " without a sync between them, so in which order is undefined");
  }
  static void give(Counter& counter, std::uint32_t tb) {
    const auto known = std::ranges::find(counter.givers, tb, &Counter::Giver::tb);
    if (known == counter.givers.end()) {
      counter.givers.push_back({tb, 1, {}});
    } else {
      ++known->each_call;
    }
    ++counter.each_call;
  }
  void take(Counter& counter, std::uint32_t& times, std::uint32_t tb, const std::string& name) {
    ++times;
    if (counter.taker != kNone && counter.taker != tb) {
      add(name + " is waited for by two threadblocks, so which of them gets a signal is undefined");
    }
    counter.taker = tb;
  }
  void balance(const Counter& counter, std::uint32_t taken, const std::string& name, const std::string& given_word,
               const std::string& taken_word) {
    if (counter.each_call == taken) return;
    const auto times = [](std::uint32_t n) { return plural(n, "time"); };
    add(name + " is " + given_word + " " + times(counter.each_call) + " in a call and " + taken_word + " " +
        times(taken) +
        (taken > counter.each_call ? ": a call can only hang" : ": what is left over ends a wait of the next call"));
  }

  const Program& p_;
  Findings& findings_;
  Counters found_;
  std::map<std::pair<Op, std::uint32_t>, std::uint32_t> threads_;  // since the last sync of the threadblock
  std::vector<std::uint32_t> taken_channels_;
  std::vector<std::uint32_t> taken_semaphores_;
};

}  // namespace

Counters pair_signals(const Program& program, Findings& findings) { return Pairing(program, findings).run(); }

}  // namespace gc3::verify::direct
