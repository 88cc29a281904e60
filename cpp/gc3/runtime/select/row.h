// A row of a selection table: the calls it serves, and how to get the program that serves them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/base/sha256.h"
#include "gc3/base/thresholds.h"
#include "gc3/base/transport_kind.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/direct/program.h"
#include "gc3/ir/program.h"
#include "gc3/model/collective.h"

namespace gc3::select {

// The limits that rows can have. A range has no end if there is no last value, which is the first that is too large
// unless the range is closed.
template <class T, int least, bool closed>
struct Range {
  T first = least;
  std::optional<T> last = {};

  bool operator==(const Range&) const = default;
  bool admits(T value) const { return value >= first && (!last || value < *last || (closed && value == *last)); }
  // Whether it admits all that the other one does.
  bool holds(const Range& other) const {
    return other.first >= first && (!last || (other.last && *other.last <= *last));
  }
};
using Counts = Range<std::uint32_t, 1, true>;
using Sizes = Range<std::uint64_t, 0, false>;
using Skews = Range<double, 1, false>;
using Flag = std::optional<bool>;  // none: both
using Number = std::optional<std::uint32_t>;
using Transport = std::optional<TransportKind>;
using CountsInBlocks = std::optional<Counts>;  // with a limit only ranks that the program finds in blocks

// The properties of a call that the choice of its program depends on. `size`: bytes of the largest buffer of any rank.
struct CallShape {
  model::CollectiveKind kind = model::CollectiveKind::allreduce;
#define GC3_ROW_KEY(name, Limit, Value, initial, ...) Value name = initial;
#include "gc3/runtime/select/row_keys.def"
  std::shared_ptr<const std::vector<std::uint32_t>> order = {};  // host by host; null: that is by their numbers
  // Of a custom collective, see model::Collective: ranks that use one name for different conditions differ here.
  std::string name = {};
  std::string condition = {};

  bool operator==(const CallShape&) const = default;
  // The skew of counts; 1 if all are 0.
  static double skew_of(std::span<const std::uint64_t> counts);
  // "allreduce of 4 KiB on 2 ranks, in place".
  std::string describe() const;
};

// How to get a program, and the FIFOs to run it with. Rows with the same program share one recipe.
struct Recipe {
  // The only way from a call to a compiled program: reads a file, or calls the compiler. The program depends only on
  // the call's number of ranks, mode and root, and on where the ranks are. As readers return it.
  std::function<Result<ir::ClassProgram>(const CallShape& call)> make;
  std::string text;         // the program, as text
  std::uint32_t slots = 0;  // 0: the engine's choice
  std::uint64_t slot_bytes = 0;
  ThresholdChanges thresholds = {};  // none: those of the job
  bool renames = false;              // `make` renames the ranks of a program of a symmetric collective by call.order
  // Makes the one-sided form of a program that `make` has made; none: calls are served by messages.
  std::function<Result<ir::direct::Program>(const ir::Program& program)> lower = {};
};

// The recipe of a program that is there already.
std::shared_ptr<const Recipe> recipe_of(ir::ClassProgram program, std::string text);

// What a row demands of the calls of its collective.
struct Limits {
#define GC3_ROW_KEY(name, Limit, ...) Limit name = {};
#include "gc3/runtime/select/row_keys.def"

  bool operator==(const Limits&) const = default;
};

// The calls of any size that a program of the collective serves.
Limits limits_of(const model::Collective& does);

struct Row {
  model::CollectiveKind kind = model::CollectiveKind::allreduce;
  std::string name = {};  // of a custom collective, as those of CallShape
  std::string condition = {};
  Limits limits = {};
  std::shared_ptr<const Recipe> recipe;
  // Whether a better program is learned while calls run; none: as the communicator says.
  std::optional<bool> adapt = {};
  std::string source;  // the file and line of the row
  std::string note;    // the reason for the row

  bool serves(const CallShape& call) const;
  // Why the row does not serve a call of its collective; empty if it does.
  std::string misfit(const CallShape& call) const;
  // For what of a call that it serves it was not made, since it names no end of it: "sizes"; empty: for all.
  std::string unmade(const CallShape& call) const;
  // Whether it serves all calls that the other one does.
  bool covers(const Row& other) const;
  // The calls that it serves: "allreduce, 2 to 4 ranks, any size, in place".
  std::string describe() const;
  // In which order the program takes the ranks of a call; empty: in the order of their numbers.
  std::string renaming(const CallShape& call) const;
  // Its part of the digest of a table.
  void add_to(Sha256& all) const;
  // Whether the program finds the ranks in blocks, perhaps because it renames them.
  bool in_blocks(const CallShape& call) const { return call.order == nullptr || renames(call); }

 private:
  bool renames(const CallShape& call) const;
};

// A member of Limits, for all that treats them alike.
struct RowKey {
  std::string_view name;
  std::string_view limit;  // the name of its type
  bool (*serves)(const Row&, const CallShape&);
  bool (*covers)(const Row&, const Row& other);
  std::string (*text)(const Limits&);  // which `read` reads; empty: no limit
  bool (*read)(std::string_view text, Limits&);
  std::string (*told)(const Row&);
  std::string (*reason)(const Row&, const CallShape&) = nullptr;
};
std::span<const RowKey> row_keys();

// "5 to 7 ranks"; last = none: no end.
std::string ranks_text(std::uint32_t first, std::optional<std::uint32_t> last);
// "64 KiB to less than 2 MiB"; `end` is the first size that is too large, none: no end.
std::string sizes_text(std::uint64_t first, std::optional<std::uint64_t> end);

}  // namespace gc3::select
