#include "gc3/ir/xml_tokens.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "gc3/base/errors/files.h"
#include "gc3/base/text.h"

namespace gc3::ir {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

constexpr std::pair<std::string_view, char> kReferences[] = {
    {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};

// Appends a Unicode character as UTF-8; false: there is no such character.
bool append_utf8(std::string& out, std::uint32_t c) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return false;
  if (c < 0x80) {
    byte(c);
  } else if (c < 0x800) {
    byte(0xc0 | (c >> 6U));
    byte(0x80 | (c & 63U));
  } else if (c < 0x10000) {
    byte(0xe0 | (c >> 12U));
    byte(0x80 | ((c >> 6U) & 63U));
    byte(0x80 | (c & 63U));
  } else {
    byte(0xf0 | (c >> 18U));
    byte(0x80 | ((c >> 12U) & 63U));
    byte(0x80 | ((c >> 6U) & 63U));
    byte(0x80 | (c & 63U));
  }
  return true;
}

bool append_reference(std::string& out, std::string_view reference) {
  for (const auto& [name, character] : kReferences) {
    if (reference == name) {
      out += character;
      return true;
    }
  }
  if (reference.size() < 2 || reference[0] != '#') return false;
  const int base = reference[1] == 'x' ? 16 : 10;
  reference.remove_prefix(base == 16 ? 2 : 1);
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(reference.data(), reference.data() + reference.size(), code, base);
  return error == std::errc() && end == reference.data() + reference.size() && append_utf8(out, code);
}

}  // namespace

Result<std::string> resolve_references(std::string_view value) {
  std::string out;
  while (!value.empty()) {
    const std::size_t plain = std::min(value.find('&'), value.size());
    out += value.substr(0, plain);
    value.remove_prefix(plain);
    if (value.empty()) break;
    const std::size_t end = value.find(';');
    if (end == std::string_view::npos || !append_reference(out, value.substr(1, end - 1))) {
      return Diagnostic(ErrorCode::BadXml, "unknown reference " + in_quotes(value.substr(0, end)));
    }
    value.remove_prefix(end + 1);
  }
  return out;
}

std::string escape_attribute(std::string_view value) {
  std::string out;
  for (const char c : value) {
    const auto* const known =
        std::find_if(std::begin(kReferences), std::end(kReferences), [&](const auto& r) { return r.second == c; });
    if (known != std::end(kReferences) && c != '\'') {
      out.append("&").append(known->first).append(";");
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append("&#").append(std::to_string(static_cast<int>(c))).append(";");
    } else {
      out += c;
    }
  }
  return out;
}

Diagnostic XmlTokens::error_at(std::size_t offset, std::string text) const {
  const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
  return Diagnostic(ErrorCode::BadXml, std::move(text)).at({origin_, static_cast<int>(line)});
}

XmlToken XmlTokens::fail(std::size_t offset, std::string text) {
  problem_ = error_at(std::min(offset, text_.size()), std::move(text));
  return XmlToken::error;
}

void XmlTokens::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_]) && !(strict_ && text_[at_] == '\t')) ++at_;
}

