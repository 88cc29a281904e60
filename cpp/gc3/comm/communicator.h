// The communicator that all callers use: C++ programs through gc3.h, Python through the bindings.
//
// All calls take the same path. The caller describes this rank's buffers once. `shape` checks them and makes the key of
// the call. The selection finds the row for the key. The row's recipe makes the program on its first use; the program
// is verified and prepared once. The engine runs it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/comm/adaptation.h"
#include "gc3/comm/call.h"
#include "gc3/comm/call_lock.h"
#include "gc3/comm/v_form.h"
#include "gc3/ir/direct/program.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"
#include "gc3/runtime/core/waiting/progress.h"
#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/p2p/messenger.h"
#include "gc3/runtime/select/selection.h"

namespace gc3::direct {
class ProcessJob;
}

namespace gc3::comm {

using cpu::ProcessProgram;
using Interrupted = cpu::Communicator::Interrupted;
using Ready = std::shared_ptr<ProcessProgram>;

// Calls from several threads run one after the other. After a failure that concerns other ranks, all later calls fail
// for the same reason.
// Calls whose programs are found at once.
inline constexpr std::size_t kRemembered = 64;

class Communicator {
 public:
  // Collective: connects to the other ranks.
  static Result<std::unique_ptr<Communicator>> init(const core::Meeting& meeting,
                                                    const cpu::Communicator::Options& options,
                                                    select::Selection selection) {
    return init(meeting, options, std::move(selection), {});
  }
  // The same with the rows `kept` if all ranks have given the same, and there are some, else with `selection`. It
  // learns if all ranks wish the same.
  static Result<std::unique_ptr<Communicator>> init(const core::Meeting& meeting, cpu::Communicator::Options options,
                                                    select::Selection selection, select::Selection kept,
                                                    AdaptOptions adapt = {});
  // Waits for started calls, and closes the communicator; in a forked process it frees nothing.
  ~Communicator();

  std::uint32_t rank() const { return core_->rank(); }
  std::uint32_t size() const { return core_->size(); }
  // See core::Group.
  const core::Group::Placement& placement() const { return core_->placement(); }
  TransportKind transport() const { return core_->transport(); }
  // Fails if the communicator is closed, or this process is a fork of the one that made it.
  Status usable() const;
  // Fails if the process of a rank of this host is no longer of this user, because its data cannot be trusted then, or
  // has ended, because whose it was cannot be known. Takes no lock: calls may be running.
  Status check_users() const;

  // The buffers that a collective needs on this rank.
  Result<const Signature*> signature(CollectiveKind kind, std::uint32_t root) const;
  // The key of calls of `count` elements per block.
  Result<select::CallShape> shape(CollectiveKind kind, std::size_t count, model::DataType type, bool in_place,
                                  std::uint32_t root) const;
  // The same of a custom collective, whose `condition` the caller keeps because it takes long to make.
  Result<select::CallShape> shape(const model::Collective& custom, std::string condition, std::size_t count,
                                  model::DataType type) const;
  // Whether the counts of all ranks are those of a v-form.
  Status check_v(CollectiveKind kind, const std::vector<std::uint64_t>& counts, model::DataType type,
                 std::uint32_t root) const;
  // That of a v-form, by the counts of all ranks as VCall has them.
  Result<select::CallShape> v_shape(CollectiveKind kind, std::span<const std::uint64_t> counts, model::DataType type,
                                    bool in_place, std::uint32_t root) const;
  // The key of a call, whose buffers may be on any device. Fails if one is missing, or if they overlap without being in
  // place.
  Result<select::CallShape> shape(const Call& call) const;
  // The row that serves calls with a key, with reasons. `text` describes the call, if the caller knows more about it.
  Result<select::Explanation> explain(const select::CallShape& shape, std::string text = {}) const;
  // The same for a run of so many arrays at once, whose program is compiled for that.
  Result<select::Explanation> explain_many(const select::CallShape& shape, std::size_t arrays, std::string text) const;

  // The program that serves calls with a key. It is compiled, verified and prepared on the first request.
  Result<ProcessProgram*> program(const select::CallShape& shape);
  // What runs calls with a key; the program itself, or its one-sided form if the row has it.
  using RankEngine = interp::Engine<cpu::RankCall>;
  Result<RankEngine*> engine(const select::CallShape& shape);
  // The same for another engine, which prepares the program itself: the recipe, and `make` for the verified program.
  struct Recipe {
    std::shared_ptr<const select::Recipe> recipe;
    select::CallShape shape;
    bool several_hosts = false;
    Result<ir::ClassProgram> make() const;  // as readers return it
  };
  Result<Recipe> recipe(const select::CallShape& shape) const;
  // Connections to other hosts for such an engine, see cpu/host_carrier.h.
  std::unique_ptr<transport::Carrier> carrier() { return core_->carrier(); }
  // Prepares a verified program that no row names, as readers return it; the same program gives the same object.
  Result<Ready> prepare(const ir::ClassProgram& program, std::uint32_t slots, std::uint64_t slot_bytes,
                        const ThresholdChanges& changes = {}) {
    GC3_CHECK(usable());
    return core_->prepare(program, slots, slot_bytes, changes);
  }
  // The same of a one-sided program; `messages`: of the same algorithm, see direct::ProcessJob.
  Result<std::shared_ptr<direct::ProcessJob>> prepare(const ir::direct::Program& program, Ready messages);

