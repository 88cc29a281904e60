#include "gc3/runtime/cpu/host_carrier.h"

#include <mutex>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3::cpu {
namespace {

class HostCarrier final : public transport::Carrier {
 public:
  HostCarrier(std::shared_ptr<Membership> members, std::unique_ptr<HostLinks> links)
      : members_(std::move(members)), links_(std::move(links)) {}

  const std::vector<std::uint32_t>& hosts() const override { return links_->options().hosts; }

  Status connect(const std::vector<std::uint32_t>& peers, const std::function<bool()>& progress,
                 const std::function<bool()>& interrupted) override {
    Membership::Turn turn;
    GC3_CHECK(members_->enter(turn));
    core::CallRecord record;
    record.kind = core::CallKind::load;
    GC3_CHECK(members_->group->begin(record));
    GC3_CHECK(links_->connect(peers, interrupted, progress));
    members_->group->finish();
    return {};
  }

  transport::Transport& transport() override { return links_->transport(); }

  std::optional<Diagnostic> problem() override {
    // A running call holds it, and finds such problems itself.
    const std::unique_lock lock(members_->mutex, std::try_to_lock);
    if (!lock.owns_lock()) return {};
    if (members_->group == nullptr) return Diagnostic(ErrorCode::CommunicatorClosed, "");
    if (std::optional<Diagnostic> lost = members_->group->lost()) return lost;
    // A rank that has only closed its connections has finished its calls, or has been found lost above.
    std::optional<Diagnostic> broken = links_->problem({});
    return broken ? members_->group->give_up(*broken) : broken;
  }

  std::string describe() const override { return links_->describe(); }

 private:
  std::shared_ptr<Membership> members_;
  std::unique_ptr<HostLinks> links_;
};

}  // namespace

std::unique_ptr<transport::Carrier> make_carrier(const std::shared_ptr<Membership>& members) {
  const std::unique_lock lock = members->look();
  if (members->group == nullptr || members->links == nullptr) return {};
  std::unique_ptr<HostLinks> links = HostLinks::create(*members->group, members->links->options());
  return std::make_unique<HostCarrier>(members, std::move(links));
}

}  // namespace gc3::cpu