std::string_view XmlTokens::read_name() {
  const std::size_t start = at_;
  while (at_ < text_.size() && is_name(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

bool XmlTokens::skip_past(std::string_view end, std::string_view what) {
  const std::size_t found = text_.find(end, at_);
  if (found == std::string_view::npos) {
    fail(tag_offset_, std::string(what) + " is not closed");
    return false;
  }
  at_ = found + end.size();
  return true;
}

// Moves to a '<' that begins a tag, past blanks, comments and the declaration; false: problem_ is set.
bool XmlTokens::skip_to_tag() {
  if (at_ == 0 && !strict_ && text_.starts_with("\xef\xbb\xbf")) at_ = 3;
  for (;;) {
    skip_space();
    if (at_ == text_.size()) return true;
    if (text_[at_] != '<') {
      fail(at_,
           "text " + in_quotes(text_.substr(at_, text_.find_first_of("<\n", at_) - at_)) + " between the elements");
      return false;
    }
    tag_offset_ = at_;
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("<!--")) {
      if (strict_ && !check_comment()) return false;
      at_ += 4;
      if (!skip_past("-->", "a comment")) return false;
    } else if (rest.starts_with("<?") && strict_) {
      fail(at_, "the parsers of the runtimes take no declaration");
      return false;
    } else if (rest.starts_with("<?")) {
      if (!skip_past("?>", "a declaration")) return false;
    } else if (rest.starts_with("<!")) {
      fail(at_, "document types and CDATA are not part of the format");
      return false;
    } else {
      return true;
    }
  }
}

XmlToken XmlTokens::next() {
  if (pending_close_) {
    pending_close_ = false;
    open_.pop_back();
    return XmlToken::close;
  }
  if (!skip_to_tag()) return XmlToken::error;
  if (at_ == text_.size()) {
    if (!open_.empty()) return fail(at_, "the file ends within element " + in_quotes(open_.back()));
    if (!seen_root_) return fail(at_, "the file has no element");
    return XmlToken::end;
  }
  ++at_;
  if (at_ < text_.size() && text_[at_] == '/') return close_tag();
  return open_tag();
}

// The parsers of the runtimes read the first word of a comment like the name of an element.
bool XmlTokens::check_comment() {
  const std::size_t start = at_ + 1;
  const std::string_view word = text_.substr(start, text_.find_first_of(" />\n\r", start) - start);
  if (word.find('=') == std::string_view::npos && word.size() < kRuntimeText) return true;
  fail(at_, "the parsers of the runtimes take no comment that begins so");
  return false;
}

bool XmlTokens::check_attribute(std::size_t start, std::size_t equals, const XmlAttribute& attribute) {
  const auto refuse = [&](const char* why) {
    fail(start, std::string("attribute ") + in_quotes(attribute.name) + ": the parsers of the runtimes take " + why);
    return false;
  };
  if (text_[equals] != '=' || attribute.value.data() != text_.data() + equals + 2)
    return refuse("no blanks around '='");
  if (text_[at_] != '"') return refuse("only double quotes");
  if (attribute.name.size() >= kRuntimeText || attribute.value.size() > kRuntimeText) {
    return refuse("at most 255 bytes");
  }
  // A name may hold any character. In other attributes the runtimes would compare unresolved references.
  if (attribute.name != "name" && attribute.value.find('&') != std::string_view::npos) return refuse("no references");
  return true;
}

XmlToken XmlTokens::close_tag() {
  ++at_;
  name_ = read_name();
  attribute_count_ = 0;
  if (!strict_) skip_space();
  if (at_ == text_.size() || text_[at_] != '>') return fail(tag_offset_, "a closing tag without its '>'");
  ++at_;
  if (open_.empty() || open_.back() != name_) {
    return fail(tag_offset_, "the end of element " + in_quotes(name_) + " where " +
                                 (open_.empty() ? "none is open" : in_quotes(open_.back()) + " is open"));
  }
  open_.pop_back();
  return XmlToken::close;
}

XmlToken XmlTokens::open_tag() {
  name_ = read_name();
  attribute_count_ = 0;
  if (name_.empty()) return fail(tag_offset_, "'<' without the name of an element");
  if (open_.empty() && seen_root_) return fail(tag_offset_, "a second element after the end of the first");
  if (open_.size() == kMaxDepth) return fail(tag_offset_, "elements nested deeper than " + std::to_string(kMaxDepth));
  seen_root_ = true;
  std::size_t blanks = 0;
  for (;;) {
    const std::size_t before = at_;
    skip_space();
    const std::string_view space = text_.substr(before, at_ - before);
    if (strict_ && space.find_first_of("\n\r") != std::string_view::npos) {
      return fail(before, "the parsers of the runtimes take a tag only on one line");
    }
    blanks += space.size();  // each begins an attribute, even an empty one
    if (strict_ && blanks > kRuntimeAttributes) {
      return fail(at_, "more than the " + std::to_string(kRuntimeAttributes) +
                           " blanks in a tag that the parsers of the runtimes take");
    }
    if (at_ == text_.size()) return fail(tag_offset_, "the tag is not closed");
    if (text_[at_] == '>') {
      ++at_;
      break;
    }
    if (text_[at_] == '/') {
      if (at_ + 1 == text_.size() || text_[at_ + 1] != '>') return fail(at_, "'/' without '>'");
      at_ += 2;
      pending_close_ = true;
      break;
    }
    if (at_ == before) return fail(at_, "expected a blank, found " + in_quotes(text_.substr(at_, 1)));
    if (!read_attribute()) return XmlToken::error;
  }
  open_.push_back(name_);
  return XmlToken::open;
}

bool XmlTokens::read_attribute() {
  const std::size_t start = at_;
  const auto refuse = [&](std::string text) {
    fail(start, std::move(text));
    return false;
  };
  XmlAttribute attribute;
  attribute.name = read_name();
  if (attribute.name.empty()) return refuse("expected an attribute, found " + in_quotes(text_.substr(at_, 1)));
  const std::size_t equals = at_;
  skip_space();
  if (at_ == text_.size() || text_[at_] != '=')
    return refuse("attribute " + in_quotes(attribute.name) + " has no value");
  ++at_;
  skip_space();
  if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) {
    return refuse("the value of " + in_quotes(attribute.name) + " is not in quotes");
  }
  const std::size_t end = text_.find(text_[at_], at_ + 1);
  if (end == std::string_view::npos) return refuse("the value of " + in_quotes(attribute.name) + " is not closed");
  attribute.value = text_.substr(at_ + 1, end - at_ - 1);
  if (attribute.value.find('<') != std::string_view::npos) {
    return refuse("the value of " + in_quotes(attribute.name) + " is not closed");
  }
  if (strict_ && !check_attribute(start, equals, attribute)) return false;
  at_ = end + 1;
  if (attribute_count_ == kMaxAttributes) return refuse("more than " + std::to_string(kMaxAttributes) + " attributes");
  attributes_[attribute_count_++] = attribute;
  return true;
}

}  // namespace gc3::ir
