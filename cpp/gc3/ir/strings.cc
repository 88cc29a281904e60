#include "gc3/ir/strings.h"

#include <cstddef>

namespace gc3::ir {

bool is_utf8(std::string_view text) {
  constexpr auto kBad = static_cast<std::size_t>(-1);
  // Bytes that follow the first one of a character, and the range of the first that follows (RFC 3629, section 4).
  const auto length = [&](std::size_t i) -> std::size_t {
    const auto first = static_cast<unsigned char>(text[i]);
    const auto second = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    const auto within = [&](unsigned int low, unsigned int high) { return second >= low && second <= high; };
    if (first < 0x80) return 0;
    if (first >= 0xc2 && first <= 0xdf) return within(0x80, 0xbf) ? 1 : kBad;
    if (first == 0xe0) return within(0xa0, 0xbf) ? 2 : kBad;
    if (first == 0xed) return within(0x80, 0x9f) ? 2 : kBad;
    if (first >= 0xe1 && first <= 0xef) return within(0x80, 0xbf) ? 2 : kBad;
    if (first == 0xf0) return within(0x90, 0xbf) ? 3 : kBad;
    if (first >= 0xf1 && first <= 0xf3) return within(0x80, 0xbf) ? 3 : kBad;
    if (first == 0xf4) return within(0x80, 0x8f) ? 3 : kBad;
    return kBad;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t more = length(i);
    if (more == kBad || i + more >= text.size()) return false;
    for (std::size_t k = 2; k <= more; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0U) != 0x80U) return false;
    }
    i += more;
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 40;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    }
  }
  out += text.size() > kShown ? "...'" : "'";
  return out;
}

}  // namespace gc3::ir
