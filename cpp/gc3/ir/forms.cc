#include "gc3/ir/forms.h"

#include <string_view>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/ir/file.h"
#include "gc3/ir/image.h"
#include "gc3/ir/text.h"

namespace gc3::ir {

namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view visible(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

// The other forms contain all of this: the options may only repeat it.
Status check_options(const model::Collective& collective, const XmlReadOptions& options, const std::string& origin) {
  const bool in_place = collective.in_place();
  if (options.in_place.value_or(in_place) != in_place) {
    return Diagnostic(ErrorCode::BadArgument,
                      "'" + origin + "'" + " is for use " + (in_place ? "in place only" : "out of place only"));
  }
  if (options.collective.has_value()) {
    return Diagnostic(ErrorCode::BadArgument, "'" + origin + "'" + " is not MSCCL XML: it contains its collective, " +
                                                  std::string(collective.name()));
  }
  if (!options.coll.empty() && options.coll != collective.name()) {
    return Diagnostic(ErrorCode::BadArgument, "'" + origin + "'" + " is for " + std::string(collective.name()));
  }
  return {};
}

}  // namespace

bool is_xml(std::span<const std::byte> bytes) {
  const std::string_view text = as_text(bytes);
  return visible(text).starts_with('<') || text.starts_with("\xef\xbb\xbf");
}

Result<ProgramFile> read_any(std::span<const std::byte> bytes, const std::string& origin,
                             const XmlReadOptions& options) {
  const std::string_view text = as_text(bytes);
  if (is_xml(bytes)) return read_xml(text, origin, options);
  if (options.runtime != nullptr) {
    return Diagnostic(ErrorCode::BadArgument, "'" + origin + "' is no MSCCL XML, so " +
                                                  std::string(options.runtime->title) + " cannot read it");
  }
  const bool is_text = visible(text).starts_with('#') || visible(text).starts_with("program");
  Result<ClassProgram> read = is_text ? parse_classes(text, origin) : read_classes(bytes);
  if (!read.ok()) {
    if (!is_text) read.error().message = "'" + origin + "'" + ": " + read.error().message;
    return std::move(read.error());
  }
  const model::Collective& collective = read.value().representative.collective;
  GC3_CHECK(check_options(collective, options, origin));
  ProgramFile file;
  file.in_place = collective.in_place();
  file.out_of_place = !file.in_place;
  if (options.keep_classes && read.value().symmetry.exists()) {
    file.classes = std::move(read).value();
  } else {
    GC3_ASSIGN(file.program, of_all_ranks(std::move(read).value()));
  }
  return file;
}

Result<ProgramFile> load_any(const std::string& path, const XmlReadOptions& options) {
  GC3_ASSIGN(const std::vector<std::byte> bytes, read_file(path));
  return read_any(bytes, path, options);
}

}  // namespace gc3::ir
