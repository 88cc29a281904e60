#include "gc3/nccl/communicator.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/ir/image.h"
#include "gc3/nccl/graveyard.h"
#include "gc3/nccl/report.h"
#include "gc3/runtime/interp/call.h"
#include "gc3/verify/verify.h"

namespace gc3::nccl {
namespace {

using model::Collective;
using model::CollectiveKind;

constexpr std::size_t kMostSeen = 4096;  // kinds of calls whose program is remembered

// What the ranks compare before the table is used.
struct Claim {
  Digest table{};
  Digest host{};
  Departures::Handle departures;
  Problem problem;
};
// What they compare before a program is used for a type.
struct Offer {
  Digest program{};
  cuda::ArenaHandle arena;
  std::uint64_t type = 0;
  Problem problem;
};

// The same in all containers of a host.
Digest this_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return sha256(text);
}

// Whether calls prefer a program that works in place. NCCL leaves it to each rank whether its call is in place, so this
// cannot decide. For these collectives an out-of-place call costs one copy to its output.
constexpr bool prefers_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::allreduce || kind == CollectiveKind::allgather || kind == CollectiveKind::broadcast;
}

// How many blocks of `count` elements the largest buffer of a rank has.
constexpr std::uint64_t blocks_of(CollectiveKind kind, std::uint32_t ranks) {
  const bool whole =
      kind == CollectiveKind::allreduce || kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce;
  return whole ? 1 : ranks;
}

template <class T>
std::string first_problem(const Message& message, std::uint32_t ranks) {
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const Problem said = content_of<T>(message, r).problem;
    if (!said.none()) return "rank " + std::to_string(r) + ": " + said.str();
  }
  return "";
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Member> member, std::shared_ptr<const Table> table, double timeout_s)
    : member_(std::move(member)), timeout_s_(timeout_s) {
  replace(std::move(table));
}

void Communicator::replace(std::shared_ptr<const Table> table) {
  table_ = std::move(table);
  for (auto& rows : rows_) rows.clear();
  for (const select::Row& row : table_->rows) {
    if (!row.limits.ranks.admits(member_->ranks)) continue;
    rows_[static_cast<std::size_t>(row.kind)].push_back(&row);
  }
  chosen_.clear();
  agreed_ = false;
  disagreement_.clear();
}

Prepared* Communicator::known(const std::shared_ptr<const select::Recipe>& recipe, const select::CallShape& shape,
                              bool custom) {
  const std::tuple key{recipe.get(), shape.in_place, shape.root};
  // Only this thread, which makes the calls, changes the map; others look at it with the lock.
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second.get();
  const std::lock_guard lock(mutex_);
  return programs_.emplace(key, std::make_unique<Prepared>(Prepared{recipe, shape, custom, nullptr, 0, {}}))
      .first->second.get();
}

Prepared* Communicator::choose(const Call& call) {
  const auto kind = kind_of(call.function);
  const auto type = type_of(call);
  const auto op = op_of(call);
  if (!kind || !type || !op || !interp::check_op(*type, *op).ok()) return nullptr;
  const auto& rows = rows_[static_cast<std::size_t>(*kind)];
  if (rows.empty() || call.root < 0 || static_cast<std::uint32_t>(call.root) >= member_->ranks) return nullptr;
  select::CallShape shape{*kind, member_->ranks, 0, false, static_cast<std::uint32_t>(call.root)};
  const std::uint64_t block = model::size_of(*type) * blocks_of(*kind, member_->ranks);
  if (call.count == 0 || __builtin_mul_overflow(call.count, block, &shape.size)) return nullptr;
  shape.ranks_per_node = shape.ranks;  // all on one host
  const auto seen = chosen_.find(shape);
  if (seen != chosen_.end()) return seen->second;
  if (chosen_.size() == kMostSeen) chosen_.clear();
  return chosen_[shape] = search(shape);
}

Prepared* Communicator::search(select::CallShape shape) {
  const bool first = prefers_in_place(shape.kind);
  for (const bool in_place : {first, !first}) {
    shape.in_place = in_place;
    for (const select::Row* const row : rows_[static_cast<std::size_t>(shape.kind)]) {
      if (row->serves(shape)) return known(row->recipe, shape, false);
    }
  }
  return nullptr;
}

Prepared* Communicator::own_program(const std::shared_ptr<const select::Recipe>& recipe, const ir::Program& program) {
  const Collective& does = program.collective;
  return known(recipe, {does.kind(), does.ranks(), 0, does.in_place(), does.root()}, true);
}

