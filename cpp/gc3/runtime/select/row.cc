#include "gc3/runtime/select/row.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <utility>

#include "gc3/model/symmetry.h"

namespace gc3::select {
namespace {

// The exact size, in the largest unit that divides it.
std::string size_text(std::uint64_t size) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  for (; size != 0 && size % 1024 == 0 && unit < 3; ++unit) size /= 1024;
  return std::to_string(size) + kUnits[unit];
}

// "2 to 4 hosts"; `rest` follows the plural.
std::string range_text(const Counts& range, const std::string& what, const std::string& rest = "") {
  const std::string low = std::to_string(range.first);
  if (!range.last) return low + " or more " + what + "s" + rest;
  return low + (*range.last > range.first ? " to " + std::to_string(*range.last) : "") + " " + what +
         (*range.last > 1 ? "s" : "") + rest;
}

std::string skew_text(double skew) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", skew);
  return text.data();
}

std::string end_text(const Skews& skew) { return skew.last ? " to less than " + skew_text(*skew.last) : " or more"; }

// The name of the collective of a row or call.
template <class T>
std::string collective_text(const T& of) {
  return of.kind == model::CollectiveKind::custom ? of.name : std::string(name_of(of.kind));
}

const char* mode_text(bool in_place) { return in_place ? "in place" : "out of place"; }

// What a limit admits, and whether it holds another one.
template <class T, int least, bool closed>
bool serves(const Range<T, least, closed>& limit, T value, const Row&, const CallShape&) {
  return limit.admits(value);
}
template <class T>
bool serves(const std::optional<T>& limit, T value, const Row&, const CallShape&) {
  return !limit || *limit == value;
}
bool serves(const CountsInBlocks& limit, std::uint32_t value, const Row& row, const CallShape& call) {
  return !limit || (limit->admits(value) && row.in_blocks(call));
}

template <class T, int least, bool closed>
bool covers(const Range<T, least, closed>& limit, const Range<T, least, closed>& of_other, const Row&, const Row&) {
  return limit.holds(of_other);
}
template <class T>
bool covers(const std::optional<T>& limit, const std::optional<T>& of_other, const Row&, const Row&) {
  return !limit || limit == of_other;
}
bool covers(const CountsInBlocks& limit, const CountsInBlocks& of_other, const Row& row, const Row& other) {
  return !limit || (of_other && limit->holds(*of_other) && (row.recipe->renames || !other.recipe->renames));
}

// Values as text, from which the same are read.
template <class T>
std::string text_of(T number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}
std::string text_of(bool flag) { return flag ? "1" : "0"; }
std::string text_of(TransportKind kind) { return std::string(name_of(kind)); }
template <class T, int least, bool closed>
std::string text_of(const Range<T, least, closed>& range) {
  return text_of(range.first) + ":" + (range.last ? text_of(*range.last) : "-");
}
template <class T>
std::string text_of(const std::optional<T>& limit) {
  return text_of(*limit);
}

// The whole word; a stream would take a negative number for a large one.
template <class T>
bool read(std::string_view word, T& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}
bool read(std::string_view word, bool& flag) {
  flag = word == "1";
  return word == "1" || word == "0";
}
bool read(std::string_view word, TransportKind& kind) {
  kind = parse_transport(word).value_or(TransportKind::none);
  return kind != TransportKind::none;
}
template <class T, int least, bool closed>
bool read(std::string_view word, Range<T, least, closed>& range) {
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos || !read(word.substr(0, colon), range.first) || !(range.first >= least))
    return false;
  const std::string_view end = word.substr(colon + 1);
  return end == "-" || (read(end, range.last.emplace()) && *range.last >= range.first);
}
template <class T>
bool read(std::string_view word, std::optional<T>& limit) {
  return read(word, limit.emplace());
}

const RowKey kKeys[] = {
#define GC3_ROW_KEY(name, Limit, Value, initial, ...)                                                       \
  {#name,                                                                                                   \
   #Limit,                                                                                                  \
   [](const Row& row, const CallShape& call) { return serves(row.limits.name, call.name, row, call); },     \
   [](const Row& row, const Row& other) { return covers(row.limits.name, other.limits.name, row, other); }, \
   [](const Limits& limits) { return limits.name == Limit() ? std::string() : text_of(limits.name); },      \
   [](std::string_view text, Limits& limits) { return read(text, limits.name); },                           \
   __VA_ARGS__},
#include "gc3/runtime/select/row_keys.def"
};

}  // namespace

std::span<const RowKey> row_keys() { return kKeys; }

