#include "gc3/comm/communicator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/mix64.h"
#include "gc3/base/sha256.h"
#include "gc3/ir/blocks.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/verify/classes.h"

namespace gc3::comm {
namespace {

using model::Collective;
using select::CallShape;

// Where the programs of recent calls have what serves such calls.
std::size_t place_of(CollectiveKind kind, std::size_t bytes, bool in_place, std::uint32_t root, double skew) {
  return mix64(bytes ^ (static_cast<std::uint64_t>(kind) << 56U) ^ (std::uint64_t{root} << 32U) ^
               (in_place ? 1U << 31U : 0U) ^ std::bit_cast<std::uint64_t>(skew)) %
         kRemembered;
}

// The same of `known_`, in fewer instructions.
std::size_t known_place(const Call& call) {
  return (call.count * 0x9e3779b97f4a7c15U >> 32U ^ static_cast<std::size_t>(call.kind) << 2U ^ call.root) %
         kRemembered;
}

Result<ir::ClassProgram> made_by(const select::Recipe& recipe, const CallShape& shape, bool several_hosts) {
  GC3_ASSIGN(ir::ClassProgram program, recipe.make(shape));
  // Rows are tuned on one host, and between hosts only Simple runs. The steps of a program do not depend on its
  // protocol.
  if (several_hosts) program.representative.protocol = model::Protocol::Simple;
  const Collective& does = program.representative.collective;
  // Buffers were checked for the collective of the call; a program of another one could access memory beyond them.
  if (does.kind() != shape.kind || does.ranks() != shape.ranks || does.in_place() != shape.in_place ||
      (model::is_rooted(shape.kind) && does.root() != shape.root) ||
      (does.custom_data() != nullptr && (does.name() != shape.name || does.condition() != shape.condition))) {
    return Diagnostic(ErrorCode::BadTable, recipe.text + " is not for " + shape.describe());
  }
  const verify::Report report = verify::verify(program, {recipe.slots});
  if (!report.ok()) return report.diagnostics.front();
  return program;
}

}  // namespace

Communicator::Communicator(std::unique_ptr<cpu::Communicator> core, select::Selection selection,
                           std::unique_ptr<p2p::HostPipes> hosts, AdaptOptions adapt)
    : core_(std::move(core)),
      messages_(std::make_unique<p2p::Messenger>(core_->group(), std::move(hosts))),
      job_(core_->group().job()),
      selection_(std::move(selection)),
      adaptation_(*core_, std::move(adapt),
                  [several = core_->placement().several()](const auto& recipe, const auto& shape) {
                    return made_by(recipe, shape, several);
                  }) {
  for (std::size_t kind = 0; kind < signatures_.size(); ++kind) {
    for (const bool root : {false, true}) {
      const std::uint32_t at = (rank() + (root ? 0 : 1)) % size();
      signatures_[kind][root] = signature_of(static_cast<CollectiveKind>(kind), size(), rank(), at);
    }
  }
}

Result<std::unique_ptr<Communicator>> Communicator::init(const core::Meeting& meeting,
                                                         cpu::Communicator::Options options,
                                                         select::Selection selection, select::Selection kept,
                                                         AdaptOptions adapt) {
  options.offers[0] = kept.digest();
  options.offers[1] = adapt.wish(options.offers[0] != 0 ? kept : selection);
  options.offers[2] = adapt.learned.digest();
  GC3_ASSIGN(std::unique_ptr<cpu::Communicator> core, cpu::Communicator::init(meeting, options));
  const auto [same_kept, same_wish, same_learned] = core->agreed();
  if (same_kept) selection = std::move(kept);
  // Without the rows that were kept, ranks may learn as well, but then their wishes were about other tables.
  if (!same_wish) adapt = {.differs = adapt.mode != AdaptMode::off};
  if (!same_learned) adapt.learned = {};
  return make(std::move(core), std::move(selection), std::move(adapt), {});
}

Result<std::unique_ptr<Communicator>> Communicator::make(std::unique_ptr<cpu::Communicator> core,
                                                         select::Selection selection, AdaptOptions adapt,
                                                         const Interrupted& interrupted) {
  GC3_ASSIGN(std::unique_ptr<p2p::HostPipes> hosts, p2p::HostPipes::create(core->group(), {}, interrupted));
  return std::unique_ptr<Communicator>(
      new Communicator(std::move(core), std::move(selection), std::move(hosts), std::move(adapt)));
}

Result<select::Selection> Communicator::selection() const {
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  return selection_;
}

Communicator::~Communicator() {
  // In a fork, locks may be held by threads that do not exist, and all shared memory belongs to the parent.
  if (lock_.here()) return;
  static_cast<void>(messages_.release());
  static_cast<void>(core_.release());
}

Status Communicator::check_users() const {
  const std::shared_ptr<core::Job> job = job_.lock();
  GC3_CHECK(usable());
  const std::vector<pid_t>& processes = core_->processes();
  const auto name = [&](pid_t process) {
    const auto rank = std::ranges::find(processes, process) - processes.begin();
    const std::string what = "process " + std::to_string(process);
    return rank < size() ? "rank " + std::to_string(rank) + " (" + what + ")"
                         : what + ", which shares the memory of the ranks";
  };
  if (const std::optional<pid_t> other = job->outsider()) return Diagnostic(ErrorCode::OtherUser, name(*other));
  // Looked for afterwards: one that lives now was seen above.
  for (const pid_t process : core_->group().ended()) {
    return Diagnostic(ErrorCode::RankLost,
                      name(process) +
                          " has ended, so that it is unknown whose it was; a rank must not end before the "
                          "objects that it has sent, and those of others, are received");
  }
  return {};
}

Status Communicator::usable() const {
  if (closed_) {
    return Diagnostic(ErrorCode::CommunicatorClosed,
                      "it was rank " + std::to_string(rank()) + " of " + std::to_string(size()));
  }
  return lock_.check_here();
}

template <class Work>
auto Communicator::in_turn(const Interrupted& interrupted, Work work) -> decltype(work()) {
  if (closed_ || busy()) GC3_CHECK(usable());
  GC3_CHECK(check_thread());
  if (!busy()) return work();
  std::optional<decltype(work())> result;
  const auto run = [&] { return result.emplace(work()), Status(); };
  GC3_ASSIGN(const std::shared_future<Status> done, progress_.start(run));
  wait(done, interrupted);
  return result ? std::move(*result) : decltype(work())(done.get().error());
}

Result<select::Explanation> Communicator::explain(const CallShape& shape, std::string text) const {
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  GC3_ASSIGN(select::Explanation found, selection_.explain(shape, std::move(text)));
  found.one_sided = describe_one_sided(shape.kind);
  found.processes = core_->single_copy().describe();
  for (const core::Host& host : placement().hosts) {
    if (placement().several()) found.processes += "; " + host.str() + " at " + host.address;
  }
  found.network = core_->network();
  if (placement().several()) {
    found.network += "; programs of LL and LL128 run with Simple";
    if (found.row->limits.nodes.first == 1)
      found.network += "; slots as suits the network, since the row is for one host, too";
  }
  found.network += found.row->renaming(shape);
  found.waits = core_->wait_policy().describe();
  found.learned = adaptation_.describe(shape, *found.row);
  return found;
}

Result<select::Explanation> Communicator::explain_many(const CallShape& shape, std::size_t arrays,
                                                       std::string text) const {
  GC3_ASSIGN(select::Explanation found, explain(shape, std::move(text)));
  GC3_ASSIGN(const Recipe by, recipe(shape));
  GC3_ASSIGN(const ir::ClassProgram program, by.make());
  const Result<ir::Blocks> blocks = ir::trace_blocks(program);
  found.arrays = "one run for " + std::to_string(arrays) + ", ";
  if (blocks.ok()) {
    found.arrays += "whose chunks are cut from the arrays as they lie";
  } else if (blocks.error().code == ErrorCode::NoVForm) {
    found.arrays += "on a copy of them in one buffer: " + blocks.error().message;
  } else {
    return blocks.error();
  }
  return found;
}

Result<ir::ClassProgram> Communicator::Recipe::make() const { return made_by(*recipe, shape, several_hosts); }

Result<Communicator::Recipe> Communicator::recipe(const CallShape& shape) const {
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  if (const select::Row* const row = selection_.find_messages(shape))
    return Recipe{row->recipe, shape, placement().several()};
  GC3_CHECK(selection_.explain(shape));
  return Diagnostic(ErrorCode::Internal, "the row that was selected is not in the table");
}

Result<ProcessProgram*> Communicator::program(const CallShape& shape) {
  GC3_ASSIGN(const Found found, find(shape, false));
  return found.program;
}

Result<Communicator::Found> Communicator::find(const CallShape& shape, bool v) {
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  Remembered& remembered = remembered_[place_of(shape.kind, shape.size, shape.in_place, shape.root, shape.skew)];
  if (remembered.found.program != nullptr && remembered.shape == shape && remembered.v == v) return remembered.found;
  const select::Row* const first = selection_.find(shape);
  if (first == nullptr) GC3_CHECK(selection_.explain(shape));
  const select::Row* const row = selection_.find_messages(shape);
  const CallLock::Making making(lock_);
  Prepared& found = ready_[{row->recipe, shape.root, shape.in_place}];
  if (found.program == nullptr) {
    GC3_ASSIGN(const ir::ClassProgram program, made_by(*row->recipe, shape, placement().several()));
    const select::Recipe& recipe = *row->recipe;
    // Slots of rows for one host are those that suit shared memory.
    const bool chosen = row->limits.nodes.first > 1 || !placement().several();
    GC3_ASSIGN(found.program,
               core_->prepare(program, chosen ? recipe.slots : 0, chosen ? recipe.slot_bytes : 0, recipe.thresholds));
  }
  if (first->recipe->lower && !v && !placement().several()) {
    GC3_ASSIGN(direct::ProcessJob* const one_sided, lowered({first->recipe, shape}, found));
    remembered = {shape, v, {found.program.get(), nullptr, one_sided}};
  } else {
    remembered = {shape, v, {found.program.get(), adaptation_.find(shape, v, *row, found.program, selection_)}};
  }
  return remembered.found;
}

Status Communicator::run(const Call& call, const Interrupted& interrupted) {
  if (call.has_lists()) return run({&call, 1}, interrupted);
  // Small calls take little longer than what comes before their program, so a call like a recent one takes one lock.
  Known& known = known_[known_place(call)];
  if (!closed_ && !busy()) {
    GC3_CHECK(lock_.check_maker());
    cpu::Membership::Turn turn;
    GC3_CHECK(core_->enter(turn, call.timeout_s));
    if (known.rows == rows_ && known.serves(call)) return run_known(known.found, call, turn, interrupted);
  }
  return run_new(call, known, interrupted);
}

Status Communicator::run_new(const Call& call, Known& known, const Interrupted& interrupted) {
  const std::uint64_t rows = rows_;  // before they are looked at
  GC3_ASSIGN(const CallShape key, shape(call));
  GC3_ASSIGN(const Found found, find(key, false));
  GC3_ASSIGN(const Signature* const asks, signature(call.kind, call.root));
  return in_turn(interrupted, [&]() -> Status {
    cpu::Membership::Turn turn;
    GC3_CHECK(core_->enter(turn, call.timeout_s));
    known = Known(call, *asks, found, rows);
    return run_known(found, call, turn, interrupted);
  });
}

Communicator::Known::Known(const Call& call, const Signature& asks, const Found& program, std::uint64_t of)
    : found(program),
      rows(of),
      kind(call.kind),
      type(call.type),
      op(call.op),
      root(call.root),
      count(call.count),
      input_bytes(call.count * model::size_of(call.type) * asks.input_blocks),
      output_bytes(call.count * model::size_of(call.type) * asks.output_blocks),
      distance(reinterpret_cast<std::uintptr_t>(call.output) - reinterpret_cast<std::uintptr_t>(call.input)) {
  if (input_bytes == 0 || output_bytes == 0 || kind == CollectiveKind::broadcast) return;
  const bool overlaps = distance < input_bytes || -distance < output_bytes;
  lie = overlaps ? Lie::together : Lie::apart;
}

bool Communicator::Known::serves(const Call& call) const {
  if (call.count != count || call.kind != kind || call.type != type) return false;
  if (call.op != op || call.root != root) return false;
  if (input_bytes != 0 && call.input == nullptr) return false;
  if (output_bytes != 0 && call.output == nullptr) return false;
  const auto apart = reinterpret_cast<std::uintptr_t>(call.output) - reinterpret_cast<std::uintptr_t>(call.input);
  if (lie == Lie::free) return true;
  return lie == Lie::together ? apart == distance : apart >= input_bytes && -apart >= output_bytes;
}

Status Communicator::run(std::span<const Call> calls, const Interrupted& interrupted) {
  GC3_CHECK(usable());
  GC3_ASSIGN(const std::vector<Planned> all, planned(calls));
  return in_turn(interrupted, [&]() -> Status {
    for (const Planned& one : all) GC3_CHECK(run_now(one, interrupted));
    return {};
  });
}

Result<VCounts> Communicator::agree(const VKnown& known, const Interrupted& interrupted) {
  GC3_ASSIGN(const Collective collective, v_collective(known.kind, known.root));
  GC3_CHECK(check_known(collective, rank(), known));
  if (known.all) return VCounts{*known.all, known.row};
  core::CallRecord record;
  record.collective = known.kind;
  record.type = known.type;
  record.op = known.op;
  record.root = known.root;
  const std::vector<std::uint64_t> own = words_of(known, size());
  GC3_ASSIGN(const std::vector<std::uint64_t> all,
             in_turn(interrupted, [&] { return core_->exchange(record, own, interrupted, known.timeout_s); }));
  return merge(collective, known.type, all);
}

Status Communicator::run(const VCall& call, const Interrupted& interrupted) {
  GC3_ASSIGN(const Found found, find(call));
  return in_turn(interrupted, [&]() -> Status {
    cpu::Membership::Turn turn;
    GC3_CHECK(core_->enter(turn, call.timeout_s));
    return run_found(found, turn, interrupted,
                     [&](ProcessProgram& program) { return program.run_v(turn, call.buffers(), interrupted); });
  });
}

Status Communicator::run(RankEngine& program, const cpu::RankCall& call, const Interrupted& interrupted) {
  return in_turn(interrupted, [&] { return program.run(call, interrupted); });
}

Status Communicator::compute(ProcessProgram& program, const cpu::VRankCall& call,
                             const cpu::Computing::Function& function, const Interrupted& interrupted) {
  return in_turn(interrupted, [&] { return program.compute(call, function, interrupted); });
}

Result<ProcessProgram*> Communicator::meeting() {
  if (!placement().several()) return static_cast<ProcessProgram*>(nullptr);
  GC3_CHECK(usable());
  GC3_ASSIGN(const CallShape one, shape(CollectiveKind::allreduce, 1, model::DataType::uint8, false, 0));
  return program(one);
}

template <class Work>
auto Communicator::after_barriers(const Interrupted& interrupted, Work work) -> decltype(work()) {
  GC3_ASSIGN(ProcessProgram* const meets, meeting());
  return in_turn(interrupted, [&] {
    if (meets != nullptr) core_->meet_by(*meets);
    return work();
  });
}

Status Communicator::barrier(const Interrupted& interrupted, std::optional<double> timeout_s) {
  return after_barriers(interrupted, [&] { return core_->barrier(interrupted, timeout_s); });
}

Result<std::vector<double>> Communicator::time(RankEngine& program, const cpu::RankCall& call, std::uint32_t warmup,
                                               std::uint32_t iterations, const Interrupted& interrupted) {
  return after_barriers(interrupted, [&] { return program.time(call, warmup, iterations, interrupted); });
}

Result<std::vector<double>> Communicator::time(ProcessProgram& program, const VCall& call, std::uint32_t warmup,
                                               std::uint32_t iterations, const Interrupted& interrupted) {
  GC3_ASSIGN(const Collective collective, v_collective(call.kind, call.root));
  GC3_CHECK(check_counts(collective, call.type, call.counts));
  GC3_CHECK(in_place(collective, rank(), call));
  if (program.plan().collective.kind() != call.kind || program.plan().collective.ranks() != size()) {
    return Diagnostic(ErrorCode::BadArgument, "a program of another collective, or for another number of ranks");
  }
  return after_barriers(interrupted, [&] { return program.time_v(call.buffers(), warmup, iterations, interrupted); });
}

Result<cpu::Recording> Communicator::record(RankEngine& program, const cpu::RankCall& call, std::size_t most,
                                            const Interrupted& interrupted) {
  return after_barriers(interrupted, [&] { return program.record(call, most, interrupted); });
}

Result<std::unique_ptr<Communicator>> Communicator::split(std::optional<std::uint32_t> color, std::int64_t key,
                                                          const Interrupted& interrupted) {
  GC3_ASSIGN(select::Selection rows, selection());
  GC3_ASSIGN(std::unique_ptr<cpu::Communicator> core,
             in_turn(interrupted, [&] { return core_->split(color, key, interrupted); }));
  if (core == nullptr) return std::unique_ptr<Communicator>();
  return make(std::move(core), std::move(rows), adaptation_.options(), interrupted);
}

Result<std::unique_ptr<Communicator>> Communicator::group(const std::vector<std::uint32_t>& ranks, std::string name,
                                                          std::optional<double> timeout_s,
                                                          const Interrupted& interrupted, std::string_view place) {
  GC3_CHECK(usable());
  GC3_ASSIGN(select::Selection rows, selection());
  GC3_ASSIGN(std::unique_ptr<cpu::Communicator> core,
             core_->subgroup(ranks, std::move(name), timeout_s, interrupted, !busy(), place));
  return make(std::move(core), std::move(rows), adaptation_.options(), interrupted);
}

Status Communicator::describe(std::string_view text, bool elements) {
  GC3_CHECK(usable());
  GC3_CHECK(core_->check_thread());
  core::CallRecord record{.kind = core::CallKind::named, .root = elements ? 1U : 0U};
  const Digest digest = sha256(text);
  std::memcpy(&record.count, digest.data(), sizeof record.count);
  return note(record, std::string(text));
}

void Communicator::refuse(const Diagnostic& problem) {
  if (error_info(problem.code).kind != ErrorKind::User || size() == 1 || !usable().ok() || !check_thread().ok()) return;
  static_cast<void>(
      note({.kind = core::CallKind::refused, .count = static_cast<std::uint64_t>(problem.code)}, problem.message));
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(std::optional<double> timeout_s,
                                                           const Interrupted& interrupted, const Diagnostic* refused) {
  GC3_CHECK(usable());
  GC3_ASSIGN(select::Selection rows, selection());
  GC3_ASSIGN(std::unique_ptr<cpu::Communicator> core, core_->shrink(timeout_s, interrupted, refused));
  return make(std::move(core), std::move(rows), adaptation_.options(), interrupted);
}

Status Communicator::load(ir::ClassProgram program, std::uint64_t first, std::optional<std::uint64_t> end,
                          std::string source, std::string text, const Interrupted& interrupted) {
  GC3_CHECK(usable());
  GC3_CHECK(check_thread());
  GC3_CHECK(ir::check_plain(program.representative, "a row of the selection table"));
  GC3_ASSIGN(const Ready ready, core_->prepare(program, 0, 0));
  GC3_CHECK(in_turn(interrupted, [&] { return ready->load(interrupted); }));
  const Collective does = program.representative.collective;
  select::Row row;
  row.kind = does.kind();
  row.limits = select::limits_of(does);
  row.limits.size = {first, end};
  if (does.custom_data() != nullptr) row.name = does.name();
  row.condition = does.condition();
  row.source = std::move(source);
  row.adapt = false;
  row.recipe = select::recipe_of(std::move(program), std::move(text));
  std::unique_lock<std::mutex> lock;
  GC3_CHECK(lock_.take(lock));
  ready_[{row.recipe, does.root(), does.in_place()}] = {ready};
  remembered_ = {};
  checked_ = {};
  ++rows_;
  selection_.put_first(std::move(row));
  return {};
}

Status Communicator::close(const Interrupted& interrupted) {
  GC3_CHECK(check_close());
  if (closed_.exchange(true) || !lock_.here()) return {};
  static_cast<void>(settle(interrupted));
  adaptation_.close();
  messages_->close(interrupted);
  core_->close();
  return {};
}

}  // namespace gc3::comm
