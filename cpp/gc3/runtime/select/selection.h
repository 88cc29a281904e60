// Chooses the program for a call: rows in the order in which they are tried, of which the first that fits is used.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/select/row.h"

namespace gc3::select {

// The row that serves a call, and why no earlier one of its collective does.
struct Explanation {
  std::string call;  // as text
  std::shared_ptr<const Row> row;
  std::vector<std::pair<std::string, std::string>> passed_over;  // source of a row, and why it does not fit
  std::string elsewhere = {};  // the row for other than registered memory; empty: the same
  std::string arrays = {};     // how many arrays in one call are moved; empty: it is not known to be such a call
  std::string one_sided = {};  // how calls on registered memory are served; empty: by messages
  std::string processes = {};  // how large messages move between processes; empty: unknown
  std::string network = {};    // what carries messages between hosts; empty: all ranks are on one
  std::string waits = {};      // how a rank waits for its peers; empty: unknown
  std::string learned = {};    // what was learned about calls of this class; empty: nothing is learned
  std::string devices = {};    // how calls on device arrays reach the devices of other ranks; empty: there were none
  std::size_t number = 0;      // of the row among all, from 0

  // In a few lines.
  std::string str() const;
};

// Copies share the rows.
class Selection {
 public:
  Selection() = default;
  explicit Selection(std::vector<Row> rows);

  // The row is tried before all others.
  void put_first(Row row);
  // The row that serves a call; null: none.
  const Row* find(const CallShape& call) const;
  // The first without a one-sided form that serves it, or else the first one: that for other than registered memory.
  const Row* find_messages(const CallShape& call) const;
  // Equal in all processes for rows that serve the same calls by programs of the same texts; 0: there are no rows.
  std::uint64_t digest() const;
  // Rows that would serve it if it had another size or skew: first those that serve it, then the nearest in size.
  std::vector<std::shared_ptr<const Row>> near(const CallShape& call) const;
  // The same as `find`, with reasons. `text` names the call, if the caller knows more of it.
  Result<Explanation> explain(const CallShape& call, std::string text = {}) const;

 private:
  std::vector<std::shared_ptr<const Row>> rows_;
};

}  // namespace gc3::select
