#include "mutate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

namespace gc3::fuzz {
namespace {

constexpr std::size_t kMaxBytes = 4096;  // small inputs run fast and make a small corpus

bool is_word(std::byte b) { return std::isalnum(std::to_integer<unsigned char>(b)) != 0 || b == std::byte{'_'}; }
bool is_digit(std::byte b) { return std::isdigit(std::to_integer<unsigned char>(b)) != 0; }

struct Range {
  std::size_t begin;
  std::size_t end;
};

// The next sequence of fitting bytes, at `from` or after it.
template <class Fits>
Range run_from(const Input& input, std::size_t from, Fits fits) {
  const auto at = [&](auto it) { return static_cast<std::size_t>(it - input.begin()); };
  const auto begin = std::find_if(input.begin() + static_cast<std::ptrdiff_t>(from), input.end(), fits);
  return {at(begin), at(std::find_if_not(begin, input.end(), fits))};
}

void replace(Input& input, Range range, const std::byte* bytes, std::size_t count) {
  const auto begin = input.begin() + static_cast<std::ptrdiff_t>(range.begin);
  const auto at = input.erase(begin, input.begin() + static_cast<std::ptrdiff_t>(range.end));
  input.insert(at, bytes, bytes + count);
}

void replace(Input& input, Range range, std::string_view text) {
  replace(input, range, reinterpret_cast<const std::byte*>(text.data()), text.size());
}

}  // namespace

void Mutator::learn(const Input& input) {
  for (Range r = run_from(input, 0, is_word); r.begin < r.end; r = run_from(input, r.end, is_word)) {
    if (r.end - r.begin > 24) continue;
    const std::string word(reinterpret_cast<const char*>(input.data()) + r.begin, r.end - r.begin);
    if (std::find(words_.begin(), words_.end(), word) == words_.end()) words_.push_back(word);
  }
}

Input Mutator::mutated(const std::vector<Input>& pool) {
  Input input = pool[std::max(below(pool.size()), below(pool.size()))];
  for (std::size_t changes = std::size_t{1} << below(4); changes > 0; --changes) change(input, pool);
  if (input.size() > kMaxBytes) input.resize(kMaxBytes);
  return input;
}

void Mutator::change(Input& input, const std::vector<Input>& pool) {
  const std::size_t at = below(input.size() + 1);
  const Range range{at, std::min(input.size(), at + 1 + below(std::size_t{1} << below(9)))};
  switch (below(10)) {
    case 0:  // a bit
      if (at < input.size()) input[at] ^= static_cast<std::byte>(1U << below(8));
      break;
    case 1:  // a byte
      if (at < input.size()) input[at] = static_cast<std::byte>(below(256));
      break;
    case 2:
      replace(input, range, nullptr, 0);
      break;
    case 3: {  // a part again, at the same place or another
      const Input part(input.begin() + static_cast<std::ptrdiff_t>(range.begin),
                       input.begin() + static_cast<std::ptrdiff_t>(range.end));
      const std::size_t to = below(2) == 0 ? range.end : below(input.size() + 1);
      replace(input, {to, to}, part.data(), part.size());
      break;
    }
    case 4: {  // a part of another input
      const Input& other = pool[below(pool.size())];
      const std::size_t from = below(other.size() + 1);
      const std::size_t count = std::min(other.size() - from, std::size_t{1} << below(10));
      replace(input, below(2) == 0 ? range : Range{at, at}, other.data() + from, count);
      break;
    }
    case 5:
    case 6:
      replace_word(input);
      break;
    case 7:
    case 8:
      replace_number(input);
      break;
    default: {  // four bytes as a number of an image
      if (input.size() < 4) break;
      const std::size_t from = below(input.size() - 3) & ~std::size_t{3};
      std::uint32_t number = 0;
      std::memcpy(&number, input.data() + from, sizeof(number));
      const std::array<std::uint32_t, 7> choices = {0, 1, 0xffffffffU, 0x7fffffffU, number + 1, number - 1, number * 2};
      number = choices[below(choices.size())];
      std::memcpy(input.data() + from, &number, sizeof(number));
    }
  }
}

void Mutator::replace_word(Input& input) {
  const Range word = run_from(input, below(input.size() + 1), is_word);
  if (!words_.empty()) replace(input, word, words_[below(words_.size())]);
}

void Mutator::replace_number(Input& input) {
  const Range number = run_from(input, below(input.size() + 1), is_digit);
  if (number.begin == number.end) return;
  constexpr std::array<std::string_view, 16> kNumbers = {"0",       "1",          "2",          "3",  "7",   "-1",
                                                         "16",      "64",         "71",         "72", "128", "32768",
                                                         "4194304", "2147483648", "4294967295", "1e9"};
  replace(input, number, kNumbers[below(kNumbers.size())]);
}

}  // namespace gc3::fuzz
