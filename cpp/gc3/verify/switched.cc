#include "gc3/verify/switched.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"
#include "gc3/verify/reachability.h"

namespace gc3::verify {
namespace {

constexpr std::size_t kPairs = 1U << 20U;  // judged at once

struct Message {
  Step send;
  Step receive;
  std::size_t first_chunk = 0;  // of all messages
};

struct Groups {
  std::map<std::uint32_t, std::vector<Message>> multicasts;
  std::map<std::uint32_t, std::vector<Message>> reductions;
};

const ir::Switched& switched(const ProgramIndex& index, Step s) {
  return index.program().switched[index.program().threadblocks[s.tb].first_instruction + s.step];
}

Groups groups_of(const ProgramIndex& index, const Connections& connections) {
  Groups found;
  Breath breathe;
  for (const Connection& c : connections.all) {
    std::size_t chunk = c.first_chunk;
    Step receive{c.recv_tb, 0};
    for (Step send{c.send_tb, 0};
         c.messages != 0 && send.step < index.program().threadblocks[c.send_tb].instruction_count; ++send.step) {
      breathe();
      if (!ir::info(index.instruction(send).opcode).sends) continue;
      while (!ir::info(index.instruction(receive).opcode).receives) ++receive.step;
      const Message message{send, receive, chunk};
      const std::uint32_t multicast = switched(index, send).multicast;
      const std::uint32_t reduction = switched(index, receive).reduction;
      if (multicast != kNone) found.multicasts[multicast].push_back(message);
      if (reduction != kNone) found.reductions[reduction].push_back(message);
      chunk += index.instruction(send).count;
      ++receive.step;
    }
  }
  return found;
}

Diagnostic bad(const std::string& what) { return {ErrorCode::BadSwitchGroup, what}; }

class Check {
 public:
  Check(const ProgramIndex& index, const Connections& connections, const Schedule& schedule, Findings& findings)
      : index_(index),
        order_(index, connections, schedule),
        schedule_(schedule),
        findings_(findings),
        groups_(groups_of(index, connections)) {}

  void run() {
    // Groups that are wrong already are left out of what follows, which takes time in the square of their messages.
    std::erase_if(groups_.multicasts, [this](const auto& group) {
      return !ends("multicast " + std::to_string(group.first), group.second, &Message::send, &Message::receive);
    });
    for (auto& [number, messages] : groups_.reductions) {
      std::ranges::sort(messages, {}, [&](const Message& m) { return order_.position(m.receive); });
    }
    std::erase_if(groups_.reductions, [this](const auto& group) {
      const std::string name = "reduction " + std::to_string(group.first);
      if (!ends(name, group.second, &Message::receive, &Message::send)) return true;
      sums(name, group.second);
      return false;
    });
    untouched();
    independent(groups_.multicasts, "multicast ");
    independent(groups_.reductions, "reduction ");
  }

 private:
  // One rank at this end of all messages, different ranks at the other, and the same number of chunks.
  bool ends(const std::string& group, const std::vector<Message>& messages, Step Message::* near, Step Message::* far) {
    bool good = true;
    const auto refuse = [&](const std::string& why) {
      findings_.add(bad(group + why));
      good = false;
    };
    const Step first = messages.front().*near;
    std::set<std::uint32_t> peers;
    for (const Message& m : messages) {
      if (findings_.full()) return false;
      if (index_.rank_of((m.*near).tb) != index_.rank_of(first.tb)) {
        refuse(" has " + index_.describe(first) + " and " + index_.describe(m.*near) +
               ", which are of different ranks");
      } else if (!peers.insert(index_.rank_of((m.*far).tb)).second) {
        refuse(" has rank " + std::to_string(index_.rank_of((m.*far).tb)) +
               " at the other end of two messages: " + index_.describe(m.*near));
      } else if (index_.instruction(m.*near).count != index_.instruction(first).count) {
        refuse(" has " + index_.describe(first) + " and " + index_.describe(m.*near) +
               ", which differ in their number of chunks");
      }
    }
    if (messages.size() == 1) refuse(" has one message: " + index_.describe(first));
    return good;
  }

  // In the order of the schedule, each adds to what the one before has stored; only the last may send the sum.
  void sums(const std::string& group, const std::vector<Message>& messages) {
    for (std::size_t k = 1; k < messages.size(); ++k) {
      const ir::Instruction& before = index_.instruction(messages[k - 1].receive);
      const ir::Instruction& now = index_.instruction(messages[k].receive);
      const ir::OpcodeInfo& did = ir::info(before.opcode);
      const bool same = now.src_buffer == before.dst_buffer && now.src_chunk == before.dst_chunk;
      if (did.writes_local && !did.sends && same) continue;
      findings_.add(bad(group + ": " + index_.describe(messages[k].receive) + " does not add to the sum of " +
                        index_.describe(messages[k - 1].receive) + (did.sends ? ", which sends it" : "")));
      return;
    }
    const std::uint32_t rank = index_.rank_of(messages.front().receive.tb);
    for (std::size_t k = 0; k + 1 < messages.size(); ++k) {
      const ir::Instruction& i = index_.instruction(messages[k].receive);
      const std::uint32_t slot = index_.slot(rank, i.dst_buffer, i.dst_chunk);
      opens_[order_.position(messages[k].receive)] = {slot, i.count};
    }
    for (const Message& m : messages) members_.insert(order_.position(m.receive));
    closes_.insert(order_.position(messages.back().receive));
  }

