// A row of a selection table: the calls it serves, and how to get the program that serves them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// The properties of a call that the choice of its program depends on. `size`: bytes of the largest buffer of any rank.
struct CallShape {
  model::CollectiveKind kind = model::CollectiveKind::allreduce;
  std::uint32_t ranks = 0;
  std::uint64_t size = 0;
  bool in_place = false;
  std::uint32_t root = 0;
  std::uint32_t nodes = 1;                                       // hosts
  std::uint32_t ranks_per_node = 0;                              // on each host; 0: not the same number on all
  std::shared_ptr<const std::vector<std::uint32_t>> order = {};  // host by host; null: that is by their numbers
  double skew = 1;                                // of blocks of different lengths: the longest, divided by the mean
  TransportKind transport = TransportKind::none;  // between the hosts
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

struct Row {
  model::CollectiveKind kind = model::CollectiveKind::allreduce;
  std::uint32_t first_ranks = 1;
  std::optional<std::uint32_t> last_ranks = {};  // none: no end
  std::uint64_t first_size = 0;
  std::optional<std::uint64_t> end_size = {};  // the first size that is too large
  std::optional<bool> in_place = {};           // none: both modes
  std::optional<std::uint32_t> root = {};      // none: any
  std::uint32_t first_nodes = 1;
  std::optional<std::uint32_t> last_nodes = {};
  // 0: wherever the ranks are; else only as many ranks on each host, renamed if they are not in blocks.
  std::uint32_t first_per_node = 0;
  std::optional<std::uint32_t> last_per_node = {};
  std::optional<TransportKind> transport = {};  // between the hosts; none: any
  double first_skew = 1;
  std::optional<double> end_skew = {};  // the first skew that is too large
  std::string name = {};                // of a custom collective, as those of CallShape
  std::string condition = {};
  std::shared_ptr<const Recipe> recipe;
  std::optional<bool> adapt =
      {};              // whether a better program is learned while calls run; none: as the communicator says
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

 private:
  struct Key;
  static const Key kKeys[];
  bool renames(const CallShape& call) const;
  bool in_blocks(const CallShape& call) const;
};

// "5 to 7 ranks"; last = none: no end.
std::string ranks_text(std::uint32_t first, std::optional<std::uint32_t> last);
// "64 KiB to less than 2 MiB"; `end` is the first size that is too large, none: no end.
std::string sizes_text(std::uint64_t first, std::optional<std::uint64_t> end);

}  // namespace gc3::select
