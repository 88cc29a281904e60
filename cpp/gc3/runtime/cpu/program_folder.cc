#include "gc3/runtime/cpu/program_folder.h"

#include <fstream>
#include <sstream>
#include <utility>

namespace gc3::cpu {
namespace {

constexpr const char* kFormat = "gc3-programs-1";

std::optional<ProgramEntry> parse(const std::string& line, const std::string& folder) {
  std::istringstream words(line);
  std::string collective;
  std::string end;
  std::string file;
  ProgramEntry entry;
  words >> collective >> entry.shape.ranks >> entry.shape.size >> end >> entry.shape.in_place >> entry.shape.root >>
      entry.slots >> entry.slot_bytes >> file;
  const auto kind = model::parse_name<model::CollectiveKind>(model::kCollectiveNames, collective);
  // What is left over makes the line as wrong as what is missing.
  if (words.fail() || !kind || !(words >> std::ws).eof() || file.find('/') != std::string::npos) return std::nullopt;
  if (end != "-") {
    std::istringstream number(end);
    std::uint64_t value = 0;
    if (!(number >> value) || !number.eof()) return std::nullopt;
    entry.end = value;
  }
  entry.shape.kind = *kind;
  entry.path = folder + "/" + file;
  return entry;
}

}  // namespace

std::string ProgramEntry::misfit(const CallShape& call) const {
  if (shape.kind != call.kind) return "for " + std::string(model::name_of(shape.kind));
  if (shape.ranks != call.ranks) return "for " + std::to_string(shape.ranks) + " ranks";
  if (call.size < shape.size || (end && call.size >= *end)) {
    return "for " + std::to_string(shape.size) + (end ? " to " + std::to_string(*end - 1) : " and more") + " bytes";
  }
  if (shape.in_place != call.in_place) return shape.in_place ? "for calls in place" : "for calls out of place";
  if (shape.root != call.root) return "for root " + std::to_string(shape.root);
  return "";
}

Result<std::vector<ProgramEntry>> read_program_folder(const std::string& folder) {
  std::vector<ProgramEntry> entries;
  if (folder.empty()) return entries;
  const std::string index = folder + "/index";
  std::ifstream file(index);
  std::string line;
  if (!std::getline(file, line)) return Diagnostic(ErrorCode::FileUnreadable, "'" + index + "'");
  if (line != kFormat) return Diagnostic(ErrorCode::BadTable, "'" + index + "' does not begin with " + kFormat);
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    std::optional<ProgramEntry> entry = parse(line, folder);
    if (!entry) return Diagnostic(ErrorCode::BadTable, "'" + index + "' line " + std::to_string(number) + ": " + line);
    entry->source = index + " line " + std::to_string(number);
    entries.push_back(std::move(*entry));
  }
  return entries;
}

}  // namespace gc3::cpu
