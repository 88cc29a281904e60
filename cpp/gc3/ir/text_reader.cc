#include "gc3/ir/text_reader.h"

#include <optional>
#include <utility>

#include "gc3/base/ids.h"
#include "gc3/ir/text.h"

namespace gc3::ir {
namespace {

const std::string kTooManyChunks = "the collective has too many chunks";

}  // namespace

Status Line::quoted(std::string& value) {
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

Diagnostic Line::expected(const std::string& what) const {
  const std::string_view found = rest_.substr(0, rest_.find_first_of(" \t"));
  return problem("expected " + what + ", found " +
                 (found.empty() ? std::string("the end of the line") : in_quotes(found)));
}

Line& TextReader::next() {
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

Status TextReader::parse_title(std::string_view word, std::string& name) {
  GC3_CHECK(next().expect(word));
  GC3_CHECK(line_.quoted(name));
  GC3_CHECK(line_.expect("version"));
  GC3_CHECK(line_.expect("1"));
  GC3_CHECK(line_.expect_end());
  next();
  return {};
}

Status TextReader::parse_collective(model::Collective& collective) {
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
  if (split != 1 && !made.value().can_split(split)) return start.problem(kTooManyChunks);
  collective = split == 1 ? std::move(made).value() : made.value().split_chunks(split);
  return {};
}

Status TextReader::parse_custom(model::CustomCollective& data) {
  GC3_CHECK(parse_tensors(data));
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
      return line_.problem(kTooManyChunks);
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
Status TextReader::parse_expectations(model::CustomCollective& data, std::uint32_t chunks) {
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
      GC3_CHECK(parse_term(line_, data.terms.emplace_back()));
    } while (line_.accept("+"));
    GC3_CHECK(line_.expect_end());
    data.begin.push_back(data.terms.size());
    ++done;
    next();
  }
  for (; done < chunks; ++done) data.begin.push_back(data.terms.size());
  return {};
}

Status TextReader::parse_index(Line& line, std::size_t due, std::string_view what) {
  const Line start = line;
  std::uint32_t index = 0;
  GC3_CHECK(line.number(index, std::string(what) + " " + std::to_string(due)));
  if (index != due) return start.expected(std::string(what) + " " + std::to_string(due));
  return {};
}

Status TextReader::parse_number(Line& line, std::uint32_t& value, std::string_view what) {
  const Line start = line;
  GC3_CHECK(line.number(value, what));
  return value == kNone ? Status(start.expected(std::string(what))) : Status();
}

Status TextReader::parse_place(Line& line, model::Buffer& buffer, std::uint32_t& chunk) {
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

Status TextReader::parse_count(Line& line, std::uint32_t& count) {
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

Status TextReader::check_rank_count(std::size_t described, const model::Collective& collective) const {
  if (!collective.can_split(1)) return line_.problem(kTooManyChunks);
  if (described == collective.ranks()) return {};
  return line_.problem("the collective has " + std::to_string(collective.ranks()) + " ranks, the text describes " +
                       std::to_string(described));
}

}  // namespace gc3::ir
