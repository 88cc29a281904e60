// The reader of the text form: one line at a time, one function per kind of line.
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gc3/base/errors/files.h"
#include "gc3/base/interrupt.h"
#include "gc3/base/text.h"
#include "gc3/ir/builder.h"
#include "gc3/ir/text.h"

namespace gc3::ir {
namespace {

// The words of a line. A failed take leaves a Diagnostic that says what was expected and what was found.
class Line {
 public:
  Line(std::string_view text, int number, const std::string& origin) : rest_(text), number_(number), origin_(&origin) {
    skip_space();
  }

  bool at_end() const { return rest_.empty(); }
  // Takes `word` if it comes next. A word that ends in a letter must end there.
  bool accept(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    if (is_word(word.back()) && rest_.size() > word.size() && is_word(rest_[word.size()])) return false;
    rest_.remove_prefix(word.size());
    skip_space();
    return true;
  }
  Status expect(std::string_view word) {
    if (accept(word)) return {};
    return expected(in_quotes(word));
  }
  Status expect_end() {
    if (at_end()) return {};
    return expected("the end of the line");
  }
  template <class T>
  Status number(T& value, std::string_view what) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    const bool too_large = error == std::errc::result_out_of_range;
    if (error != std::errc() || (end != rest_.data() + rest_.size() && is_word(*end))) {
      return expected(std::string(what) + (too_large ? " of 32 bits" : ""));
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    skip_space();
    return {};
  }
  std::string_view word() {
    std::size_t n = 0;
    while (n < rest_.size() && is_word(rest_[n])) ++n;
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    skip_space();
    return taken;
  }
  Status quoted(std::string& value) {
    if (rest_.empty() || rest_.front() != '"') return expected("a name in double quotes");
    const Line start = *this;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        if (!is_utf8(value)) return start.expected("a name in UTF-8");
        rest_.remove_prefix(i + 1);
        skip_space();
        return {};
      }
      if (rest_[i] != '\\') {
        value += rest_[i];
      } else if (i + 1 < rest_.size() && (rest_[i + 1] == '"' || rest_[i + 1] == '\\')) {
        value += rest_[++i];
      } else {
        unsigned int byte = 0;
        const char* digits = rest_.data() + i + 2;
        if (rest_.substr(i, 2) != "\\x" || rest_.size() < i + 4 ||
            std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
          return expected("only \\\", \\\\ and \\xHH as escapes in a name");
        }
        value += static_cast<char>(byte);
        i += 3;
      }
    }
    return start.expected("a closing quote");
  }
  Diagnostic expected(const std::string& what) const {
    const std::string_view found = rest_.substr(0, rest_.find_first_of(" \t"));
    return problem("expected " + what + ", found " +
                   (found.empty() ? std::string("the end of the line") : in_quotes(found)));
  }
  Diagnostic problem(std::string text) const {
    return Diagnostic(ErrorCode::BadText, std::move(text)).at({*origin_, number_});
  }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  void skip_space() {
    const std::size_t n = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(n == std::string_view::npos ? rest_.size() : n);
    if (!rest_.empty() && rest_.front() == '#') rest_ = {};
  }

  std::string_view rest_;
  int number_;
  const std::string* origin_;
};