Result<ir::Program> Communicator::made(const Prepared& wanted) const {
  GC3_ASSIGN(ir::ClassProgram read, wanted.recipe->make(wanted.shape));
  GC3_ASSIGN(ir::Program program, ir::of_all_ranks(std::move(read)));
  const Collective& does = program.collective;
  if (does.ranks() != member_->ranks || does.kind() != wanted.shape.kind || does.in_place() != wanted.shape.in_place ||
      (model::is_rooted(does.kind()) && does.root() != wanted.shape.root)) {
    return Diagnostic(ErrorCode::BadTable, wanted.recipe->text + " is not for " + wanted.shape.describe());
  }
  const verify::Report report = verify::verify(program, {wanted.recipe->slots});
  if (!report.ok()) return report.diagnostics.front();
  return program;
}

std::unique_ptr<Communicator::Agreement> Communicator::begin_agreeing(std::span<Communicator* const> all) {
  auto begun = std::make_unique<Agreement>();
  for (Communicator* const c : all) {
    begun->all.push_back(c);
    Claim claim{c->table_->hash, this_host(), {}, {}};
    if (c->table_->problem) claim.problem.set(*c->table_->problem);
    auto made = Departures::create(*c->member_);
    begun->departures.push_back(made.ok() ? made.value() : nullptr);
    if (made.ok()) {
      const auto handle = made.value()->handle();
      if (handle.ok()) claim.departures = handle.value();
      if (!handle.ok()) claim.problem.set(handle.error());
    } else {
      claim.problem.set(made.error());
    }
    begun->messages.push_back(message_of(*c->member_, claim));
  }
  begun->told = begin_telling(begun->messages);
  return begun;
}

Status Communicator::end_agreeing(Agreement& begun) {
  Status status = compare(begun);
  for (Communicator* const c : begun.all) static_cast<void>(c->fail(status));
  return status;
}

Status Communicator::compare(Agreement& begun) {
  auto& [all, messages, departures, told] = begun;
  if (!told.ok()) return told.error();
  GC3_CHECK(end_telling(messages, told.value(), all.front()->timeout_s_));
  for (std::size_t i = 0; i < all.size(); ++i) {
    Communicator& c = *all[i];
    c.agreed_ = true;
    c.disagreement_ = first_problem<Claim>(messages[i], c.member_->ranks);
    const Claim own = content_of<Claim>(messages[i], c.member_->rank);
    std::vector<Departures::Handle> handles;
    for (std::uint32_t r = 0; r < c.member_->ranks; ++r) {
      const Claim other = content_of<Claim>(messages[i], r);
      handles.push_back(other.departures);
      if (!c.disagreement_.empty()) continue;
      // Which of several reasons is named may differ; that there is one does not.
      if (other.table != own.table) {
        c.disagreement_ = "the programs of rank " + std::to_string(r) + " are not those here";
        if (other.table == Digest{}) c.disagreement_ += ": it has none, as without GC3_NCCL_PROGRAMS";
        if (own.table == Digest{}) c.disagreement_ += ": this rank has none, as without GC3_NCCL_PROGRAMS";
      }
      if (other.host != own.host) c.disagreement_ = "rank " + std::to_string(r) + " is on another host";
    }
    Message& again = messages[i];
    Problem problem;
    if (c.disagreement_.empty() && c.departures_ == nullptr) {
      if (const Status status = departures[i]->connect(*c.member_, handles); !status.ok()) problem.set(status.error());
    }
    again = message_of(*c.member_, Claim{{}, {}, {}, problem});
  }
  GC3_CHECK(tell_all(messages, all.front()->timeout_s_));
  for (std::size_t i = 0; i < all.size(); ++i) {
    Communicator& c = *all[i];
    if (c.disagreement_.empty()) c.disagreement_ = first_problem<Claim>(messages[i], c.member_->ranks);
    if (c.disagreement_.empty() && c.departures_ == nullptr) c.departures_ = departures[i];
    if (!c.disagreement_.empty()) {
      report("communicator of " + std::to_string(c.member_->ranks) + " ranks: NCCL serves all calls, because " +
             c.disagreement_);
    }
  }
  return {};
}

Status Communicator::prepare(std::span<const Wanted> wanted) {
  Status status = make_ready(wanted);
  for (const Wanted& one : wanted) static_cast<void>(one.of->fail(status));
  return status;
}

