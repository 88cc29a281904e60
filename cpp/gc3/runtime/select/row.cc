#include "gc3/runtime/select/row.h"

#include <algorithm>
#include <array>
#include <cstdio>

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

// "2 to 4 hosts".
std::string range_text(std::uint32_t first, std::optional<std::uint32_t> last, const std::string& what) {
  if (!last) return std::to_string(first) + " or more " + what;
  return std::to_string(first) + (*last > first ? " to " + std::to_string(*last) : "") + " " + what;
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
  return std::string(name_of(kind)) + " of " + size_text(size) + " on " + ranks_text(ranks, ranks) + ", " +
         mode_text(in_place) +
         (nodes < 2             ? ""
          : ranks_per_node == 0 ? ", on " + range_text(nodes, nodes, "hosts") + " with different numbers of ranks"
                                : ", on " + range_text(nodes, nodes, "hosts")) +
         (transport == TransportKind::none ? "" : ", over " + std::string(name_of(transport))) +
         (order == nullptr ? "" : ", whose ranks are not in blocks") + (skew == 1 ? "" : ", skew " + skew_text(skew));
}

bool Row::renames(const CallShape& call) const {
  return call.order != nullptr && recipe->renames && model::is_symmetric(kind);
}

// Whether the program finds the ranks in blocks, perhaps because it renames them.
bool Row::in_blocks(const CallShape& call) const { return call.order == nullptr || renames(call); }

bool Row::serves(const CallShape& call) const {
  return kind == call.kind && call.ranks >= first_ranks && (!last_ranks || call.ranks <= *last_ranks) &&
         call.size >= first_size && (!end_size || call.size < *end_size) && (!in_place || *in_place == call.in_place) &&
         (!root || *root == call.root) && within(call.nodes, first_nodes, last_nodes) &&
         (first_per_node == 0 || (within(call.ranks_per_node, first_per_node, last_per_node) && in_blocks(call))) &&
         (!transport || *transport == call.transport) && call.skew >= first_skew &&
         (!end_skew || call.skew < *end_skew);
}

std::string Row::misfit(const CallShape& call) const {
  if (serves(call)) return "";
  if (kind != call.kind) return "for " + std::string(name_of(kind));
  if (call.ranks < first_ranks || (last_ranks && call.ranks > *last_ranks)) {
    return "for " + ranks_text(first_ranks, last_ranks);
  }
  if (call.size < first_size || (end_size && call.size >= *end_size)) return "for " + sizes_text(first_size, end_size);
  if (in_place && *in_place != call.in_place) return std::string("for calls ") + mode_text(*in_place);
  if (root && *root != call.root) return "for root " + std::to_string(*root);
  if (!within(call.nodes, first_nodes, last_nodes)) return "for " + range_text(first_nodes, last_nodes, "hosts");
  if (first_per_node != 0 && call.ranks_per_node == 0) return "for as many ranks on each host";
  if (first_per_node != 0 && !in_blocks(call)) return "for ranks in blocks";
  if (first_per_node != 0 && !within(call.ranks_per_node, first_per_node, last_per_node))
    return "for " + range_text(first_per_node, last_per_node, "ranks on each host");
  if (transport && *transport != call.transport) return "for messages over " + std::string(name_of(*transport));
  const std::string low = skew_text(first_skew);
  if (!end_skew) return "for a skew of " + low + " and more";
  return "for a skew of " + (first_skew > 1 ? low + " to " : "") + "less than " + skew_text(*end_skew);
}

bool Row::covers(const Row& other) const {
  return kind == other.kind && holds(first_ranks, last_ranks, other.first_ranks, other.last_ranks) &&
         holds(first_size, end_size, other.first_size, other.end_size) && (!in_place || in_place == other.in_place) &&
         (!root || root == other.root) && holds(first_nodes, last_nodes, other.first_nodes, other.last_nodes) &&
         holds(first_per_node, last_per_node, other.first_per_node, other.last_per_node) &&
         (first_per_node == 0 || recipe->renames || !other.recipe->renames) &&
         (!transport || transport == other.transport) && holds(first_skew, end_skew, other.first_skew, other.end_skew);
}

std::string Row::describe() const {
  std::string text =
      std::string(name_of(kind)) + ", " + ranks_text(first_ranks, last_ranks) + ", " + sizes_text(first_size, end_size);
  if (in_place) text += std::string(", ") + mode_text(*in_place);
  if (first_nodes > 1 || last_nodes) text += ", " + range_text(first_nodes, last_nodes, "hosts");
  if (first_per_node != 0) text += ", " + range_text(first_per_node, last_per_node, "ranks on each");
  if (transport) text += ", over " + std::string(name_of(*transport));
  if (first_skew > 1 || end_skew) text += ", skew " + skews_text(first_skew, end_skew);
  if (adapt) text += *adapt ? ", adapts" : ", never adapts";
  if (root) text += ", root " + std::to_string(*root);
  return text;
}

std::string Row::renaming(const CallShape& call) const {
  if (!renames(call)) return "";
  std::string text = "; the program takes ranks host by host:";
  for (const std::uint32_t r : *call.order) text.append(1, ' ').append(std::to_string(r));
  return text;
}

}  // namespace gc3::select
