#include "gc3/runtime/select/row.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>

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
std::string range_text(std::uint32_t first, std::optional<std::uint32_t> last, const std::string& what,
                       const std::string& rest = "") {
  const std::string low = std::to_string(first);
  if (!last) return low + " or more " + what + "s" + rest;
  return low + (*last > first ? " to " + std::to_string(*last) : "") + " " + what + (*last > 1 ? "s" : "") + rest;
}

bool within(std::uint32_t value, std::uint32_t first, std::optional<std::uint32_t> last) {
  return value >= first && (!last || value <= *last);
}

std::string skew_text(double skew) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", skew);
  return text.data();
}

std::string skews_text(double first, std::optional<double> end) {
  return skew_text(first) + (end ? " to less than " + skew_text(*end) : " or more");
}

// Whether a range holds another one; no last: no end.
template <class T>
bool holds(T first, std::optional<T> last, T other_first, std::optional<T> other_last) {
  return other_first >= first && (!last || (other_last && *other_last <= *last));
}

// The name of the collective of a row or call.
template <class T>
std::string collective_text(const T& of) {
  return of.kind == model::CollectiveKind::custom ? of.name : std::string(name_of(of.kind));
}

const char* mode_text(bool in_place) { return in_place ? "in place" : "out of place"; }

}  // namespace

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
          : ranks_per_node == 0 ? ", on " + range_text(nodes, nodes, "host") + " with different numbers of ranks"
                                : ", on " + range_text(nodes, nodes, "host")) +
         (transport == TransportKind::none ? "" : ", over " + std::string(name_of(transport))) +
         (order == nullptr ? "" : ", whose ranks are not in blocks") + (skew == 1 ? "" : ", skew " + skew_text(skew));
}

bool Row::renames(const CallShape& call) const {
  return call.order != nullptr && recipe->renames && model::is_symmetric(kind);
}

// Whether the program finds the ranks in blocks, perhaps because it renames them.
bool Row::in_blocks(const CallShape& call) const { return call.order == nullptr || renames(call); }

// A key of rows: which calls its limit admits, and how a row tells it. The first that does not fit is the reason given.
struct Row::Key {
  bool (*serves)(const Row&, const CallShape&);
  bool (*covers)(const Row&, const Row& other);
  std::string (*limit)(const Row&);                               // empty: the row limits nothing here
  std::string (*reason)(const Row&, const CallShape&) = nullptr;  // for a call that does not fit; null: the limit
};

// Members stand in row.h, all else of a key here. The order is that of reasons and descriptions.
const Row::Key Row::kKeys[] = {
    {[](const Row& row, const CallShape& call) { return row.kind == call.kind && row.name == call.name; },
     [](const Row& row, const Row& other) { return row.kind == other.kind && row.name == other.name; },
     [](const Row& row) { return collective_text(row); }},
    {[](const Row& row, const CallShape& call) { return row.condition == call.condition; },
     [](const Row& row, const Row& other) { return row.condition == other.condition; },
     [](const Row&) { return std::string(); },
     [](const Row& row, const CallShape& call) {
       constexpr std::size_t kShown = 12;
       return "a '" + row.name + "' of another condition, " + row.condition.substr(0, kShown) + ", where that of the " +
              "call is " + call.condition.substr(0, kShown);
     }},
    {[](const Row& row, const CallShape& call) { return within(call.ranks, row.first_ranks, row.last_ranks); },
     [](const Row& row, const Row& other) {
       return holds(row.first_ranks, row.last_ranks, other.first_ranks, other.last_ranks);
     },
     [](const Row& row) { return ranks_text(row.first_ranks, row.last_ranks); }},
    {[](const Row& row, const CallShape& call) {
       return call.size >= row.first_size && (!row.end_size || call.size < *row.end_size);
     },
     [](const Row& row, const Row& other) {
       return holds(row.first_size, row.end_size, other.first_size, other.end_size);
     },
     [](const Row& row) { return sizes_text(row.first_size, row.end_size); }},
    {[](const Row& row, const CallShape& call) { return !row.in_place || *row.in_place == call.in_place; },
     [](const Row& row, const Row& other) { return !row.in_place || row.in_place == other.in_place; },
     [](const Row& row) { return std::string(row.in_place ? mode_text(*row.in_place) : ""); },
     [](const Row& row, const CallShape&) { return std::string("calls ") + mode_text(*row.in_place); }},
    {[](const Row& row, const CallShape& call) { return !row.root || *row.root == call.root; },
     [](const Row& row, const Row& other) { return !row.root || row.root == other.root; },
     [](const Row& row) { return row.root ? "root " + std::to_string(*row.root) : ""; }},
    {[](const Row& row, const CallShape& call) { return within(call.nodes, row.first_nodes, row.last_nodes); },
     [](const Row& row, const Row& other) {
       return holds(row.first_nodes, row.last_nodes, other.first_nodes, other.last_nodes);
     },
     [](const Row& row) {
       return row.first_nodes > 1 || row.last_nodes ? range_text(row.first_nodes, row.last_nodes, "host") : "";
     }},
    {[](const Row& row, const CallShape& call) {
       if (row.first_per_node == 0) return true;
       return within(call.ranks_per_node, row.first_per_node, row.last_per_node) && row.in_blocks(call);
     },
     [](const Row& row, const Row& other) {
       return holds(row.first_per_node, row.last_per_node, other.first_per_node, other.last_per_node) &&
              (row.first_per_node == 0 || row.recipe->renames || !other.recipe->renames);
     },
     [](const Row& row) {
       return row.first_per_node == 0 ? "" : range_text(row.first_per_node, row.last_per_node, "rank", " on each");
     },
     [](const Row& row, const CallShape& call) -> std::string {
       if (call.ranks_per_node == 0) return "as many ranks on each host";
       if (!row.in_blocks(call)) return "ranks in blocks";
       return range_text(row.first_per_node, row.last_per_node, "rank", " on each host");
     }},
    {[](const Row& row, const CallShape& call) { return !row.transport || *row.transport == call.transport; },
     [](const Row& row, const Row& other) { return !row.transport || row.transport == other.transport; },
     [](const Row& row) { return row.transport ? "over " + std::string(name_of(*row.transport)) : ""; },
     [](const Row& row, const CallShape&) { return "messages over " + std::string(name_of(*row.transport)); }},
    {[](const Row& row, const CallShape& call) {
       return call.skew >= row.first_skew && (!row.end_skew || call.skew < *row.end_skew);
     },
     [](const Row& row, const Row& other) {
       return holds(row.first_skew, row.end_skew, other.first_skew, other.end_skew);
     },
     [](const Row& row) {
       return row.first_skew > 1 || row.end_skew ? "skew " + skews_text(row.first_skew, row.end_skew) : "";
     },
     [](const Row& row, const CallShape&) {
       const std::string low = skew_text(row.first_skew);
       if (!row.end_skew) return "a skew of " + low + " and more";
       return "a skew of " + (row.first_skew > 1 ? low + " to " : "") + "less than " + skew_text(*row.end_skew);
     }},
};

