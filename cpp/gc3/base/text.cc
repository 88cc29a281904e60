#include "gc3/base/text.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gc3 {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

// The first character of a non-empty text (RFC 3629, section 4).
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  std::uint32_t code = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<std::uint32_t, 5> kLeastOfBytes = {0, 0, 0x80, 0x800, 0x10000};  // overlong forms are invalid
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (first < 0xc2 || first > 0xf4 || code < kLeastOfBytes[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

// Unicode's categories Cc, Cf, Zl and Zp.
bool is_hidden(std::uint32_t code) {
  struct Range {
    std::uint32_t first, last;
  };
  constexpr std::array<Range, 22> kHidden = {
      {{0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
       {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x180e, 0x180e},
       {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
       {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
       {0xe0001, 0xe0001}, {0xe0020, 0xe007f}}};
  for (const Range& range : kHidden) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

void put_hex(std::string& out, char kind, std::uint32_t value, std::uint32_t digits) {
  out += '\\';
  out += kind;
  for (std::uint32_t d = digits; d-- != 0;) out += kHex[value >> (4 * d) & 15U];
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character c = first_of(text);
    if (c.bytes == 0) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

std::string shown(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_of(text);
    if (c.bytes == 0) {
      put_hex(out, 'x', static_cast<unsigned char>(text.front()), 2);
    } else if (!is_hidden(c.code)) {
      out += text.substr(0, c.bytes);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code < 0x100) {
      put_hex(out, 'x', c.code, 2);
    } else {
      put_hex(out, c.code < 0x10000 ? 'u' : 'U', c.code, c.code < 0x10000 ? 4 : 8);
    }
    text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
  }
  return out;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      put_hex(out, 'x', byte, 2);
    }
  }
  out += text.size() > kShown ? "...'" : "'";
  return out;
}

}  // namespace gc3
