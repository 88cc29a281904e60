// Appends text and numbers to a string: prints a program of millions of steps in one pass without temporaries.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

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

}  // namespace gc3::ir
