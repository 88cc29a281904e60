// What the overlay knows of one rank's communicator, beside NCCL's own object: the table that its ranks have agreed on,
// and the programs that are prepared for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/nccl/call.h"
#include "gc3/nccl/departures.h"
#include "gc3/nccl/member.h"
#include "gc3/nccl/progress.h"
#include "gc3/nccl/table.h"
#include "gc3/runtime/cuda/rank_engine.h"

namespace gc3::nccl {

// A program on a communicator.
struct Prepared {
  std::shared_ptr<const select::Recipe> recipe;
  select::CallShape shape;  // of the first call that asked for it
  bool custom = false;      // given by the caller; it serves any shape of its own collective
  std::unique_ptr<cuda::RankEngine> engine;
  std::uint32_t loaded = 0;                      // data types, as bits, whose kernels all ranks have
  std::map<std::uint32_t, std::string> refused;  // likewise those that a rank cannot run, and why
};

class Communicator {
 public:
  Communicator(std::unique_ptr<Member> member, std::shared_ptr<const Table> table, double timeout_s);

  // The program that serves a call by the table; null: none. The answer is the same on all ranks: it depends on what is
  // the same in the calls of all ranks, thus not on addresses.
  Prepared* choose(const Call& call);
  // The program that the caller gives; made known at its first use.
  Prepared* own_program(const std::shared_ptr<const select::Recipe>& recipe, const ir::Program& program);
  // Replaces the table; the ranks agree on it at their next call.
  void replace(std::shared_ptr<const Table> table);
  const std::shared_ptr<const Table>& table() const { return table_; }

  // Whether the ranks have compared their tables, and why the table is not used if it is not.
  bool agreed() const { return agreed_; }
  const std::string& disagreement() const { return disagreement_; }
  // For each communicator of a thread's calls. Collective. An error means that an exchange has failed. `begin_agreeing`
  // is the part that the thread of the caller makes; it shows which communicators are non-blocking.
  struct Agreement {
    std::vector<Communicator*> all;
    std::vector<Message> messages;
    std::vector<std::shared_ptr<Departures>> departures;
    Result<int> told = int{kSuccess};
  };
  static std::unique_ptr<Agreement> begin_agreeing(std::span<Communicator* const> all);
  static Status end_agreeing(Agreement& begun);
  struct Wanted {
    Communicator* of;
    Prepared* program;
    model::DataType type;
  };
  // Makes programs ready for a type on all ranks, or notes why not. Collective; one program of each communicator.
  static Status prepare(std::span<const Wanted> wanted);

  Result<bool> capturing(Stream stream) const;
  // Both for a call that a ready program serves. `reserve` first for all calls of the thread.
  Status reserve(const Call& call, Prepared& program);
  Status launch(const Call& call, Prepared& program);
  // Makes what is put on a stream from now on come after the last program, as NCCL's own calls follow each other.
  Status follow(Stream stream);

  // The failure of a program or of an exchange, if there was one; later calls fail, too.
  Status check();
  bool failed() const { return has_failed_; }
  void abort();
  // Ends the work of this rank. What other ranks may still access remains until they have left as well. A second
  // thread, which has aborted, waits until the first one has left.
  void leave();

  const Member& member() const { return *member_; }
  const std::shared_ptr<Progress>& progress() const { return progress_; }
  double timeout_s() const { return timeout_s_; }
  // Whether no program of this rank can serve a call of it any more, so that calls need not be looked at.
  bool is_idle() const { return agreed_ && programs_.empty() && !table_->given(); }
  // Tells the user once for each reason why a call was left to NCCL.
  void explain(const Call& call, const std::string& why);
  // The same for a call that no program serves; cheap after the first time.
  void explain_none(const Call& call) {
    const std::uint32_t bit = 1U << static_cast<unsigned>(call.function);
    if ((explained_none_ & bit) == 0) explain(call, "no program for the call");
    explained_none_ |= bit;
  }

 private:
  struct Fitted;
  Prepared* search(select::CallShape shape);
  Prepared* known(const std::shared_ptr<const select::Recipe>& recipe, const select::CallShape& shape, bool custom);
  Result<Fitted> fit(const Call& call, const Prepared& program);
  Result<std::uint8_t*> workspace(std::uint64_t bytes);
  Result<ir::Program> made(const Prepared& program) const;
  Status fail(const Status& status);
  static Status compare(Agreement& begun);
  static Status make_ready(std::span<const Wanted> wanted);
  // The number of a stream, which is never used again; none: it is being captured.
  Result<std::optional<unsigned long long>> number_of(Stream stream) const;

  std::unique_ptr<Member> member_;
  std::shared_ptr<const Table> table_;
  double timeout_s_;
  std::array<std::vector<const select::Row*>, model::kCollectiveNames.size()> rows_;  // for this number of ranks
  bool agreed_ = false;
  std::string disagreement_;
  struct Hash {
    std::size_t operator()(const select::CallShape& s) const {
      return mix64(s.size ^ mix64(static_cast<std::uint64_t>(s.kind) << 32U ^ s.root));
    }
  };
  std::unordered_map<select::CallShape, Prepared*, Hash> chosen_;  // null: no row serves the call
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::shared_ptr<Departures> departures_;
  std::map<std::tuple<const select::Recipe*, bool, std::uint32_t>, std::unique_ptr<Prepared>> programs_;
  // Of programs that a rank cannot run. This rank does not access the others' memory any more, but others may still
  // have this one mapped; not after the next exchange.
  std::vector<std::unique_ptr<cuda::RankEngine>> refused_;
  std::vector<cuda::Memory> workspaces_;           // the last one is in use; graphs may use the others
  cuda::Event done_;                               // after the last launch outside of captures, and its copies
  std::optional<unsigned long long> last_stream_;  // the stream of that
  std::map<std::string, bool> explained_;
  std::uint32_t explained_none_ = 0;  // functions, as bits
  std::mutex ending_;                 // of `leave`
  std::mutex mutex_;      // of the engines in programs_, and of the next two: other threads abort and ask for errors
  bool leaving_ = false;  // the engines are waited for, and cannot be asked
  std::optional<Diagnostic> failed_;
  std::atomic<bool> has_failed_{false};  // whether failed_ has a value
};

}  // namespace gc3::nccl
