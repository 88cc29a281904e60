#include "gc3/runtime/select/selection.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

#include "gc3/base/errors/runtime.h"
#include "gc3/base/sha256.h"

namespace gc3::select {

std::string Explanation::str() const {
  std::string text = call + ": " + row->recipe->text + "\n  chosen by " + row->source;
  if (!row->note.empty()) text += ": " + row->note;
  for (const auto& [source, why] : passed_over) text += "\n  not " + source + ": " + why;
  if (!elsewhere.empty()) text += "\n  on other memory: " + elsewhere;
  if (!arrays.empty()) text += "\n  several arrays: " + arrays;
  if (!one_sided.empty()) text += "\n  on registered memory: " + one_sided;
  if (!processes.empty()) text += "\n  between processes: " + processes;
  if (!network.empty()) text += "\n  between hosts: " + network;
  if (!waits.empty()) text += "\n  a rank that waits " + waits;
  if (!learned.empty()) text += "\n  learned: " + learned;
  if (!devices.empty()) text += "\n  between devices: " + devices;
  return text;
}

Selection::Selection(std::vector<Row> rows) {
  rows_.reserve(rows.size());
  for (Row& row : rows) rows_.push_back(std::make_shared<const Row>(std::move(row)));
}

void Selection::put_first(Row row) { rows_.insert(rows_.begin(), std::make_shared<const Row>(std::move(row))); }

const Row* Selection::find(const CallShape& call) const {
  for (const std::shared_ptr<const Row>& row : rows_) {
    if (row->serves(call)) return row.get();
  }
  return nullptr;
}

const Row* Selection::find_messages(const CallShape& call) const {
  for (const std::shared_ptr<const Row>& row : rows_) {
    if (!row->recipe->lower && row->serves(call)) return row.get();
  }
  return find(call);
}

std::uint64_t Selection::digest() const {
  if (rows_.empty()) return 0;
  Sha256 all;
  for (const std::shared_ptr<const Row>& row : rows_) row->add_to(all);
  const Digest found = all.finish();
  std::uint64_t word = 0;
  std::memcpy(&word, found.data(), sizeof word);
  return std::max<std::uint64_t>(word, 1);
}

std::vector<std::shared_ptr<const Row>> Selection::near(const CallShape& call) const {
  std::vector<std::pair<int, std::shared_ptr<const Row>>> found;
  for (const std::shared_ptr<const Row>& row : rows_) {
    CallShape other = call;
    const auto& [sizes, skews] = std::tie(row->limits.size, row->limits.skew);
    other.skew = std::max(call.skew, skews.first);
    other.size = std::max(call.size, sizes.first);
    if (sizes.last && other.size >= *sizes.last) other.size = *sizes.last - 1;
    if (skews.last && other.skew >= *skews.last) other.skew = skews.first;
    if (!row->serves(other)) continue;
    const auto powers = [](std::uint64_t size) { return static_cast<int>(std::bit_width(size)); };
    const int away = std::abs(powers(other.size) - powers(call.size));
    found.emplace_back(row->serves(call) ? -1 : away, row);
  }
  std::ranges::stable_sort(found, {}, &std::pair<int, std::shared_ptr<const Row>>::first);
  std::vector<std::shared_ptr<const Row>> rows;
  for (auto& each : found) rows.push_back(std::move(each.second));
  return rows;
}

Result<Explanation> Selection::explain(const CallShape& call, std::string text) const {
  Explanation found{text.empty() ? call.describe() : std::move(text), nullptr, {}};
  for (; found.number < rows_.size(); ++found.number) {
    const std::shared_ptr<const Row>& row = rows_[found.number];
    if (row->kind != call.kind || row->name != call.name || (call.nodes == 1 && row->limits.nodes.first > 1))
      continue;  // of no interest on one host
    if (row->serves(call)) {
      found.row = row;
      const Row* const other = row->recipe->lower ? find_messages(call) : row.get();
      if (other != row.get()) found.elsewhere = other->recipe->text + ", by " + other->source;
      return found;
    }
    found.passed_over.emplace_back(row->source, row->misfit(call));
  }
  Diagnostic problem(ErrorCode::BadTable, "no row serves " + call.describe());
  for (const auto& [source, why] : found.passed_over) problem.note(source + ": " + why);
  if (call.kind == model::CollectiveKind::custom) {
    problem.note("`gc3 tune PATH.py:FUNCTION --ranks " + std::to_string(call.ranks) +
                 "` makes rows from an algorithm for it, and comm.load(program) serves it with a program");
  }
  return problem;
}

}  // namespace gc3::select