std::shared_ptr<const Recipe> recipe_of(ir::ClassProgram program, std::string text) {
  auto copy = [program = std::move(program)](const CallShape&) -> Result<ir::ClassProgram> { return program; };
  return std::make_shared<const Recipe>(Recipe{std::move(copy), std::move(text)});
}

Limits limits_of(const model::Collective& does) {
  Limits limits;
  limits.ranks = {does.ranks(), does.ranks()};
  limits.in_place = does.in_place();
  if (model::is_rooted(does.kind())) limits.root = does.root();
  return limits;
}

std::string ranks_text(std::uint32_t first, std::optional<std::uint32_t> last) {
  const std::string low = std::to_string(first);
  if (!last) return first > 1 ? low + " ranks and more" : "any number of ranks";
  if (*last > first) return low + " to " + std::to_string(*last) + " ranks";
  return low + (first == 1 ? " rank" : " ranks");
}

std::string sizes_text(std::uint64_t first, std::optional<std::uint64_t> end) {
  if (!end) return first == 0 ? "any size" : size_text(first) + " and more";
  return (first == 0 ? "" : size_text(first) + " to ") + "less than " + size_text(*end);
}

double CallShape::skew_of(std::span<const std::uint64_t> counts) {
  double all = 0;
  for (const std::uint64_t count : counts) all += static_cast<double>(count);
  if (all == 0) return 1;
  const auto longest = static_cast<double>(*std::ranges::max_element(counts));
  return longest * static_cast<double>(counts.size()) / all;
}

std::string CallShape::describe() const {
  return collective_text(*this) + " of " + size_text(size) + " on " + ranks_text(ranks, ranks) + ", " +
         mode_text(in_place) +
         (nodes < 2             ? ""
          : ranks_per_node == 0 ? ", on " + range_text({nodes, nodes}, "host") + " with different numbers of ranks"
                                : ", on " + range_text({nodes, nodes}, "host")) +
         (transport == TransportKind::none ? "" : ", over " + std::string(name_of(transport))) +
         (order == nullptr ? "" : ", whose ranks are not in blocks") + (skew == 1 ? "" : ", skew " + skew_text(skew));
}

bool Row::renames(const CallShape& call) const {
  return call.order != nullptr && recipe->renames && model::is_symmetric(kind);
}

bool Row::serves(const CallShape& call) const {
  return kind == call.kind && name == call.name && condition == call.condition &&
         std::ranges::all_of(kKeys, [&](const RowKey& key) { return key.serves(*this, call); });
}

std::string Row::misfit(const CallShape& call) const {
  if (kind != call.kind || name != call.name) return "for " + collective_text(*this);
  if (condition != call.condition) {
    constexpr std::size_t kShown = 12;
    return "for a '" + name + "' of another condition, " + condition.substr(0, kShown) +
           ", where that of the call is " + call.condition.substr(0, kShown);
  }
  const RowKey* const key = std::ranges::find_if(kKeys, [&](const RowKey& each) { return !each.serves(*this, call); });
  if (key == std::end(kKeys)) return "";
  return "for " + (key->reason == nullptr ? key->told(*this) : key->reason(*this, call));
}

std::string Row::unmade(const CallShape& call) const {
  constexpr double kSkewed = 2;  // below it blocks are about equal
  if (!limits.ranks.last) return "numbers of ranks";
  if (!limits.size.last) return "sizes";
  return call.skew >= kSkewed && limits.skew == Skews() ? "skews" : "";
}

bool Row::covers(const Row& other) const {
  return kind == other.kind && name == other.name && condition == other.condition &&
         std::ranges::all_of(kKeys, [&](const RowKey& key) { return key.covers(*this, other); });
}

std::string Row::describe() const {
  std::string text = collective_text(*this);
  for (const RowKey& key : kKeys) {
    const std::string limit = key.told(*this);
    if (!limit.empty()) text += ", " + limit;
  }
  if (adapt) text += *adapt ? ", adapts" : ", never adapts";
  return text;
}

void Row::add_to(Sha256& all) const {
  // A new member does not compile before it stands here.
  const auto& [kind_, name_, condition_, limits_, recipe_, adapt_, source_, note_] = *this;
  std::string text = std::string(name_of(kind_)) + '\0' + name_ + '\0' + condition_ + '\0';
  for (const RowKey& key : kKeys) text += key.text(limits_) + '\0';
  text += adapt_ ? text_of(*adapt_) : "";
  all.update(text + '\0' + std::to_string(recipe_->text.size()) + '\0' + recipe_->text);
}

std::string Row::renaming(const CallShape& call) const {
  if (!renames(call)) return "";
  std::string text = "; the program takes ranks host by host:";
  for (const std::uint32_t r : *call.order) text.append(1, ' ').append(std::to_string(r));
  return text;
}

}  // namespace gc3::select
