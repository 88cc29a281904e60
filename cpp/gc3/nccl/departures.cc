#include "gc3/nccl/departures.h"

namespace gc3::nccl {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20U;  // in which other processes map memory

}  // namespace

Result<std::shared_ptr<Departures>> Departures::create(const Member& member) {
  auto made = std::make_shared<Departures>();
  made->ranks_ = member.ranks;
  made->device_ = member.device;
  GC3_ASSIGN(made->own_, cuda::Memory::on(member.device, kUnit, "the list of ranks"));
  return made;
}

Result<cuda::ArenaHandle> Departures::handle() const {
  cuda::ArenaHandle handle;
  GC3_ASSIGN(handle.process, cuda::process_id());
  handle.base = cuda::address(own_.data());
  handle.device = device_->ordinal();
  const cuda::Current current(*device_);
  const cuda::CaptureRelaxed relaxed(device_->driver());
  GC3_CHECK(device_->driver().check(device_->driver()->get_ipc_handle(&handle.ipc, handle.base),
                                    "memory that other processes can use on " + device_->describe()));
  return handle;
}

Status Departures::connect(const Member& member, const std::vector<cuda::ArenaHandle>& handles) {
  GC3_ASSIGN(const auto here, cuda::process_id());
  peers_.resize(handles.size());
  for (std::uint32_t r = 0; r < handles.size(); ++r) {
    if (r == member.rank) continue;
    if (handles[r].process == here) {
      GC3_ASSIGN(peers_[r].device, member.runtime->device(static_cast<int>(handles[r].device)));
      peers_[r].base = reinterpret_cast<std::uint8_t*>(handles[r].base);
      continue;
    }
    GC3_ASSIGN(cuda::OpenedArena arena, cuda::OpenedArena::open(device_, handles[r].ipc));
    opened_.push_back(std::move(arena));
    peers_[r] = {device_, opened_.back().data()};
  }
  return {};
}

Status Departures::leave(std::uint32_t rank) {
  constexpr std::uint8_t kGone = 1;
  for (const Peer& peer : peers_) {
    if (peer.base == nullptr) continue;
    const cuda::Current current(*peer.device);
    const cuda::CaptureRelaxed relaxed(peer.device->driver());
    GC3_ASSIGN(const cuda::Stream stream, cuda::Stream::create(peer.device));
    const cuda::Driver& driver = peer.device->driver();
    GC3_CHECK(driver.check(driver->host_to_device(cuda::address(peer.base + rank), &kGone, 1, stream.get()),
                           "telling a rank that this one leaves"));
    GC3_CHECK(stream.synchronize());
  }
  peers_.clear();
  opened_.clear();
  return {};
}

Result<bool> Departures::all_gone(std::uint32_t rank) const {
  std::vector<std::uint8_t> gone(ranks_);
  GC3_CHECK(own_.read(gone.data(), 0, gone.size()));
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (r != rank && gone[r] == 0) return false;
  }
  return true;
}

}  // namespace gc3::nccl
