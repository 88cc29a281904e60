#include "gc3/ir/connections.h"

#include <algorithm>
#include <string>

#include "gc3/base/errors/compiler.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/interrupt.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/structure.h"

namespace gc3::ir {
namespace {

// One end of a connection.
struct End {
  std::uint32_t src, dst, channel, tb;
  bool same_connection(const End& o) const { return src == o.src && dst == o.dst && channel == o.channel; }
  auto operator<=>(const End&) const = default;
};

std::string name_of(const End& e) {
  return "the connection from rank " + std::to_string(e.src) + " to rank " + std::to_string(e.dst) + " on channel " +
         std::to_string(e.channel);
}

class Matcher {
 public:
  Matcher(const ProgramIndex& index, Findings& findings, const model::Symmetry* symmetry)
      : index_(index), findings_(findings), symmetry_(symmetry) {}

  Connections run() {
    const std::vector<Threadblock>& tbs = index_.program().threadblocks;
    out_.sending.assign(tbs.size(), kNone);
    out_.receiving.assign(tbs.size(), kNone);
    std::vector<End> senders;
    std::vector<End> receivers;
    for (std::uint32_t t = 0; t < tbs.size(); ++t) {
      const std::uint32_t rank = index_.rank_of(t);
      if (tbs[t].send_peer != kNoRank) senders.push_back({rank, tbs[t].send_peer, tbs[t].channel, t});
      if (tbs[t].recv_peer == kNoRank) continue;
      End end{tbs[t].recv_peer, rank, tbs[t].channel, t};
      if (symmetry_ != nullptr) end = {0, symmetry_->minus(0, end.src), end.channel, t};
      receivers.push_back(end);
    }
    std::ranges::sort(senders);
    std::ranges::sort(receivers);
    const std::size_t before = findings_.count();
    check_shared(senders, "send");
    check_shared(receivers, "receive");
    if (findings_.count() > before) return std::move(out_);
    pair(senders, receivers);
    return std::move(out_);
  }

 private:
  void check_shared(const std::vector<End>& ends, const char* role) {
    for (std::size_t k = 1; k < ends.size(); ++k) {
      if (!ends[k].same_connection(ends[k - 1])) continue;
      findings_.add({ErrorCode::SharedConnection, "threadblocks " + std::to_string(index_.local_tb(ends[k - 1].tb)) +
                                                      " and " + std::to_string(index_.local_tb(ends[k].tb)) +
                                                      " of rank " + std::to_string(index_.rank_of(ends[k].tb)) +
                                                      " both " + role + " on " + name_of(ends[k])});
    }
  }

  // Merges the two sorted lists. An end that is in only one of them has no threadblock at its other end.
  void pair(const std::vector<End>& senders, const std::vector<End>& receivers) {
    std::size_t s = 0;
    std::size_t r = 0;
    Breath breathe;
    while ((s < senders.size() || r < receivers.size()) && !findings_.full()) {
      breathe();
      const bool has_both = s < senders.size() && r < receivers.size();
      const bool take_both = has_both && senders[s].same_connection(receivers[r]);
      const bool take_send = take_both || r == receivers.size() || (has_both && senders[s] < receivers[r]);
      const bool take_recv = take_both || !take_send;
      const End& end = take_send ? senders[s] : receivers[r];
      Connection c;
      c.first_chunk = out_.chunks;
      if (take_send) c.send_tb = senders[s++].tb;
      if (take_recv) c.recv_tb = receivers[r++].tb;
      const auto id = static_cast<std::uint32_t>(out_.all.size());
      if (take_send) out_.sending[c.send_tb] = id;
      if (take_recv) out_.receiving[c.recv_tb] = id;
      match_messages(c, end);
      out_.messages += c.messages;
      out_.all.push_back(c);
    }
  }

  // The first step of `tb` at or after `step` that sends (receives), or the end of the threadblock.
  std::uint32_t next(std::uint32_t tb, std::uint32_t step, bool OpcodeInfo::* role) const {
    if (tb == kNone) return 0;
    const auto steps = index_.program().steps(index_.program().threadblocks[tb]);
    while (step < steps.size() && !(info(steps[step].opcode).*role)) ++step;
    return step;
  }
  bool ended(std::uint32_t tb, std::uint32_t step) const {
    return tb == kNone || step == index_.program().threadblocks[tb].instruction_count;
  }

