#include <algorithm>
#include <cstdint>
#include <string>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/ir/direct/program.h"
#include "gc3/ir/index.h"

namespace gc3::ir::direct {
namespace {

class DirectStructure {
 public:
  DirectStructure(const Program& program, Findings& findings) : p_(program), findings_(findings) {}

  bool run() {
    if (!layout()) return false;
    objects();
    for (std::uint32_t r = 0; r < p_.ranks.size() && !findings_.full(); ++r) {
      for (std::uint32_t t = 0; t < p_.ranks[r].tb_count; ++t) {
        const Threadblock& tb = p_.threadblocks[p_.ranks[r].first_tb + t];
        for (std::uint32_t s = 0; s < tb.step_count; ++s) {
          step(r, p_.steps[tb.first_step + s], in_brackets(step_name(r, t, s), tb.first_step + s));
        }
      }
    }
    return sound_;
  }

 private:
  bool malformed(std::string message) {
    sound_ = false;
    findings_.add({ErrorCode::BadStructure, std::move(message)});
    return false;
  }
  std::string in_brackets(const std::string& name, std::uint32_t step) const {
    return name + " (" + std::string(info(p_.steps[step].op).name) + ")";
  }

  bool layout() {
    const std::uint32_t ranks = p_.collective.ranks();
    if (p_.ranks.size() != ranks) {
      return malformed("the collective has " + plural(ranks, "rank") + ", the program " +
                       std::to_string(p_.ranks.size()));
    }
    if (p_.collective.has_tensors())
      return malformed("one-sided programs move chunks of one length, not named tensors");
    if (p_.halves != 1 && p_.halves != 2)
      return malformed("scratch has 1 or 2 copies, not " + std::to_string(p_.halves));
    if (p_.steps.size() >= kNone || p_.operands.size() >= kNone || p_.objects.size() >= kNone) {
      findings_.add({ErrorCode::ProgramTooLarge, "more than 2^32 - 2 steps or operands"});
      return false;
    }
    std::uint64_t tb_end = 0;
    std::uint64_t step_end = 0;
    std::uint64_t operand_end = 0;
    std::uint64_t object_end = 0;
    std::uint64_t scratch = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) {
      const RankProgram& rank = p_.ranks[r];
      scratch += rank.scratch_chunks;
      if (rank.first_tb != tb_end || rank.tb_count > p_.threadblocks.size() - tb_end) {
        return malformed("the threadblocks of rank " + std::to_string(r) +
                         " do not follow those of the rank before it");
      }
      tb_end += rank.tb_count;
      for (std::uint32_t t = 0; t < rank.tb_count; ++t) {
        const Threadblock& tb = p_.threadblocks[rank.first_tb + t];
        if (tb.first_step != step_end || tb.step_count > p_.steps.size() - step_end) {
          return malformed("the steps of rank " + std::to_string(r) + " threadblock " + std::to_string(t) +
                           " do not follow those of the threadblock before it");
        }
        step_end += tb.step_count;
        for (const Step& s : p_.steps_of(tb)) {
          const bool moves = s.op == Op::move;
          std::uint64_t& end = moves ? operand_end : object_end;
          const std::uint64_t most = moves ? p_.operands.size() : p_.objects.size();
          if (s.first != end || std::uint64_t{s.sources} + s.targets > most - end) {
            return malformed("the operands of a step of rank " + std::to_string(r) +
                             " do not follow those of the step before it");
          }
          end += std::uint64_t{s.sources} + s.targets;
        }
      }
    }
    if (tb_end != p_.threadblocks.size() || step_end != p_.steps.size() || operand_end != p_.operands.size() ||
        object_end != p_.objects.size()) {
      return malformed("there are threadblocks, steps or operands that belong to no rank");
    }
    if (scratch > kMaxScratchChunks) {
      findings_.add({ErrorCode::ProgramTooLarge, "more than 2^25 chunks of scratch in all ranks together"});
      return false;
    }
    return true;
  }

  void objects() {
    const auto ranks = static_cast<std::uint32_t>(p_.ranks.size());
    for (std::size_t k = 0; k < p_.channels.size(); ++k) {
      const Channel& c = p_.channels[k];
      if (c.from >= ranks || c.to >= ranks || c.from == c.to) {
        malformed("channel " + std::to_string(k) + " leads from rank " + std::to_string(c.from) + " to rank " +
                  std::to_string(c.to));
      }
    }
    for (std::size_t k = 0; k < p_.semaphores.size(); ++k) {
      if (p_.semaphores[k].rank >= ranks) malformed("semaphore " + std::to_string(k) + " belongs to no rank");
    }
    for (std::size_t k = 0; k < p_.barriers.size(); ++k) {
      if (p_.barriers[k].rank >= ranks || p_.barriers[k].threadblocks == 0) {
        malformed("barrier " + std::to_string(k) + " belongs to no rank or to no threadblock");
      }
    }
    for (std::size_t k = 0; k < p_.groups.size(); ++k) {
      const std::vector<std::uint32_t>& members = p_.groups[k].ranks;
      const bool ascending = std::ranges::adjacent_find(members, std::ranges::greater_equal()) == members.end();
      if (members.empty() || !ascending || members.back() >= ranks) {
        malformed("group " + std::to_string(k) + " is not an ascending list of ranks");
      }
    }
  }

