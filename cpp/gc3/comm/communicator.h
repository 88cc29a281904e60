// The communicator that every caller enters: C++ programs by gc3.h, Python by the bindings.
//
// A call goes one way. The caller describes this rank's buffers once. `shape` checks them and makes the key of the
// call. The selection finds the row for the key. The row's recipe gives the program on its first use; it is proven and
// made ready once. The engine runs it.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"
#include "gc3/runtime/core/progress.h"
#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/select/selection.h"

namespace gc3::comm {

using cpu::ProcessProgram;
using model::CollectiveKind;
using Interrupted = cpu::Communicator::Interrupted;
using Ready = std::shared_ptr<ProcessProgram>;

// A call of a built-in collective, as this rank makes it. `count`: elements per block, see model/collective.h.
struct Call {
  CollectiveKind kind = CollectiveKind::allreduce;
  const void* input = nullptr;  // null where the collective gives this rank none
  void* output = nullptr;
  std::size_t count = 0;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  std::uint32_t root = 0;
  model::Factor factor = {};  // of premulsum

  cpu::RankCall buffers() const { return {input, output, count, type, op, factor}; }
};

// What a collective asks of the buffers of one rank.
struct Signature {
  std::uint32_t input_blocks = 0;
  std::uint32_t output_blocks = 0;
  std::uint32_t largest_blocks = 0;                    // of any rank's buffer
  std::optional<model::Collective::Alias> alias = {};  // none: the collective cannot be in place
};

// Calls from several threads run one after the other. After a failure that concerns other ranks every later call fails
// for the same reason.
class Communicator {
 public:
  // Collective: meets the other ranks.
  static Result<std::unique_ptr<Communicator>> init(const core::Meeting& meeting,
                                                    const cpu::Communicator::Options& options,
                                                    select::Selection selection) {
    return init(meeting, options, selection, selection);
  }
  // The same with the rows `kept` if all ranks have made the same offer (options), else with `selection`.
  static Result<std::unique_ptr<Communicator>> init(const core::Meeting& meeting,
                                                    const cpu::Communicator::Options& options,
                                                    select::Selection selection, select::Selection kept);
  // Finishes the calls that were started, and closes it; in a forked process it gives nothing back.
  ~Communicator();

  std::uint32_t rank() const { return core_->rank(); }
  std::uint32_t size() const { return core_->size(); }
  // Whether it is open, and this process no fork of the one that made it.
  Status usable() const;
  // An error if a rank's process is no longer of this user: its data may be anybody's.
  Status check_users() const;

  // What a collective asks of this rank.
  Result<const Signature*> signature(CollectiveKind kind, std::uint32_t root) const;
  // The key of calls of `count` elements per block.
  Result<select::CallShape> shape(CollectiveKind kind, std::size_t count, model::DataType type, bool in_place,
                                  std::uint32_t root) const;
  // The key of a call with buffers on whatever device: they must be there, and in place or apart.
  Result<select::CallShape> shape(const Call& call) const;
  // The row that serves calls with a key, with reasons. `text` names the call, if the caller knows more of it.
  Result<select::Explanation> explain(const select::CallShape& shape, std::string text = {}) const;

  // The program that serves calls with a key. It is compiled, proven and made ready when it is first asked for.
  Result<ProcessProgram*> program(const select::CallShape& shape);
  // What serves calls with a key on another engine, which makes the program ready itself: recipe and proven program.
  struct Recipe {
    std::shared_ptr<const select::Recipe> recipe;
    select::CallShape shape;
    Result<ir::Program> make() const;
  };
  Result<Recipe> recipe(const select::CallShape& shape) const;
  // Makes a proven program ready that no row names; the same program gives the same object.
  Result<Ready> prepare(const ir::Program& program, std::uint32_t slots, std::uint64_t slot_bytes) {
    return core_->prepare(program, slots, slot_bytes);
  }

  // Collective, all of them, and in turn after the calls that were started.
  Status run(const Call& call, const Interrupted& interrupted = {});
  Status run(ProcessProgram& program, const cpu::RankCall& call, const Interrupted& interrupted = {});
  Status barrier(const Interrupted& interrupted = {});
  Result<std::vector<double>> time(ProcessProgram& program, const cpu::RankCall& call, std::uint32_t warmup,
                                   std::uint32_t iterations, const Interrupted& interrupted = {});
  Result<cpu::Recording> record(ProcessProgram& program, const cpu::RankCall& call, std::size_t most,
                                const Interrupted& interrupted = {});
  // None for a rank that gives no color. The new communicator has the rows of this one.
  Result<std::unique_ptr<Communicator>> split(std::optional<std::uint32_t> color, std::int64_t key,
                                              const Interrupted& interrupted = {});
  // Collective among `ranks` alone, which become ranks 0, 1, ... of the new communicator; it has the rows of this one.
  // Calls of this communicator may be under way. `name` stands in its error messages; no timeout: that of this one.
  Result<std::unique_ptr<Communicator>> group(const std::vector<std::uint32_t>& ranks, std::string name = {},
                                              std::optional<double> timeout_s = {},
                                              const Interrupted& interrupted = {});
  // Lets a proven program serve the calls of its collective with sizes from `first` to below `end` bytes, before any
  // other row. `source` and `text` name the row and the program.
  Status load(ir::Program program, std::uint64_t first, std::optional<std::uint64_t> end, std::string source,
              std::string text, const Interrupted& interrupted = {});

  // A call that goes on while the program does something else; its buffers belong to it until it is done. What makes
  // no sense is an error at once.
  Result<std::shared_future<Status>> start(const Call& call);
  // Whether a call that was started is not done yet.
  bool busy() const { return progress_.busy(); }
  // Waits for the calls that were started, whether they go well or not.
  void settle(const Interrupted& interrupted = {});
  // An error if nobody will ever finish that call: a fork has none of the threads that do so.
  Status check_goes_on(const std::shared_future<Status>& done) const;
  // Waits for one of them, which goes on; an interrupt makes the calls of all ranks fail.
  void wait(const std::shared_future<Status>& done, const Interrupted& interrupted);

  // Memory that all ranks can read.
  Result<std::shared_ptr<std::uint8_t>> allocate(std::uint64_t bytes);
  // Makes the calls of all ranks fail, the one under way included. From any thread. In a fork it does nothing: the
  // calls are the parent's.
  void abort() {
    if (here()) core_->abort();
  }
  // Local: finishes the calls that were started, and leaves.
  void close(const Interrupted& interrupted = {});

 private:
  struct Remembered {
    select::CallShape shape;
    ProcessProgram* program = nullptr;
  };

  Communicator(std::unique_ptr<cpu::Communicator> core, select::Selection selection);
  bool here() const;
  template <class Work>
  auto in_turn(const Interrupted& interrupted, Work work) -> decltype(work());

  std::unique_ptr<cpu::Communicator> core_;
  pid_t process_;
  std::atomic<bool> closed_ = false;
  // By kind, and by whether this rank is the root; none where there are more ranks than the collective allows.
  std::array<std::array<std::optional<Signature>, 2>, model::kCollectiveNames.size()> signatures_;
  mutable std::mutex mutex_;  // of the next three
  select::Selection selection_;
  std::map<std::tuple<std::shared_ptr<const select::Recipe>, std::uint32_t, bool>, Ready> ready_;  // also by root, mode
  std::array<Remembered, 64> remembered_;  // what recent calls have found, by a hash of their keys
  core::Progress progress_;                // the last: what it still does needs the rest
};

}  // namespace gc3::comm