  // Nobody else reads or writes a sum before it is complete.
  void untouched() {
    if (opens_.empty()) return;
    std::vector<std::unordered_map<std::uint32_t, Step>> open(
        index_.program().ranks.size());  // by slot: the last adder
    Breath breathe;
    for (const Run& run : schedule_) {
      const std::uint32_t rank = index_.rank_of(run.tb);
      for (Step s{run.tb, run.first}; s.step < run.end; ++s.step) {
        breathe();
        const std::uint32_t at = order_.position(s);
        if (!members_.contains(at)) {
          if (!open[rank].empty() && !leaves(s, rank, open[rank])) return;
          continue;
        }
        const ir::Instruction& i = index_.instruction(s);
        const std::uint32_t slot = index_.slot(rank, i.src_buffer, i.src_chunk);
        for (std::uint32_t k = 0; k < i.count; ++k) open[rank].erase(slot + k);
        const auto opened = opens_.find(at);
        if (closes_.contains(at) || opened == opens_.end()) continue;
        for (std::uint32_t k = 0; k < opened->second.count; ++k) open[rank][opened->second.slot + k] = s;
      }
    }
  }

  bool leaves(Step s, std::uint32_t rank, const std::unordered_map<std::uint32_t, Step>& open) {
    const ir::Instruction& i = index_.instruction(s);
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    const auto touches = [&](model::Buffer buffer, std::uint32_t chunk, std::uint32_t count) {
      for (std::uint32_t k = 0; k < count; ++k) {
        const auto found = open.find(index_.slot(rank, buffer, chunk + k));
        if (found == open.end()) continue;
        findings_.add(bad(index_.describe(s) + " uses the sum of " + index_.describe(found->second) +
                          " before its reduction is complete"));
        return true;
      }
      return false;
    };
    for (const auto& operands : {index_.program().compute.reads(i), index_.program().compute.writes(i)}) {
      for (const ir::Operand& o : operands) {
        if (touches(o.buffer, o.chunk, 1)) return false;
      }
    }
    if (op.reads_local && touches(i.src_buffer, i.src_chunk, i.count)) return false;
    return !op.writes_local || !touches(i.dst_buffer, i.dst_chunk, i.count);
  }

  // No send begins only after the receive of another message of its group.
  void independent(const std::map<std::uint32_t, std::vector<Message>>& groups, const std::string& what) {
    std::vector<Reachability::Pair> pairs;
    std::vector<std::uint32_t> group_of;
    // Whether no pair is ordered. Judges those so far, because all pairs of a large program would not fit in memory.
    const auto unordered = [&] {
      std::size_t next = 0;
      const std::vector<std::size_t> found = order_.unordered(pairs, pairs.size());
      for (std::size_t k = 0; k < pairs.size(); ++k) {
        if (next < found.size() && found[next] == k) {
          ++next;
          continue;
        }
        findings_.add(bad(what + std::to_string(group_of[k]) + ": " + index_.describe(pairs[k].later) + " waits for " +
                          index_.describe(pairs[k].earlier) + " of the same group"));
        return false;
      }
      pairs.clear();
      group_of.clear();
      return true;
    };
    Breath breathe;
    for (const auto& [number, messages] : groups) {
      for (const Message& a : messages) {
        for (const Message& b : messages) {
          breathe();
          if (order_.position(a.receive) >= order_.position(b.send)) continue;
          pairs.push_back({a.receive, b.send, false});
          group_of.push_back(number);
        }
        if (pairs.size() >= kPairs && !unordered()) return;
      }
    }
    unordered();
  }

  struct Range {
    std::uint32_t slot;
    std::uint32_t count;
  };

  const ProgramIndex& index_;
  const Reachability order_;
  const Schedule& schedule_;
  Findings& findings_;
  Groups groups_;
  // Of reductions, by position in the schedule: the sums that are not complete after a step, and the steps themselves.
  std::unordered_map<std::uint32_t, Range> opens_;
  std::set<std::uint32_t> members_;
  std::set<std::uint32_t> closes_;
};

}  // namespace

void check_switched(const ProgramIndex& index, const Connections& connections, const Schedule& schedule,
                    Findings& findings) {
  if (!index.program().switched.empty()) Check(index, connections, schedule, findings).run();
}

void check_multicast_values(const ProgramIndex& index, const Connections& connections, Findings& findings,
                            const std::function<bool(std::size_t, std::size_t)>& equal) {
  if (index.program().switched.empty()) return;
  for (const auto& [number, messages] : groups_of(index, connections).multicasts) {
    const Message& first = messages.front();
    const std::uint32_t count = index.instruction(first.send).count;
    for (const Message& m : messages) {
      if (index.instruction(m.send).count != count || findings.full()) break;  // reported already
      for (std::uint32_t k = 0; k < count; ++k) {
        if (equal(first.first_chunk + k, m.first_chunk + k)) continue;
        findings.add(bad("multicast " + std::to_string(number) + ": " + index.describe(first.send) + " and " +
                         index.describe(m.send) + " send different values"));
        break;
      }
    }
  }
}

}  // namespace gc3::verify
