#include "gc3/runtime/cpu/communicator.h"

#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3::cpu {

Communicator::Communicator(std::unique_ptr<core::Group> group, HostLinks::Options links)
    : rank_(group->rank()),
      size_(group->size()),
      key_(group->job()->key()),
      processes_(group->processes()),
      agreed_(group->agreed()),
      single_copy_(group->single_copy()),
      placement_(group->placement()),
      wait_policy_(group->shared_wait_policy()),
      members_(std::make_shared<Membership>()) {
  members_->group = std::move(group);
  if (links.hosts.empty()) links.hosts = placement_.host_of;
  members_->links = HostLinks::create(*members_->group, std::move(links));
  if (members_->links != nullptr) transport_ = members_->links->kind();
  members_->single_copy = single_copy_;
  members_->fifos = std::make_unique<FifoPool>(*members_->group, members_->links.get());
}

Result<std::unique_ptr<Communicator>> Communicator::init(const core::Meeting& meeting, const Options& options,
                                                         HostLinks::Options links) {
  GC3_ASSIGN(std::unique_ptr<core::Group> group, core::Group::world(meeting, options));
  std::unique_ptr<Communicator> made(new Communicator(std::move(group), std::move(links)));
  if (made->members_->links != nullptr) GC3_CHECK(made->choose_transport());
  return made;
}

Status Communicator::choose_transport() {
  core::Group& group = *members_->group;
  GC3_CHECK(group.begin({core::CallKind::counts}));
  GC3_CHECK(members_->links->choose({}));
  group.finish();
  transport_ = members_->links->kind();
  return {};
}

HostLinks::Options Communicator::same_transport() const {
  HostLinks::Options links;
  if (members_->links != nullptr) links.choice = members_->links->options().choice;
  return links;
}

Result<std::shared_ptr<ProcessProgram>> Communicator::prepare(const ir::ClassProgram& program, std::uint32_t slots,
                                                              std::uint64_t slot_bytes,
                                                              const ThresholdChanges& changes) {
  if (program.ranks() != size_) {
    return Diagnostic(ErrorCode::BadArgument, "a program of " + std::to_string(program.ranks()) +
                                                  " ranks in a communicator of " + std::to_string(size_));
  }
  GC3_ASSIGN(std::shared_ptr<ProcessProgram> made,
             ProcessProgram::create(program, rank_, slots, slot_bytes, key_, members_, changes));
  const std::lock_guard lock(programs_mutex_);
  for (const auto& known : programs_) {
    if (known->is_same(*made)) return known;
  }
  programs_.push_back(std::move(made));
  return programs_.back();
}

Result<std::vector<std::uint64_t>> Communicator::exchange(core::CallRecord record,
                                                          const std::vector<std::uint64_t>& own,
                                                          const Interrupted& interrupted,
                                                          std::optional<double> timeout_s) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn, timeout_s));
  record.kind = core::CallKind::counts;
  GC3_CHECK(members_->group->begin(record));
  Result<std::vector<std::uint64_t>> all = members_->group->exchange_words(own, interrupted);
  if (all.ok()) members_->group->finish();
  return all;
}

Result<std::vector<core::Group::Payload>> Communicator::exchange(const Membership::Turn& /*turn*/,
                                                                 const core::Group::Payload& own,
                                                                 const Interrupted& interrupted) {
  core::CallRecord record;
  record.kind = core::CallKind::learn;
  GC3_CHECK(members_->group->begin(record));
  Result<std::vector<core::Group::Payload>> all = members_->group->exchange(own, interrupted);
  if (all.ok()) members_->group->finish();
  return all;
}

void Communicator::meet_by(ProcessProgram& program) {
  const std::unique_lock lock = members_->look();
  if (members_->group != nullptr) members_->meets = &program;
}

Status Communicator::barrier(const Interrupted& interrupted, std::optional<double> timeout_s) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn, timeout_s));
  return members_->barrier(interrupted);
}

Result<std::unique_ptr<Communicator>> Communicator::split(std::optional<std::uint32_t> color, std::int64_t key,
                                                          const Interrupted& interrupted) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn));
  GC3_ASSIGN(std::unique_ptr<core::Group> group, members_->group->split(color, key, interrupted));
  if (group == nullptr) return std::unique_ptr<Communicator>();
  return std::unique_ptr<Communicator>(new Communicator(std::move(group), same_transport()));
}

Result<std::unique_ptr<Communicator>> Communicator::subgroup(const std::vector<std::uint32_t>& ranks, std::string name,
                                                             std::optional<double> timeout_s,
                                                             const Interrupted& interrupted, bool idle,
                                                             std::string_view place) {
  if (members_->group == nullptr) return Diagnostic(ErrorCode::CommunicatorClosed, "");
  GC3_ASSIGN(std::unique_ptr<core::Group> group,
             members_->group->subgroup(ranks, std::move(name), timeout_s, interrupted, idle, place));
  return std::unique_ptr<Communicator>(new Communicator(std::move(group), same_transport()));
}

Result<std::unique_ptr<Communicator>> Communicator::shrink(std::optional<double> timeout_s,
                                                           const Interrupted& interrupted, const Diagnostic* refused) {
  if (members_->group == nullptr) return Diagnostic(ErrorCode::CommunicatorClosed, "");
  GC3_ASSIGN(std::unique_ptr<core::Group> group, members_->group->shrink(timeout_s, interrupted, refused));
  return std::unique_ptr<Communicator>(new Communicator(std::move(group), same_transport()));
}

Status Communicator::note(const core::CallRecord& record, std::string_view text) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn));
  return members_->group->note(record, text);
}

Result<std::shared_ptr<std::uint8_t>> Communicator::allocate(std::uint64_t bytes) {
  Membership::Turn turn;
  GC3_CHECK(members_->enter(turn));
  return members_->group->job()->allocate_shared(bytes);
}

std::string Communicator::network() const {
  const std::unique_lock lock = members_->look();
  if (members_->links == nullptr) return "";
  const Companion::Pause pause(*members_->companion);  // within a call, whose messages it moves
  return members_->links->describe();
}

void Communicator::close() {
  const std::scoped_lock lock(members_->mutex, programs_mutex_);
  if (members_->group != nullptr) members_->group->limit_calls({});  // the last call may have had one
  for (const auto& program : programs_) {
    if (members_->group == nullptr) break;
    if (!program->get_scratch_back({}).ok()) break;  // the group has been given up, so no read counts any more
  }
  for (const auto& program : programs_) program->close();
  members_->meets = nullptr;
  programs_.clear();
  members_->fifos.reset();
  // After a failure nobody waits for what has not left: a host that has crashed would never take it.
  if (members_->links != nullptr && members_->group != nullptr && !members_->group->check().ok()) {
    members_->links->abandon();
  }
  members_->companion.reset();
  members_->links.reset();
  members_->group.reset();
}

}  // namespace gc3::cpu
