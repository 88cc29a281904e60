// Reads a text form line by line: what the forms of FIFO programs and of one-sided programs share.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "gc3/base/errors/files.h"
#include "gc3/base/result.h"
#include "gc3/base/text.h"
#include "gc3/ir/program.h"
#include "gc3/model/collective.h"

namespace gc3::ir {

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
  Status quoted(std::string& value);
  Diagnostic expected(const std::string& what) const;
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

struct ClassProgram;

// Reads what print_symmetry wrote.
Status parse_symmetry(std::string_view text, ClassProgram& program);
// Reads what compute_text wrote.
Status parse_compute(std::string_view text, model::CustomCollective& data, Compute& compute);

class TextReader {
 public:
  TextReader(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

 protected:
  // Moves to the next line that is not blank or a comment; at the end of the text, to an empty line.
  Line& next();
  // The first line: `word`, a name and the version.
  Status parse_title(std::string_view word, std::string& name);
  // Leaves the line after the collective as the current one.
  Status parse_collective(model::Collective& collective);
  // The numbers of ranks, threadblocks and steps are for human readers; they must count up.
  static Status parse_index(Line& line, std::size_t due, std::string_view what);
  // A number below kNone.
  static Status parse_number(Line& line, std::uint32_t& value, std::string_view what);
  // "in[3]"
  static Status parse_place(Line& line, model::Buffer& buffer, std::uint32_t& chunk);
  // "x2", if it comes next: the letter and the number are one word.
  static Status parse_count(Line& line, std::uint32_t& count);
  // The lines of tensors, operations and calls, which may be none, and the line of lengths; leave the line after them.
  Status parse_tensors(model::CustomCollective& data);
  Status parse_lengths(std::vector<std::string>& lengths);
  // What follows "apply".
  static Status parse_operands(Line& line, const std::vector<std::string>& operations, Compute& compute,
                               Instruction& step);
  // The lines of the symmetry, which may be none; leave the line after them.
  Status parse_symmetry(ClassProgram& program);
  Status check_rank_count(std::size_t described, const model::Collective& collective) const;

  std::string_view text_;
  const std::string& origin_;
  int number_ = 0;
  Line line_{{}, 0, origin_};

 private:
  static Status parse_term(Line& line, model::InputChunk& term);
  static Status parse_properties(Line& line, model::Properties& properties);
  static Status parse_operation(Line& line, const std::vector<std::string>& names, std::uint32_t& operation);
  Status parse_custom(model::CustomCollective& data);
  Status parse_expectations(model::CustomCollective& data, std::uint32_t chunks);
};

}  // namespace gc3::ir
