#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "gc3/base/interrupt.h"
#include "gc3/ir/direct/program.h"
#include "gc3/ir/text_reader.h"

namespace gc3::ir::direct {
namespace {

class DirectParser : private TextReader {
 public:
  using TextReader::TextReader;

  Result<Program> parse() {
    GC3_CHECK(parse_title("direct", p_.name));
    GC3_CHECK(parse_collective(p_.collective));
    GC3_CHECK(line_.expect("halves"));
    GC3_CHECK(line_.number(p_.halves, "a number of copies"));
    p_.shared_scratch = line_.accept("shared");
    if (p_.shared_scratch) GC3_CHECK(line_.expect("scratch"));
    GC3_CHECK(line_.expect_end());
    Breath breathe;
    while (!next().at_end()) {
      breathe();
      GC3_CHECK(parse_line());
      GC3_CHECK(line_.expect_end());
    }
    GC3_CHECK(check_rank_count(p_.ranks.size(), p_.collective));
    return std::move(p_);
  }

 private:
  Status parse_line() {
    if (line_.accept("rank")) return parse_rank();
    if (line_.accept("tb")) return parse_threadblock();
    if (!p_.ranks.empty()) return parse_step();
    if (line_.accept("channel")) return parse_channel();
    if (line_.accept("semaphore")) return parse_semaphore();
    if (line_.accept("barrier")) return parse_barrier();
    if (line_.accept("group")) return parse_group();
    return line_.expected("'channel', 'semaphore', 'barrier', 'group' or 'rank'");
  }

  Status parse_channel() {
    Channel c;
    GC3_CHECK(parse_index(line_, p_.channels.size(), "channel"));
    GC3_CHECK(line_.expect("from"));
    GC3_CHECK(line_.number(c.from, "a rank"));
    GC3_CHECK(line_.expect("to"));
    GC3_CHECK(line_.number(c.to, "a rank"));
    c.port = line_.accept("port");
    p_.channels.push_back(c);
    return {};
  }

  Status parse_semaphore() {
    Semaphore s;
    GC3_CHECK(parse_index(line_, p_.semaphores.size(), "semaphore"));
    GC3_CHECK(line_.expect("rank"));
    GC3_CHECK(line_.number(s.rank, "a rank"));
    GC3_CHECK(line_.expect("initial"));
    GC3_CHECK(line_.number(s.initial, "a number"));
    p_.semaphores.push_back(s);
    return {};
  }

  Status parse_barrier() {
    Barrier b;
    GC3_CHECK(parse_index(line_, p_.barriers.size(), "barrier"));
    GC3_CHECK(line_.expect("rank"));
    GC3_CHECK(line_.number(b.rank, "a rank"));
    GC3_CHECK(line_.expect("threadblocks"));
    GC3_CHECK(line_.number(b.threadblocks, "a number of threadblocks"));
    p_.barriers.push_back(b);
    return {};
  }

  Status parse_group() {
    GC3_CHECK(parse_index(line_, p_.groups.size(), "group"));
    GC3_CHECK(line_.expect("ranks"));
    p_.groups.emplace_back();
    while (!line_.at_end()) GC3_CHECK(line_.number(p_.groups.back().ranks.emplace_back(), "a rank"));
    return {};
  }

  Status parse_rank() {
    GC3_CHECK(parse_index(line_, p_.ranks.size(), "rank"));
    std::uint32_t scratch = 0;
    if (line_.accept("scratch")) GC3_CHECK(line_.number(scratch, "a number of chunks"));
    p_.ranks.push_back({static_cast<std::uint32_t>(p_.threadblocks.size()), 0, scratch});
    return {};
  }

  Status parse_threadblock() {
    if (p_.ranks.empty()) return line_.problem("a threadblock before the first rank");
    GC3_CHECK(parse_index(line_, p_.ranks.back().tb_count, "threadblock"));
    ++p_.ranks.back().tb_count;
    p_.threadblocks.push_back({static_cast<std::uint32_t>(p_.steps.size()), 0});
    return {};
  }

  Status parse_step() {
    if (p_.ranks.back().tb_count == 0) return line_.expected("'tb' or 'rank'");
    GC3_CHECK(parse_index(line_, p_.threadblocks.back().step_count, "step"));
    const Line start = line_;
    const auto names = [name = line_.word()](const OpInfo& op) { return op.name == name; };
    const auto* op = std::ranges::find_if(kOps, names);
    if (op == kOps.end()) return start.expected("an operation");
    Step step;
    step.op = static_cast<Op>(op - kOps.begin());
    if (step.op == Op::move) {
      GC3_CHECK(parse_move(step));
    } else {
      step.first = static_cast<std::uint32_t>(p_.objects.size());
      if (op->objects != Objects::none) GC3_CHECK(parse_objects(step));
    }
    ++p_.threadblocks.back().step_count;
    p_.steps.push_back(step);
    return {};
  }

  Status parse_objects(Step& step) {
    do {
      GC3_CHECK(line_.number(p_.objects.emplace_back(), "the number of a " + what_it_names(step.op)));
      ++step.sources;
      step.relaxed = line_.accept("relaxed");
    } while (!step.relaxed && !line_.at_end());
    return {};
  }
  static std::string what_it_names(Op op) {
    const Objects kind = info(op).objects;
    return kind == Objects::channel ? "channel" : kind == Objects::semaphore ? "semaphore" : "barrier";
  }

  Status parse_move(Step& step) {
    step.first = static_cast<std::uint32_t>(p_.operands.size());
    step.count = 1;
    do {
      GC3_CHECK(parse_operand());
      ++step.sources;
    } while (line_.accept("+"));
    if (!ends_move()) {
      GC3_CHECK(line_.expect("->"));
      do {
        GC3_CHECK(parse_operand());
        ++step.targets;
      } while (!ends_move());
    }
    GC3_CHECK(parse_count(line_, step.count));
    if (line_.accept("through")) GC3_CHECK(parse_number(line_, step.channel, "the number of a channel"));
    return {};
  }
  bool ends_move() const {
    Line ahead = line_;
    return ahead.at_end() || ahead.accept("through") || ahead.word().starts_with('x');
  }

  // [RANK:|gGROUP:][pkt ]BUFFER[CHUNK]
  Status parse_operand() {
    Operand o;
    o.owner = static_cast<std::uint32_t>(p_.ranks.size() - 1);
    const Line start = line_;
    Line ahead = line_;
    const std::string_view word = ahead.word();
    if (ahead.accept(":")) {
      const bool group = word.starts_with('g');
      const std::string_view digits = word.substr(group ? 1 : 0);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), o.owner);
      if (error != std::errc() || end != digits.data() + digits.size()) {
        return start.expected("a rank or a group such as g0");
      }
      if (group) o.access = Access::multicast;
      line_ = ahead;
    }
    if (line_.accept("pkt")) o.access = is_multicast(o.access) ? Access::multicast_packet : Access::packet;
    GC3_CHECK(parse_place(line_, o.buffer, o.chunk));
    p_.operands.push_back(o);
    return {};
  }

  Program p_;
};

}  // namespace

Result<Program> parse_text(std::string_view text, const std::string& origin) {
  return DirectParser(text, origin).parse();
}

}  // namespace gc3::ir::direct