  // All of these are collective, and run after the calls that were started before.
  Status run(const Call& call, const Interrupted& interrupted = {});
  // The v-forms. All ranks give the same counts; GC3-V012 if the program that is selected does not serve them.
  Status run(const VCall& call, const Interrupted& interrupted = {});
  // Several calls, none of which uses what another writes: those of one collective, type, reduction and root are one
  // run of one program.
  Status run(std::span<const Call> calls, const Interrupted& interrupted = {});
  // Before it, where no rank knows all of them: one small exchange. GC3-R025, on every rank, where two ranks disagree.
  Result<VCounts> agree(const VKnown& known, const Interrupted& interrupted = {});
  // The collective of a v-form, with one chunk per block, out of place; an error if it has none.
  Result<model::Collective> v_collective(CollectiveKind kind, std::uint32_t root) const;
  Status run(RankEngine& program, const cpu::RankCall& call, const Interrupted& interrupted = {});
  Status compute(ProcessProgram& program, const cpu::VRankCall& call, const cpu::Computing::Function& function,
                 const Interrupted& interrupted = {});
  Status barrier(const Interrupted& interrupted = {}, std::optional<double> timeout_s = {});
  Result<std::vector<double>> time(RankEngine& program, const cpu::RankCall& call, std::uint32_t warmup,
                                   std::uint32_t iterations, const Interrupted& interrupted = {});
  // The same of a program for a v-form.
  Result<std::vector<double>> time(ProcessProgram& program, const VCall& call, std::uint32_t warmup,
                                   std::uint32_t iterations, const Interrupted& interrupted = {});
  Result<cpu::Recording> record(RankEngine& program, const cpu::RankCall& call, std::size_t most,
                                const Interrupted& interrupted = {});
  // None for a rank that gives no color. The new communicator has the rows of this one.
  Result<std::unique_ptr<Communicator>> split(std::optional<std::uint32_t> color, std::int64_t key,
                                              const Interrupted& interrupted = {});
  // Collective among `ranks` only, which become ranks 0, 1, ... of the new communicator. It has the rows of this one,
  // and without `timeout_s` its time-out. Calls of this communicator may be running. `name`, `place`: see core::Group.
  Result<std::unique_ptr<Communicator>> group(const std::vector<std::uint32_t>& ranks, std::string name = {},
                                              std::optional<double> timeout_s = {}, const Interrupted& interrupted = {},
                                              std::string_view place = {});
  // Collective among the ranks that have neither ended nor left: a communicator of these, in their order, with the rows
  // of this one. This one may have failed before; if ranks are missing it is given up now. `refused`: see core::Group.
  Result<std::unique_ptr<Communicator>> shrink(std::optional<double> timeout_s = {},
                                               const Interrupted& interrupted = {},
                                               const Diagnostic* refused = nullptr);
  // A verified program serves the calls of its collective with at least `first` and less than `end` bytes, before all
  // other rows. `source` and `text` describe the row and the program.
  Status load(ir::ClassProgram program, std::uint64_t first, std::optional<std::uint64_t> end, std::string source,
              std::string text, const Interrupted& interrupted = {});

  // Starts an asynchronous call; the caller must not use its buffers until it has finished. An invalid call is an error
  // at once. `done` is called by the thread that has run the call, before anybody who waits for it learns that; what
  // waits for calls is an error there (GC3-R028).
  using Done = std::function<void(const Status&)>;
  Result<std::shared_future<Status>> start(const Call& call, Done done = {});
  Result<std::shared_future<Status>> start(VCall call, Done done = {});
  Result<std::shared_future<Status>> start(std::span<const Call> calls, Done done = {});
  // What was learned while calls ran.
  std::vector<Adaptation::Learned> learned() const { return adaptation_.learned(); }

  // In the order of calls, so that ranks that differ learn it with their next call: what the caller knows of this
  // communicator, or of the type of elements that its next call moves as bytes; an error in a call's arguments, for
  // which the others wait.
  Status describe(std::string_view text, bool elements = false);
  void refuse(const Diagnostic& problem);