  void match_messages(Connection& c, const End& end) {
    std::uint32_t s = next(c.send_tb, 0, &OpcodeInfo::sends);
    std::uint32_t r = next(c.recv_tb, 0, &OpcodeInfo::receives);
    Breath breathe;
    while (!ended(c.send_tb, s) && !ended(c.recv_tb, r)) {
      breathe();
      const Step send{c.send_tb, s};
      const Step recv{c.recv_tb, r};
      const std::uint32_t count = index_.instruction(send).count;
      if (count != index_.instruction(recv).count) {
        findings_.add({ErrorCode::UnmatchedTransfer,
                       "message " + std::to_string(c.messages) + " on " + name_of(end) + ": " + index_.describe(send) +
                           " sends " + std::to_string(count) + ", " + index_.describe(recv) + " receives " +
                           std::to_string(index_.instruction(recv).count)});
        return;
      }
      ++c.messages;
      out_.chunks += count;
      s = next(c.send_tb, s + 1, &OpcodeInfo::sends);
      r = next(c.recv_tb, r + 1, &OpcodeInfo::receives);
    }
    if (!ended(c.send_tb, s)) report_lonely(c, end, {c.send_tb, s}, "sends", c.recv_tb, "receives", end.dst);
    if (!ended(c.recv_tb, r)) report_lonely(c, end, {c.recv_tb, r}, "receives", c.send_tb, "sends", end.src);
  }

  void report_lonely(const Connection& c, const End& end, Step first, const char* does, std::uint32_t partner,
                     const char* partner_does, std::uint32_t partner_rank) {
    std::string text = "on " + name_of(end) + ", " + index_.describe(first) + " " + does + " message " +
                       std::to_string(c.messages) + ", which ";
    if (partner == kNone) {
      text += "no threadblock of rank " + std::to_string(partner_rank) + " " + partner_does;
    } else {
      const std::uint32_t steps = index_.program().threadblocks[partner].instruction_count;
      text += "the other end, rank " + std::to_string(partner_rank) + " threadblock " +
              std::to_string(index_.local_tb(partner)) + " (" +
              (steps == 0 ? std::string("no steps") : "steps 0 to " + std::to_string(steps - 1)) + "), never " +
              partner_does;
    }
    findings_.add({ErrorCode::UnmatchedTransfer, std::move(text)});
  }

  const ProgramIndex& index_;
  Findings& findings_;
  const model::Symmetry* symmetry_;
  Connections out_;
};

}  // namespace

Connections match_transfers(const ProgramIndex& index, Findings& findings) {
  return Matcher(index, findings, nullptr).run();
}

Connections match_transfers(const ClassProgram& program, const ProgramIndex& index, Findings& findings) {
  return Matcher(index, findings, &program.symmetry).run();
}

Status check_copies(const Program& program) {
  if (program.protocol != model::Protocol::Copy) return {};
  const auto reduces = [](const Instruction& i) { return info(i.opcode).reduces; };
  const auto found = std::ranges::find_if(program.instructions, reduces);
  if (found == program.instructions.end()) return {};
  const auto at = static_cast<std::uint32_t>(found - program.instructions.begin());
  return Diagnostic(ErrorCode::CopyReduces, "'" + program.name + "' has protocol Copy and an instruction that reduces" +
                                                in_brackets(info(found->opcode).name, program.source, at));
}

namespace {

// `match`: finds the connections of a program whose structure is right. `one`: it, or the rank that stands for all.
template <class Checked, class Match>
Result<Connections> checked(const Checked& program, const Program& one, const Match& match) {
  Findings findings(1);
  if (!check_structure(program, 1, findings) || findings.full()) return findings.take().front();
  Connections found = match(ProgramIndex(one), findings);
  if (findings.full()) return findings.take().front();
  GC3_CHECK(check_copies(one));
  return found;
}

}  // namespace

Result<Connections> checked_connections(const Program& program) {
  return checked(program, program, [](const ProgramIndex& index, Findings& f) { return match_transfers(index, f); });
}

Result<Connections> checked_connections(const ClassProgram& program) {
  return checked(program, program.representative,
                 [&](const ProgramIndex& index, Findings& f) { return match_transfers(program, index, f); });
}

}  // namespace gc3::ir
