// The tags of an XML text, one after the other. Written by hand for the restricted format of xml_read.h: exchange files
// have tens of megabytes and untrusted sources. So it reads each byte once, allocates nothing that grows with the
// input, and supports no document types, hence no entities to expand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/diagnostic.h"
#include "gc3/base/result.h"

namespace gc3::ir {

struct XmlAttribute {
  std::string_view name;
  std::string_view value;  // as written: references such as &amp; stand unresolved
};

enum class XmlToken : std::uint8_t { open, close, end, error };

class XmlTokens {
 public:
  // `strict`: accepts only what the hand-written parsers of the runtimes accept: no declaration, no tabs, single blanks
  // in a tag, double quotes, and attributes whose lengths and number fit their buffers.
  XmlTokens(std::string_view text, const std::string& origin, bool strict = false)
      : text_(text), origin_(origin), strict_(strict) {}

  // Moves to the next tag. <x/> gives open, then close. After error, problem() says what is wrong.
  XmlToken next();
  const Diagnostic& problem() const { return problem_; }

  // The current open or close tag; views into the text. Attributes may repeat.
  std::string_view name() const { return name_; }
  std::span<const XmlAttribute> attributes() const { return std::span(attributes_).first(attribute_count_); }
  // Where the tag begins in the text.
  std::size_t offset() const { return tag_offset_; }
  std::size_t depth() const { return open_.size(); }

  // A Diagnostic at the line that holds byte `offset`.
  Diagnostic error_at(std::size_t offset, std::string text) const;

 private:
  XmlToken fail(std::size_t offset, std::string text);
  bool skip_to_tag();
  bool skip_past(std::string_view end, std::string_view what);
  XmlToken open_tag();
  XmlToken close_tag();
  bool read_attribute();
  bool check_comment();
  bool check_attribute(std::size_t start, std::size_t equals, const XmlAttribute& attribute);
  void skip_space();
  std::string_view read_name();

  static constexpr std::size_t kMaxAttributes = 32;
  static constexpr std::size_t kMaxDepth = 32;
  static constexpr std::size_t kRuntimeAttributes = 16;  // that the parsers of the runtimes keep
  static constexpr std::size_t kRuntimeText = 255;       // bytes of a value; a name has one less

  std::string_view text_;
  const std::string& origin_;
  bool strict_ = false;
  std::size_t at_ = 0;
  std::size_t tag_offset_ = 0;
  bool pending_close_ = false;  // the current tag is <x/>: its close comes next
  bool seen_root_ = false;
  std::string_view name_;
  std::array<XmlAttribute, kMaxAttributes> attributes_;
  std::size_t attribute_count_ = 0;
  std::vector<std::string_view> open_;
  Diagnostic problem_;
};

// The value of an attribute with its references (&amp; &lt; &gt; &quot; &apos; &#...;) resolved; none if malformed.
Result<std::string> resolve_references(std::string_view value);
// The reverse, for an attribute in double quotes on one line.
std::string escape_attribute(std::string_view value);

}  // namespace gc3::ir