  // Whether a started call has not finished yet.
  bool busy() const { return progress_.busy(); }
  // Whether a started call, send or receive has not finished yet.
  bool has_started() const { return busy() || messages_->busy(); }
  // Whether a call is running, in whatever thread.
  bool is_running() const { return core_->is_running(); }
  // An error within a call of this thread, see cpu::Membership, and in the `done` of a started one: what waits for the
  // call would never end.
  Status check_thread() const;
  // The same for close(), which waits for the `done` of messages, too.
  Status check_close() const;
  // Whether this thread is one of the communicator's own, as in any `done`.
  bool inside() const { return progress_.runs_here() || messages_->notifies_here(); }
  // Waits until started calls have finished, successfully or not.
  Status settle(const Interrupted& interrupted = {});
  // Fails if the call will never finish, because this is a fork, which does not have the thread that runs the call, or
  // because this thread is in a call that comes before it.
  Status check_goes_on(const std::shared_future<Status>& done) const;
  // Waits for a started call; an interrupt makes the calls of all ranks fail.
  void wait(const std::shared_future<Status>& done, const Interrupted& interrupted);

  // Sends and receives between two ranks. They are no calls in the order of the others, and may be made beside them
  // from other threads.
  Result<p2p::Messenger*> messages() const {
    // In a fork its calls fail by themselves; asking the system here for the process would take most of a message's
    // time.
    if (closed_) GC3_CHECK(usable());
    return messages_.get();
  }

  // Whether it is memory that all ranks can reach, which this or another communicator of the job has allocated.
  Result<bool> is_registered(const void* address) const;
  // The same, in few instructions: also after the communicator is closed, and in a fork.
  bool reaches(const void* address) const;
  // Memory that all ranks can read.
  Result<std::shared_ptr<std::uint8_t>> allocate(std::uint64_t bytes) const;
  // The same for the `blocks` blocks of a call's output whose input of so many bytes is registered; null: the row that
  // serves the call has no one-sided form.
  Result<std::shared_ptr<std::uint8_t>> new_output(CollectiveKind kind, std::uint32_t root, std::uint64_t input_bytes,
                                                   std::uint32_t blocks) const;
  // Makes the calls of all ranks fail, including running ones. Can be called from any thread. In a fork it does
  // nothing, because the calls belong to the parent.
  void abort() {
    if (lock_.here()) core_->abort();
  }
  // Local: waits for started calls, and leaves.
  Status close(const Interrupted& interrupted = {});

 private:
  // Whether a call is in place, whose largest buffer is known to fit into memory; an error as `shape` has it.
  Result<bool> is_in_place(const Call& call, const Signature& asks) const;
  // A call with what it has of this communicator, the same for all kinds of calls: ranks, and where they are.
  select::CallShape here(select::CallShape call) const;

  // The program of the table for a call, with its one-sided form if the row has it, or the class of calls whose program
  // is learned.
  struct Found {
    ProcessProgram* program = nullptr;
    Adaptation::Class* learned = nullptr;
    direct::ProcessJob* one_sided = nullptr;
  };
  struct Remembered {
    select::CallShape shape;
    bool v = false;
    Found found;
  };
  // A recent call, whose checks have passed. Its program serves every call that is equal but for the places of its
  // buffers, its factor and its time-out.
  struct Known {
    // How the two buffers lie that both have elements: at this distance from each other, without common elements, or
    // as they like.
    enum class Lie : std::uint8_t { together, apart, free };

    Known() = default;
    Known(const Call& call, const Signature& asks, const Found& found, std::uint64_t rows);
    bool serves(const Call& call) const;

    Found found;
    std::uint64_t rows = 0;  // of the communicator, then
    CollectiveKind kind = CollectiveKind::allreduce;
    model::DataType type = model::DataType::float32;
    model::ReduceOp op = model::ReduceOp::sum;
    Lie lie = Lie::free;
    std::uint32_t root = 0;
    std::size_t count = 0;
    std::size_t input_bytes = 0;
    std::size_t output_bytes = 0;
    std::uintptr_t distance = 0;  // of the output from the input
  };

  Communicator(std::unique_ptr<cpu::Communicator> core, select::Selection selection,
               std::unique_ptr<p2p::HostPipes> hosts, AdaptOptions adapt);
  // A program of a row, and the one-sided ones of other rows in whose place it runs on other than registered memory.
  struct Prepared {
    Ready program;
    std::map<std::shared_ptr<const select::Recipe>, direct::ProcessJob*> one_sided = {};
  };

