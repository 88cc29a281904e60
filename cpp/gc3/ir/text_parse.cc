// The reader of the text form: one line at a time, one function per kind of line.
#include <cstdint>
#include <utility>
#include <vector>

#include "gc3/base/interrupt.h"
#include "gc3/ir/builder.h"
#include "gc3/ir/text.h"
#include "gc3/ir/text_reader.h"

namespace gc3::ir {
namespace {

class TextParser : private TextReader {
 public:
  using TextReader::TextReader;

  Result<ClassProgram> parse() {
    GC3_CHECK(parse_title("program", builder_.program().name));
    GC3_CHECK(parse_collective(builder_.program().collective));
    GC3_CHECK(parse_protocol(line_));
    next();
    GC3_CHECK(parse_lengths(builder_.program().compute.lengths));
    ClassProgram found;
    const Line start = line_;
    GC3_CHECK(parse_symmetry(found));
    Breath breathe;
    for (; !line_.at_end(); next()) {
      breathe();
      if (line_.accept("rank")) {
        GC3_CHECK(parse_rank(line_));
      } else if (line_.accept("tb")) {
        GC3_CHECK(parse_threadblock(line_));
      } else {
        GC3_CHECK(parse_step(line_));
      }
    }
    found.representative = std::move(builder_.program());
    if (!found.symmetry.exists()) {
      GC3_CHECK(check_rank_count(found.representative.ranks.size(), found.representative.collective));
      return found;
    }
    Findings findings(1);
    if (!check_action(found, findings)) return start.problem(findings.take().front().message);
    return found;
  }

 private:
  Status parse_protocol(Line& line) {
    GC3_CHECK(line.expect("protocol"));
    const Line at_name = line;
    const auto protocol = model::parse_protocol(line.word());
    if (!protocol.has_value()) return at_name.expected("Simple, LL, LL128, Pull or Copy");
    builder_.program().protocol = *protocol;
    GC3_CHECK(line.expect("instances"));
    GC3_CHECK(line.number(builder_.program().instances, "a number of instances"));
    GC3_CHECK(line.expect("slots"));
    GC3_CHECK(line.number(builder_.program().slots, "a number of slots"));
    return line.expect_end();
  }

  Status parse_rank(Line& line) {
    GC3_CHECK(parse_index(line, builder_.program().ranks.size(), "rank"));
    std::uint32_t scratch = 0;
    if (line.accept("scratch")) GC3_CHECK(line.number(scratch, "a number of chunks"));
    GC3_CHECK(line.expect_end());
    builder_.rank(scratch);
    if (builder_.scratch_total() > kMaxScratchChunks)
      return line.problem("more scratch chunks than a program may have");
    return {};
  }

  Status parse_threadblock(Line& line) {
    Program& p = builder_.program();
    if (p.ranks.empty()) return line.problem("a threadblock before the first rank");
    GC3_CHECK(parse_index(line, p.ranks.back().tb_count, "threadblock"));
    Threadblock tb;
    GC3_CHECK(line.expect("channel"));
    GC3_CHECK(line.number(tb.channel, "a channel"));
    if (line.accept("send")) GC3_CHECK(parse_number(line, tb.send_peer, "a rank"));
    if (line.accept("recv")) GC3_CHECK(parse_number(line, tb.recv_peer, "a rank"));
    GC3_CHECK(line.expect_end());
    builder_.threadblock(tb.send_peer, tb.recv_peer, tb.channel);
    return {};
  }

  Status parse_step(Line& line) {
    Program& p = builder_.program();
    if (p.ranks.empty()) return line.expected("'rank'");
    if (p.ranks.back().tb_count == 0) return line.expected("'tb' or 'rank'");
    GC3_CHECK(parse_index(line, p.threadblocks.back().instruction_count, "step"));
    Instruction step;
    GC3_CHECK(parse_opcode(line, step.opcode));
    const OpcodeInfo& op = info(step.opcode);
    if (op.reads_local) GC3_CHECK(parse_place(line, step.src_buffer, step.src_chunk));
    if (op.writes_local) {
      GC3_CHECK(line.expect("->"));
      GC3_CHECK(parse_place(line, step.dst_buffer, step.dst_chunk));
    }
    if (step.opcode == Opcode::apply) {
      const model::CustomCollective* data = p.collective.custom_data();
      if (data == nullptr) return line.problem("only a program of a custom collective applies operations");
      GC3_CHECK(parse_operands(line, data->operations, p.compute, step));
    } else {
      step.count = step.opcode == Opcode::nop ? 0 : 1;
      GC3_CHECK(parse_count(line, step.count));
    }
    deps_.clear();
    if (line.accept("after")) GC3_CHECK(parse_dependencies(line));
    step.has_dependents = line.accept("signals") ? 1 : 0;
    Switched groups;
    if (line.accept("multicast")) GC3_CHECK(parse_number(line, groups.multicast, kGroup));
    if (line.accept("reduction")) GC3_CHECK(parse_number(line, groups.reduction, kGroup));
    GC3_CHECK(line.expect_end());
    builder_.step(step, deps_);
    if (groups != Switched()) builder_.switched(groups);
    return {};
  }

  static Status parse_opcode(Line& line, Opcode& opcode) {
    const Line start = line;
    const std::string_view name = line.word();
    for (std::size_t i = 0; i < kOpcodeCount; ++i) {
      opcode = static_cast<Opcode>(i);
      if (text_name(opcode) == name) return {};
    }
    return start.expected("an opcode");
  }

  Status parse_dependencies(Line& line) {
    GC3_CHECK(line.expect("("));
    do {
      Dependency on{};
      GC3_CHECK(line.number(on.tb, "a threadblock"));
      GC3_CHECK(line.expect(":"));
      GC3_CHECK(line.number(on.step, "a step"));
      deps_.push_back(on);
    } while (line.accept(","));
    return line.expect(")");
  }

  static constexpr std::string_view kGroup = "the number of a switch group";

  Builder builder_;
  std::vector<Dependency> deps_;
};

}  // namespace

Result<ClassProgram> parse_classes(std::string_view text, const std::string& origin) {
  return TextParser(text, origin).parse();
}

Result<Program> parse_text(std::string_view text, const std::string& origin) {
  GC3_ASSIGN(ClassProgram found, parse_classes(text, origin));
  return of_all_ranks(std::move(found));
}

}  // namespace gc3::ir