Status Communicator::make_ready(std::span<const Wanted> wanted) {
  std::vector<Message> messages;
  std::vector<std::unique_ptr<cuda::RankEngine>> engines(wanted.size());
  std::vector<bool> fresh;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [c, program, type] = wanted[i];
    fresh.push_back(program->engine == nullptr);
    Offer offer;
    offer.type = static_cast<std::uint64_t>(type);
    const auto make = [&]() -> Status {
      const std::uint64_t own_type = offer.type;
      cuda::RankEngine* engine = program->engine.get();
      if (fresh[i]) {
        GC3_ASSIGN(const ir::Program made, c->made(*program));
        const std::vector<std::byte> image = ir::write_image(made, false);
        offer.program = sha256({reinterpret_cast<const char*>(image.data()), image.size()});
        GC3_ASSIGN(engines[i],
                   cuda::RankEngine::create(c->member_->runtime, made, c->member_->rank, c->member_->device->ordinal(),
                                            {program->recipe->slots, program->recipe->slot_bytes, c->timeout_s_}));
        GC3_ASSIGN(offer.arena, engines[i]->handle());
        engine = engines[i].get();
      }
      return engine->load(static_cast<model::DataType>(own_type));
    };
    if (const Status status = make(); !status.ok()) offer.problem.set(status.error());
    messages.push_back(message_of(*c->member_, offer));
  }
  // Others may have mapped an engine's memory even where this rank knows of a failure only.
  const auto keep = [&](std::size_t i) {
    if (engines[i] == nullptr) return;
    engines[i]->disconnect();
    wanted[i].of->refused_.push_back(std::move(engines[i]));
  };
  const double timeout_s = wanted.front().of->timeout_s_;
  if (const Status told = tell_all(messages, timeout_s); !told.ok()) {
    for (std::size_t i = 0; i < wanted.size(); ++i) keep(i);
    return told;
  }
  std::vector<std::string> problems;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Member& member = *wanted[i].of->member_;
    problems.push_back(first_problem<Offer>(messages[i], member.ranks));
    const Offer own = content_of<Offer>(messages[i], member.rank);
    std::vector<cuda::ArenaHandle> arenas;
    for (std::uint32_t r = 0; r < member.ranks; ++r) {
      const Offer other = content_of<Offer>(messages[i], r);
      arenas.push_back(other.arena);
      if (problems[i].empty() && (other.program != own.program || other.type != own.type)) {
        problems[i] = "rank " + std::to_string(r) + " has another program or makes another call";
      }
    }
    Offer confirmation;
    wanted[i].of->refused_.clear();
    if (problems[i].empty() && fresh[i]) {
      if (const Status status = engines[i]->connect(arenas); !status.ok()) confirmation.problem.set(status.error());
    }
    messages[i] = message_of(*wanted[i].of->member_, confirmation);
  }
  const Status told = tell_all(messages, timeout_s);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [c, program, type] = wanted[i];
    if (told.ok() && problems[i].empty()) problems[i] = first_problem<Offer>(messages[i], c->member_->ranks);
    if (!told.ok() || !problems[i].empty()) keep(i);
    if (!told.ok()) continue;
    const std::lock_guard lock(c->mutex_);
    if (problems[i].empty()) {
      if (fresh[i]) program->engine = std::move(engines[i]);
      program->loaded |= 1U << static_cast<unsigned>(type);
    } else {
      program->refused[static_cast<std::uint32_t>(type)] = problems[i];
    }
  }
  return told;
}

Result<bool> Communicator::capturing(Stream stream) const {
  const cuda::Current current(*member_->device);
  int capturing = 0;
  const cuda::Driver& driver = member_->device->driver();
  GC3_CHECK(driver.check(driver->is_capturing(stream, &capturing), "the stream"));
  return capturing != 0;
}

Status Communicator::fail(const Status& status) {
  if (status.ok()) return status;
  const std::lock_guard lock(mutex_);
  if (!failed_) failed_ = status.error();
  has_failed_ = true;
  return status;
}

Status Communicator::check() {
  const std::lock_guard lock(mutex_);
  if (failed_) return *failed_;
  if (leaving_) return {};
  for (const auto& [key, program] : programs_) {
    if (program->engine == nullptr) continue;
    if (const Status status = program->engine->check(); !status.ok()) {
      failed_ = status.error();
      has_failed_ = true;
      return status;
    }
  }
  return {};
}

void Communicator::abort() {
  member_->abort();
  const std::lock_guard lock(mutex_);
  for (const auto& [key, program] : programs_) {
    if (program->engine != nullptr) program->engine->abort();
  }
}

void Communicator::leave() {
  const std::lock_guard first(ending_);
  progress_->close();
  std::vector<cuda::RankEngine*> running;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    for (const auto& [key, program] : programs_) {
      if (program->engine != nullptr) running.push_back(program->engine.get());
    }
  }
  // A failure was reported, or nobody asks any more. `abort` finds the engines until they have ended.
  for (cuda::RankEngine* const engine : running) static_cast<void>(engine->synchronize());
  std::vector<std::unique_ptr<cuda::RankEngine>> engines = std::move(refused_);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, program] : programs_) {
      if (program->engine != nullptr) engines.push_back(std::move(program->engine));
    }
  }
  for (const auto& engine : engines) engine->disconnect();
  const std::shared_ptr<Departures> departures = std::exchange(departures_, nullptr);
  if (departures == nullptr) return;
  static_cast<void>(departures->leave(member_->rank));
  Graveyard::get().take({std::move(engines), std::move(workspaces_), departures, member_->rank});
}

void Communicator::explain(const Call& call, const std::string& why) {
  const std::string text = std::string(name_of(call.function)) + " is served by NCCL: " + why;
  if (explained_.emplace(text, true).second) report(text);
}

}  // namespace gc3::nccl