  // Collective: with what the ranks of a new group need.
  static Result<std::unique_ptr<Communicator>> make(std::unique_ptr<cpu::Communicator> core,
                                                    select::Selection selection, AdaptOptions adapt,
                                                    const Interrupted& interrupted);
  Result<select::Selection> selection() const;
  std::string describe_one_sided(CollectiveKind kind) const;
  // Says something in the order of calls, without a wait for those that were started.
  Status note(const core::CallRecord& record, std::string text) {
    auto said = [this, record, text = std::move(text)] { return core_->note(record, text); };
    if (!busy()) return said();
    GC3_CHECK(progress_.start(std::move(said)));
    return {};
  }
  // A call of a v-form whose checks have passed, which look at all blocks of all ranks; the same is often made again.
  struct Checked {
    VCall call;
    Found found;
  };
  // Checks a call of a v-form, and finds its program.
  Result<Found> find(const VCall& call);
  // The program for all of it, once it is known to be valid.
  Result<Found> find(const model::Collective& collective, const VCall& call, bool in_place);
  // `v`: for a call of the v-form, or of many arrays.
  Result<Found> find(const select::CallShape& shape, bool v);
  // Within a call: runs one of equal blocks.
  static Status serve(const Found& found, ProcessProgram& program, const cpu::RankCall& call,
                      const cpu::Membership::Turn& turn, const Interrupted& interrupted);
  // The one-sided program of a recipe, proven; `messages` run in its place on other than registered memory.
  Result<direct::ProcessJob*> lowered(const Recipe& by, Prepared& messages);
  // Keeps it, or returns the same that is kept.
  const std::shared_ptr<direct::ProcessJob>& keep(std::shared_ptr<direct::ProcessJob> made);
  // Within a call: runs it, `work`, with the program that is its turn.
  template <class Work>
  Status run_found(const Found& found, const cpu::Membership::Turn& turn, const Interrupted& interrupted,
                   const Work& work) {
    if (found.learned == nullptr) return work(*found.program);
    return adaptation_.run(turn, *found.learned, interrupted, work);
  }
  // A call like none of the recent ones.
  Status run_new(const Call& call, Known& known, const Interrupted& interrupted);
  Status run_known(const Found& found, const Call& call, const cpu::Membership::Turn& turn,
                   const Interrupted& interrupted) {
    return run_found(found, turn, interrupted,
                     [&](ProcessProgram& program) { return serve(found, program, call.buffers(), turn, interrupted); });
  }
  // coalesced.cc: what runs of several calls are made of.
  struct Planned {
    Found found;
    std::variant<cpu::RankCall, VCall> call;
    std::optional<model::Collective::Alias> alias = {};  // of a call of many arrays that is in place
  };
  Result<Planned> planned(const Call& call);
  Result<std::vector<Planned>> planned(std::span<const Call> calls);
  Status run_now(const Planned& planned, const Interrupted& interrupted);
  Status run_flat(const Planned& planned, ProcessProgram& program, const cpu::Membership::Turn& turn,
                  const Interrupted& interrupted);
  template <class Work>
  Result<std::shared_future<Status>> begin(Work work, Done done);
  template <class Work>
  auto in_turn(const Interrupted& interrupted, Work work) -> decltype(work());
  // The program that makes barriers between hosts; null: there is one host.
  Result<ProcessProgram*> meeting();
  // The same of work that contains barriers.
  template <class Work>
  auto after_barriers(const Interrupted& interrupted, Work work) -> decltype(work());

  std::unique_ptr<cpu::Communicator> core_;
  std::unique_ptr<p2p::Messenger> messages_;
  std::weak_ptr<core::Job> job_;  // until it is closed; looking at it takes no lock
  std::atomic<bool> closed_ = false;
  // By kind, and by whether this rank is the root; none if there are more ranks than the collective allows.
  std::array<std::array<std::optional<Signature>, 2>, model::kCollectiveNames.size()> signatures_;
  mutable CallLock lock_;  // of the next six
  select::Selection selection_;
  std::map<std::tuple<std::shared_ptr<const select::Recipe>, std::uint32_t, bool>, Prepared>
      ready_;                                                   // also by root, mode
  std::vector<std::shared_ptr<direct::ProcessJob>> one_sided_;  // those that were prepared
  std::array<Remembered, kRemembered> remembered_;              // the programs of recent calls, by a hash of their keys
  std::array<Checked, 4> checked_;                              // the last ones
  std::size_t next_checked_ = 0;                                // the oldest of them
  std::atomic<std::uint64_t> rows_ = 1;                         // changes whenever `selection_` does
  std::array<Known, kRemembered> known_;                        // recent calls, by a hash; used within calls
  Adaptation adaptation_;
  core::Progress progress_;  // the last member, because its calls use the others
};

}  // namespace gc3::comm