bool Row::serves(const CallShape& call) const {
  return std::ranges::all_of(kKeys, [&](const Key& key) { return key.serves(*this, call); });
}

std::string Row::misfit(const CallShape& call) const {
  const Key* const key = std::ranges::find_if(kKeys, [&](const Key& each) { return !each.serves(*this, call); });
  if (key == std::end(kKeys)) return "";
  return "for " + (key->reason == nullptr ? key->limit(*this) : key->reason(*this, call));
}

std::string Row::unmade(const CallShape& call) const {
  constexpr double kSkewed = 2;  // below it blocks are about equal
  if (!last_ranks) return "numbers of ranks";
  if (!end_size) return "sizes";
  return call.skew >= kSkewed && first_skew == 1 && !end_skew ? "skews" : "";
}

bool Row::covers(const Row& other) const {
  return std::ranges::all_of(kKeys, [&](const Key& key) { return key.covers(*this, other); });
}

std::string Row::describe() const {
  std::string text;
  for (const Key& key : kKeys) {
    const std::string limit = key.limit(*this);
    if (!limit.empty()) text += (text.empty() ? "" : ", ") + limit;
  }
  if (adapt) text += *adapt ? ", adapts" : ", never adapts";
  return text;
}

void Row::add_to(Sha256& all) const {
  // A new member does not compile before it stands here: then it wants a row of kKeys, too.
  const auto& [kind_, first_ranks_, last_ranks_, first_size_, end_size_, in_place_, root_, first_nodes_, last_nodes_,
               first_per_node_, last_per_node_, transport_, first_skew_, end_skew_, name_, condition_, recipe_, adapt_,
               source_, note_] = *this;
  const auto number = [](auto value) { return value ? static_cast<std::int64_t>(*value) : -1; };
  const std::array<std::int64_t, 14> words{static_cast<std::int64_t>(kind_),
                                           first_ranks_,
                                           number(last_ranks_),
                                           static_cast<std::int64_t>(first_size_),
                                           number(end_size_),
                                           number(in_place_),
                                           number(root_),
                                           first_nodes_,
                                           number(last_nodes_),
                                           first_per_node_,
                                           number(last_per_node_),
                                           number(transport_),
                                           number(adapt_),
                                           static_cast<std::int64_t>(recipe_->text.size())};
  const std::array<double, 2> skews{first_skew_, end_skew_.value_or(0)};
  all.update({reinterpret_cast<const char*>(words.data()), sizeof words});
  all.update({reinterpret_cast<const char*>(skews.data()), sizeof skews});
  all.update(recipe_->text);
  all.update(name_ + '\0' + condition_);
}

std::string Row::renaming(const CallShape& call) const {
  if (!renames(call)) return "";
  std::string text = "; the program takes ranks host by host:";
  for (const std::uint32_t r : *call.order) text.append(1, ' ').append(std::to_string(r));
  return text;
}

}  // namespace gc3::select
