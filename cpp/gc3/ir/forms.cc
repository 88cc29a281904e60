#include "gc3/ir/forms.h"

#include <string_view>
#include <utility>
#include <vector>

#include "gc3/ir/file.h"
#include "gc3/ir/image.h"
#include "gc3/ir/text.h"

namespace gc3::ir {

Result<Program> read_any(std::span<const std::byte> bytes, const std::string& origin, const XmlReadOptions& options) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  const std::string_view visible = start == std::string_view::npos ? std::string_view() : text.substr(start);
  if (visible.starts_with('<') || text.starts_with("\xef\xbb\xbf")) {
    GC3_ASSIGN(XmlFile file, read_xml(text, origin, options));
    return std::move(file.program);
  }
  if (visible.starts_with('#') || visible.starts_with("program")) return parse_text(text, origin);
  Result<Program> program = read_image(bytes);
  if (!program.ok()) program.error().message = "'" + origin + "': " + program.error().message;
  return program;
}

Result<Program> load_any(const std::string& path, const XmlReadOptions& options) {
  GC3_ASSIGN(const std::vector<std::byte> bytes, read_file(path));
  return read_any(bytes, path, options);
}

}  // namespace gc3::ir
