#include "gc3/ir/text.h"

#include <utility>

#include "gc3/ir/direct/program.h"
#include "gc3/ir/printer.h"

namespace gc3::ir::direct {
namespace {

void print_operand(Printer& out, std::uint32_t rank, const Operand& o) {
  if (is_multicast(o.access)) {
    out("g", o.owner, ":");
  } else if (o.owner != rank) {
    out(o.owner, ":");
  }
  out(is_packet(o.access) ? "pkt " : "", text_name(o.buffer), "[", o.chunk, "]");
}

void print_direct_step(Printer& out, const Program& p, std::uint32_t rank, const Step& s) {
  out(info(s.op).name);
  if (s.op != Op::move) {
    for (const std::uint32_t number : p.objects_of(s)) out(" ", number);
    if (s.relaxed) out(" relaxed");
    return;
  }
  std::string_view before = " ";
  for (const Operand& o : p.sources(s)) {
    out(before);
    print_operand(out, rank, o);
    before = " + ";
  }
  if (s.targets != 0) out(" ->");
  for (const Operand& o : p.targets(s)) {
    out(" ");
    print_operand(out, rank, o);
  }
  if (s.count != 1) out(" x", s.count);
  if (s.channel != kNone) out(" through ", s.channel);
}

void print_objects(Printer& out, const Program& p) {
  for (std::size_t k = 0; k < p.channels.size(); ++k) {
    const Channel& c = p.channels[k];
    out("channel ", k, " from ", c.from, " to ", c.to, c.port ? " port\n" : "\n");
  }
  for (std::size_t k = 0; k < p.semaphores.size(); ++k) {
    out("semaphore ", k, " rank ", p.semaphores[k].rank, " initial ", p.semaphores[k].initial, "\n");
  }
  for (std::size_t k = 0; k < p.barriers.size(); ++k) {
    out("barrier ", k, " rank ", p.barriers[k].rank, " threadblocks ", p.barriers[k].threadblocks, "\n");
  }
  for (std::size_t k = 0; k < p.groups.size(); ++k) {
    out("group ", k, " ranks");
    for (const std::uint32_t member : p.groups[k].ranks) out(" ", member);
    out("\n");
  }
}

}  // namespace

std::string to_text(const Program& program) {
  Printer out;
  out.str().reserve(256 + program.steps.size() * 48);
  print_title(out, "direct", program.name, program.collective);
  out("halves ", program.halves, program.shared_scratch ? " shared scratch\n" : "\n");
  print_objects(out, program);
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    out("\nrank ", r);
    if (program.ranks[r].scratch_chunks != 0) out(" scratch ", program.ranks[r].scratch_chunks);
    out("\n");
    std::uint32_t t = 0;
    for (const Threadblock& tb : program.tbs(r)) {
      out("  tb ", t++, "\n");
      std::uint32_t s = 0;
      for (const Step& step : program.steps_of(tb)) {
        out("    ", s++, " ");
        print_direct_step(out, program, r, step);
        out("\n");
      }
    }
  }
  return std::move(out.str());
}

std::string to_text(const Program& program, std::uint32_t rank, const Step& step) {
  Printer out;
  print_direct_step(out, program, rank, step);
  return std::move(out.str());
}

}  // namespace gc3::ir::direct