class TextParser {
 public:
  TextParser(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  Result<Program> parse() {
    GC3_CHECK(next().expect("program"));
    GC3_CHECK(parse_program_line(line_));
    next();
    GC3_CHECK(parse_collective());
    GC3_CHECK(parse_protocol(line_));
    Breath breathe;
    while (!next().at_end()) {
      breathe();
      if (line_.accept("rank")) {
        GC3_CHECK(parse_rank(line_));
      } else if (line_.accept("tb")) {
        GC3_CHECK(parse_threadblock(line_));
      } else {
        GC3_CHECK(parse_step(line_));
      }
    }
    Program& p = builder_.program();
    if (p.ranks.size() != p.collective.ranks()) {
      return line_.problem("the collective has " + std::to_string(p.collective.ranks()) +
                           " ranks, the text describes " + std::to_string(p.ranks.size()));
    }
    return std::move(p);
  }

 private:
  // Moves to the next line that is not blank or a comment; at the end of the text, to an empty line.
  Line& next() {
    do {
      if (text_.empty()) {
        line_ = Line({}, number_, origin_);
        return line_;
      }
      const std::size_t end = text_.find('\n');
      line_ = Line(text_.substr(0, end), ++number_, origin_);
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
    } while (line_.at_end());
    return line_;
  }

  Status parse_program_line(Line& line) {
    GC3_CHECK(line.quoted(builder_.program().name));
    GC3_CHECK(line.expect("version"));
    GC3_CHECK(line.expect("1"));
    return line.expect_end();
  }

  // Leaves the line after the collective as the current one.
  Status parse_collective() {
    const Line start = line_;
    GC3_CHECK(line_.expect("collective"));
    const Line at_name = line_;
    const std::string_view name = line_.word();
    const auto kind = model::parse_name<model::CollectiveKind>(model::kCollectiveNames, name);
    if (!kind.has_value()) return at_name.expected("the name of a collective");
    const bool is_custom = *kind == model::CollectiveKind::custom;
    model::CustomCollective data;
    if (is_custom) GC3_CHECK(line_.quoted(data.name));
    std::uint32_t ranks = 0;
    std::uint32_t chunks = 0;
    std::uint32_t split = 1;
    std::uint32_t root = 0;
    GC3_CHECK(line_.expect("ranks"));
    GC3_CHECK(line_.number(ranks, "a number of ranks"));
    GC3_CHECK(line_.expect("chunks"));
    GC3_CHECK(line_.number(chunks, "a number of chunks"));
    if (line_.accept("split")) GC3_CHECK(line_.number(split, "a number of parts"));
    if (!is_custom && line_.accept("root")) GC3_CHECK(line_.number(root, "a rank"));
    const bool in_place = line_.accept("in");
    if (in_place) GC3_CHECK(line_.expect("place"));
    GC3_CHECK(line_.expect_end());
    if (split == 0 || chunks % split != 0) return start.problem("the chunks are a multiple of the split");
    next();
    if (is_custom) GC3_CHECK(parse_custom(data));
    Result<model::Collective> made = is_custom
                                         ? model::Collective::custom(std::move(data), ranks, chunks / split, in_place)
                                         : model::Collective::builtin(*kind, ranks, chunks / split, root, in_place);
    if (!made.ok()) return start.problem("invalid collective: " + made.error().message);
    if (!made.value().can_split(split)) return start.problem("the collective has too many chunks");
    builder_.program().collective = split == 1 ? std::move(made).value() : made.value().split_chunks(split);
    return {};
  }

  Status parse_custom(model::CustomCollective& data) {
    data.begin = {0};
    while (line_.accept("rank")) {
      GC3_CHECK(parse_index(line_, data.input_chunks.size(), "rank"));
      std::uint32_t in = 0;
      std::uint32_t out = 0;
      std::int64_t alias = 0;
      GC3_CHECK(line_.expect("in"));
      GC3_CHECK(line_.number(in, "a number of chunks"));
      GC3_CHECK(line_.expect("out"));
      GC3_CHECK(line_.number(out, "a number of chunks"));
      const bool has_alias = line_.accept("alias");
      if (has_alias) GC3_CHECK(line_.number(alias, "an offset"));
      GC3_CHECK(line_.expect_end());
      // `begin` has an entry per chunk even if no line follows, so the bound must be checked first.
      if (out > model::kMaxBufferChunks || data.begin.size() + out > model::kMaxTotalChunks) {
        return line_.problem("the collective has too many chunks");
      }
      data.input_chunks.push_back(in);
      data.output_chunks.push_back(out);
      data.alias.push_back(has_alias ? std::optional(alias) : std::nullopt);
      next();
      GC3_CHECK(parse_expectations(data, out));
    }
    return {};
  }

  // Lines such as "out[3] = 0:3 + 1:3", in the order of their chunks.
  Status parse_expectations(model::CustomCollective& data, std::uint32_t chunks) {
    std::uint32_t done = 0;
    while (line_.accept("out")) {
      std::uint32_t index = 0;
      GC3_CHECK(line_.expect("["));
      GC3_CHECK(line_.number(index, "a chunk"));
      GC3_CHECK(line_.expect("]"));
      if (index < done || index >= chunks) return line_.problem("expected chunks in order, below the size of out");
      for (; done < index; ++done) data.begin.push_back(data.terms.size());
      GC3_CHECK(line_.expect("="));
      do {
        model::InputChunk term{};
        GC3_CHECK(line_.number(term.rank, "a rank"));
        GC3_CHECK(line_.expect(":"));
        GC3_CHECK(line_.number(term.index, "a chunk"));
        data.terms.push_back(term);
      } while (line_.accept("+"));
      GC3_CHECK(line_.expect_end());
      data.begin.push_back(data.terms.size());
      ++done;
      next();
    }
    for (; done < chunks; ++done) data.begin.push_back(data.terms.size());
    return {};
  }

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

  // The numbers of ranks, threadblocks and steps are for human readers; they must count up.
  Status parse_index(Line& line, std::size_t due, std::string_view what) {
    const Line start = line;
    std::uint32_t index = 0;
    GC3_CHECK(line.number(index, std::string(what) + " " + std::to_string(due)));
    if (index != due) return start.expected(std::string(what) + " " + std::to_string(due));
    return {};
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
    if (line.accept("send")) GC3_CHECK(parse_peer(line, tb.send_peer));
    if (line.accept("recv")) GC3_CHECK(parse_peer(line, tb.recv_peer));
    GC3_CHECK(line.expect_end());
    builder_.threadblock(tb.send_peer, tb.recv_peer, tb.channel);
    return {};
  }

  static Status parse_peer(Line& line, std::uint32_t& peer) {
    const Line start = line;
    GC3_CHECK(line.number(peer, "a rank"));
    if (peer == kNoRank) return start.expected("a rank");
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
    if (op.reads_local) GC3_CHECK(parse_operand(line, step.src_buffer, step.src_chunk));
    if (op.writes_local) {
      GC3_CHECK(line.expect("->"));
      GC3_CHECK(parse_operand(line, step.dst_buffer, step.dst_chunk));
    }
    step.count = step.opcode == Opcode::nop ? 0 : 1;
    GC3_CHECK(parse_count(line, step.count));
    deps_.clear();
    if (line.accept("after")) GC3_CHECK(parse_dependencies(line));
    step.has_dependents = line.accept("signals") ? 1 : 0;
    Switched groups;
    if (line.accept("multicast")) GC3_CHECK(parse_group(line, groups.multicast));
    if (line.accept("reduction")) GC3_CHECK(parse_group(line, groups.reduction));
    GC3_CHECK(line.expect_end());
    builder_.step(step, deps_);
    if (groups != Switched()) builder_.switched(groups);
    return {};
  }

  static Status parse_group(Line& line, std::uint32_t& group) {
    const Line start = line;
    GC3_CHECK(line.number(group, "the number of a switch group"));
    return group == kNone ? Status(start.expected("the number of a switch group")) : Status();
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

  static Status parse_operand(Line& line, model::Buffer& buffer, std::uint32_t& chunk) {
    const Line start = line;
    const std::string_view name = line.word();
    if (name == text_name(model::Buffer::input)) {
      buffer = model::Buffer::input;
    } else if (name == text_name(model::Buffer::output)) {
      buffer = model::Buffer::output;
    } else if (name == text_name(model::Buffer::scratch)) {
      buffer = model::Buffer::scratch;
    } else {
      return start.expected("in[...], out[...] or sc[...]");
    }
    GC3_CHECK(line.expect("["));
    GC3_CHECK(line.number(chunk, "a chunk"));
    return line.expect("]");
  }

  // "x2": the letter and the number are one word.
  static Status parse_count(Line& line, std::uint32_t& count) {
    const Line start = line;
    const std::string_view word = line.word();
    if (word.empty() || word.front() != 'x') {
      line = start;
      return {};
    }
    const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), count);
    if (error != std::errc() || end != word.data() + word.size()) return start.expected("a count such as x2");
    return {};
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

  std::string_view text_;
  const std::string& origin_;
  int number_ = 0;
  Line line_{{}, 0, origin_};
  Builder builder_;
  std::vector<Dependency> deps_;
};

}  // namespace

Result<Program> parse_text(std::string_view text, const std::string& origin) {
  return TextParser(text, origin).parse();
}

}  // namespace gc3::ir
