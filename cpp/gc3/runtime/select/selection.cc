#include "gc3/runtime/select/selection.h"

#include "gc3/base/errors/runtime.h"

namespace gc3::select {

std::string Explanation::str() const {
  std::string text = call + ": " + row->recipe->text + "\n  chosen by " + row->source;
  if (!row->note.empty()) text += ": " + row->note;
  for (const auto& [source, why] : passed_over) text += "\n  not " + source + ": " + why;
  if (!arrays.empty()) text += "\n  several arrays: " + arrays;
  if (!processes.empty()) text += "\n  between processes: " + processes;
  if (!network.empty()) text += "\n  between hosts: " + network;
  if (!waits.empty()) text += "\n  a rank that waits " + waits;
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

Result<Explanation> Selection::explain(const CallShape& call, std::string text) const {
  Explanation found{text.empty() ? call.describe() : std::move(text), nullptr, {}};
  for (const std::shared_ptr<const Row>& row : rows_) {
    if (row->kind != call.kind || (call.nodes == 1 && row->first_nodes > 1)) continue;  // of no interest on one host
    if (row->serves(call)) {
      found.row = row;
      return found;
    }
    found.passed_over.emplace_back(row->source, row->misfit(call));
  }
  Diagnostic problem(ErrorCode::BadTable, "no row serves " + call.describe());
  for (const auto& [source, why] : found.passed_over) problem.note(source + ": " + why);
  return problem;
}

}  // namespace gc3::select
