// Appends text and numbers to a string: prints a program of millions of steps in one pass without temporaries.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/ir/program.h"
#include "gc3/model/collective.h"

namespace gc3::ir {

class Printer {
 public:
  template <class... Parts>
  Printer& operator()(const Parts&... parts) {
    (add(parts), ...);
    return *this;
  }
  std::string& str() { return out_; }

 private:
  void add(std::string_view text) { out_ += text; }
  template <std::integral T>
  void add(T number) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    out_.append(digits.data(), end);
  }

  std::string out_;
};

// In double quotes; bytes of invisible characters as \xHH, which the parser reads back.
void print_quoted(Printer& out, std::string_view text);

// Lines of what a program computes, and the operands of an `apply`.
void print_term(Printer& out, const model::InputChunk& term);
void print_tensors(Printer& out, const model::CustomCollective& data);
void print_lengths(Printer& out, const std::vector<std::string>& lengths);
void print_operands(Printer& out, const Program& program, const Application& application);
// All of it, as an image contains it.
std::string compute_text(const Program& program);

struct ClassProgram;

// The translations of a program of which one rank stands for all, and the regions of its buffers.
void print_symmetry(Printer& out, const ClassProgram& program);

// The first lines of a text form: `word`, the name and the collective.
void print_title(Printer& out, std::string_view word, std::string_view name, const model::Collective& collective);

}  // namespace gc3::ir