  void step(std::uint32_t rank, const Step& s, const std::string& name) {
    if (s.op == Op::move) {
      move(rank, s, name);
      return;
    }
    const bool may_relax = s.op == Op::signal || s.op == Op::wait;
    if (s.targets != 0 || s.count != 0 || s.channel != kNone || (s.relaxed && !may_relax)) {
      malformed(name + " has fields of another operation");
      return;
    }
    const Objects kind = info(s.op).objects;
    const std::size_t known = kind == Objects::channel     ? p_.channels.size()
                              : kind == Objects::semaphore ? p_.semaphores.size()
                              : kind == Objects::barrier   ? p_.barriers.size()
                                                           : 0;
    if ((kind == Objects::none) != (s.sources == 0) || (kind == Objects::barrier && s.sources != 1)) {
      malformed(name + " names " + plural(s.sources, "object"));
      return;
    }
    for (const std::uint32_t k : p_.objects_of(s)) {
      if (k >= known) {
        malformed(name + " names number " + std::to_string(k) + " of " + std::to_string(known));
      } else if (owner(s.op, k) != rank) {
        malformed(name + " names number " + std::to_string(k) + ", which is another rank's");
      } else if (s.op == Op::flush && !p_.channels[k].port) {
        malformed(name + " names channel " + std::to_string(k) + ", which has no proxy");
      }
    }
  }

  // The rank that may use an object by this operation; sound_ if all objects are.
  std::uint32_t owner(Op op, std::uint32_t k) const {
    if (op == Op::signal || op == Op::flush) return p_.channels[k].from;
    if (op == Op::wait) return p_.channels[k].to;
    return op == Op::barrier ? p_.barriers[k].rank : p_.semaphores[k].rank;
  }

  void move(std::uint32_t rank, const Step& s, const std::string& name) {
    const bool only_waits = s.targets == 0 && s.channel == kNone &&
                            std::ranges::all_of(p_.sources(s), [](const Operand& o) { return is_packet(o.access); });
    if (s.count == 0 || s.sources == 0 || (s.targets == 0 && !only_waits) || s.relaxed) {
      malformed(name + " moves nothing");
      return;
    }
    for (const Operand& o : p_.sources(s)) operand(s, o, true, name);
    for (const Operand& o : p_.targets(s)) operand(s, o, false, name);
    if (!sound_ || s.channel == kNone) return;
    if (s.channel >= p_.channels.size() || p_.channels[s.channel].from != rank || !p_.channels[s.channel].port) {
      malformed(name + " goes through channel " + std::to_string(s.channel) + ", which is no port channel of its rank");
      return;
    }
    const Operand& from = p_.sources(s)[0];
    const Operand& to = p_.targets(s)[0];
    if (s.sources != 1 || s.targets != 1 || from.access != to.access || is_multicast(from.access) ||
        from.owner != rank || to.owner != p_.channels[s.channel].to) {
      malformed(name + " is asynchronous, so it moves one operand of its rank to one of the channel's receiver, " +
                "both plain or both packets");
    }
  }

  void operand(const Step& s, const Operand& o, bool source, const std::string& name) {
    const bool multicast = is_multicast(o.access);
    if (o.owner >= (multicast ? p_.groups.size() : p_.ranks.size())) {
      malformed(name + " names " + (multicast ? "group " : "rank ") + std::to_string(o.owner));
      return;
    }
    if (is_packet(o.access) && o.buffer != model::Buffer::scratch) {
      malformed(name + " names packets outside of scratch");
      return;
    }
    if (source && o.access == Access::multicast_packet) {
      malformed(name + " adds packets in the switch, which no switch can");
      return;
    }
    if (!multicast) {
      inside(s, o, o.owner, name);
      return;
    }
    for (const std::uint32_t member : p_.groups[o.owner].ranks) {
      if (member < p_.ranks.size()) inside(s, o, member, name);
    }
  }

  void inside(const Step& s, const Operand& o, std::uint32_t rank, const std::string& name) {
    const std::uint64_t chunks = o.buffer == model::Buffer::input    ? p_.collective.input_chunks(rank)
                                 : o.buffer == model::Buffer::output ? p_.collective.output_chunks(rank)
                                                                     : p_.ranks[rank].scratch_chunks;
    if (std::uint64_t{o.chunk} + s.count > chunks) {
      malformed(name + " names " + place_name({o.buffer, o.chunk}) +
                (s.count > 1 ? " x" + std::to_string(s.count) : "") + " of rank " + std::to_string(rank) +
                ", which has " + plural(chunks, "chunk") + " there");
    }
  }

  const Program& p_;
  Findings& findings_;
  bool sound_ = true;
};

}  // namespace

bool check_structure(const Program& program, Findings& findings) { return DirectStructure(program, findings).run(); }

}  // namespace gc3::ir::direct
