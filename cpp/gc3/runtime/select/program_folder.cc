#include "gc3/runtime/select/program_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "gc3/base/errors/runtime.h"
#include "gc3/ir/file.h"
#include "gc3/ir/forms.h"

namespace gc3::select {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20U;
constexpr const char* kFormat = "gc3-programs-1";

// A line of the index, and its program file.
struct Entry {
  Row row;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::string file;
  ThresholdChanges thresholds;
};

// The whole word; a stream would take a negative number for a large one.
template <class Number>
bool read_number(std::string_view word, Number& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

// What only some rows limit, behind the file as "name=value"; the first four keys stand before it.
std::span<const RowKey> further_keys() { return row_keys().subspan(4); }

// The rest of a line: limits and thresholds.
bool read_rest(std::istream& words, Entry& entry) {
  std::string word;
  while (words >> word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return false;
    const std::string_view name = std::string_view(word).substr(0, equals);
    const std::string_view value = std::string_view(word).substr(equals + 1);
    const auto keys = further_keys();
    const auto key = std::ranges::find(keys, name, &RowKey::name);
    if (name == "adapt") {
      entry.row.adapt = value == "1";
      if (value != "1" && value != "0") return false;
    } else if (key == keys.end() ? !entry.thresholds.set(name, value).empty() : !key->read(value, entry.row.limits)) {
      return false;
    }
  }
  return true;
}

std::optional<Entry> parse(const std::string& line) {
  std::istringstream words(line);
  std::string collective, ranks, first, end, at, slots, slot_bytes;
  Entry entry;
  Row& row = entry.row;
  auto& [first_ranks, last_ranks] = row.limits.ranks;
  auto& [first_size, end_size] = row.limits.size;
  bool in_place = false;
  std::uint32_t root = 0;
  words >> collective >> ranks >> first >> end >> in_place >> at >> slots >> slot_bytes >> entry.file;
  const auto kind = model::parse_name<model::CollectiveKind>(model::kCollectiveNames, collective);
  // Surplus text makes the line as invalid as missing text.
  if (words.fail() || !kind || !read_number(ranks, first_ranks) || !read_number(first, first_size) ||
      (end != "-" && !read_number(end, end_size.emplace())) || !read_number(at, root) ||
      !read_number(slots, entry.slots) || !read_number(slot_bytes, entry.slot_bytes) ||
      entry.file.find('/') != std::string::npos || !read_rest(words, entry)) {
    return std::nullopt;
  }
  if (first_ranks == 0 || end_size.value_or(first_size) < first_size) return std::nullopt;
  row.kind = *kind;
  last_ranks = first_ranks;
  row.limits.in_place = in_place;
  row.limits.root = root;
  return entry;
}

}  // namespace

Result<std::vector<Row>> read_program_folder(const std::string& folder) {
  std::vector<Row> rows;
  if (folder.empty()) return rows;
  const std::string index = folder + "/index";
  GC3_ASSIGN(const std::vector<std::byte> bytes, ir::read_file(index, kMostBytes));
  std::istringstream file(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::string line;
  if (!std::getline(file, line) || line != kFormat)
    return Diagnostic(ErrorCode::BadTable, "'" + index + "' does not begin with " + kFormat);
  using Key = std::tuple<std::string, std::uint32_t, std::uint64_t, decltype(ThresholdChanges::values)>;
  std::map<Key, std::shared_ptr<const Recipe>> recipes;
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    std::optional<Entry> entry = parse(line);
    if (!entry) return Diagnostic(ErrorCode::BadTable, "'" + index + "' line " + std::to_string(number) + ": " + line);
    std::shared_ptr<const Recipe>& recipe =
        recipes[{entry->file, entry->slots, entry->slot_bytes, entry->thresholds.values}];
    if (recipe == nullptr) {
      const std::string path = folder + "/" + entry->file;
      const auto read = [path](const CallShape&) -> Result<ir::ClassProgram> {
        GC3_ASSIGN(ir::ProgramFile found, ir::load_any(path, {.keep_classes = true}));
        return found.taken();
      };
      recipe = std::make_shared<const Recipe>(Recipe{read, path, entry->slots, entry->slot_bytes, entry->thresholds});
    }
    entry->row.recipe = recipe;
    entry->row.source = index + " line " + std::to_string(number);
    rows.push_back(std::move(entry->row));
  }
  return rows;
}

std::string program_folder_index(
    const std::vector<std::tuple<Row, std::uint32_t, bool, std::uint32_t, std::string>>& lines) {
  std::ostringstream text;
  text << kFormat << '\n';
  for (const auto& [row, ranks, in_place, root, file] : lines) {
    const Recipe& recipe = *row.recipe;
    const Sizes& size = row.limits.size;
    text << name_of(row.kind) << ' ' << ranks << ' ' << size.first << ' '
         << (size.last ? std::to_string(*size.last) : "-") << ' ' << in_place << ' ' << root << ' ' << recipe.slots
         << ' ' << recipe.slot_bytes << ' ' << file;
    for (const RowKey& key : further_keys()) {
      if (const std::string said = key.text(row.limits); !said.empty()) text << ' ' << key.name << '=' << said;
    }
    if (row.adapt) text << " adapt=" << *row.adapt;
    for (std::size_t i = 0; i < kThresholds.size(); ++i) {
      if (const auto value = recipe.thresholds.values[i])
        text << ' ' << kThresholds[i].name << '=' << threshold_text(*value);
    }
    text << '\n';
  }
  return text.str();
}

}  // namespace gc3::select
