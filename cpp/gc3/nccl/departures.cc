#include "gc3/nccl/departures.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "gc3/base/errors/common.h"

namespace gc3::nccl {
namespace {

constexpr std::size_t kBlock = std::size_t{2} << 20U;  // in which other processes map memory
constexpr std::size_t kList = 1024;                    // bytes of a communicator in it

// The memory of the lists. Another rank may still have it mapped when it has told this one that it leaves, and memory
// must not be freed before that. So blocks are never freed; a list is used again.
class Blocks {
 public:
  static Blocks& get() {
    static Blocks* const blocks = new Blocks;  // never deleted: the driver may be gone when the process ends
    return *blocks;
  }
  using Place = Departures::Place;
  Result<Place> take(const std::shared_ptr<cuda::Device>& device) {
    if (const auto found = free_place(device.get())) return *found;
    // Without the lock, because an allocation may wait for a rank whose thread is here, too.
    GC3_ASSIGN(cuda::Memory memory, cuda::Memory::on(device, kBlock, "the lists of ranks"));
    Block made{std::make_unique<cuda::Memory>(std::move(memory)), {}};
    const Place first{made.memory.get(), 0};
    for (std::uint64_t at = kBlock - kList; at > 0; at -= kList) made.free.push_back(at);
    const std::lock_guard lock(mutex_);
    blocks_[device.get()].push_back(std::move(made));
    return first;
  }
  void give_back(const cuda::Device* device, const Place& place) {
    const std::lock_guard lock(mutex_);
    for (Block& block : blocks_[device]) {
      if (block.memory.get() == place.block) block.free.push_back(place.offset);
    }
  }

 private:
  struct Block {
    std::unique_ptr<cuda::Memory> memory;
    std::vector<std::uint64_t> free;  // offsets of lists
  };
  std::optional<Place> free_place(const cuda::Device* device) {
    const std::lock_guard lock(mutex_);
    for (Block& block : blocks_[device]) {
      if (block.free.empty()) continue;
      const Place found{block.memory.get(), block.free.back()};
      block.free.pop_back();
      return found;
    }
    return std::nullopt;
  }

  std::mutex mutex_;
  std::map<const cuda::Device*, std::vector<Block>> blocks_;  // their memory keeps the device
};

}  // namespace

Result<std::shared_ptr<Departures>> Departures::create(const Member& member) {
  if (member.ranks > kList) {
    return Diagnostic(ErrorCode::BadOption, std::to_string(member.ranks) + " ranks of a communicator, at most " +
                                                std::to_string(kList) + " can use programs");
  }
  auto made = std::make_shared<Departures>();
  made->ranks_ = member.ranks;
  made->device_ = member.device;
  GC3_ASSIGN(made->own_, Blocks::get().take(member.device));
  const std::vector<std::uint8_t> nobody(member.ranks);
  GC3_CHECK(made->own_.block->write(nobody.data(), made->own_.offset, nobody.size()));
  return made;
}

Departures::~Departures() {
  if (own_.block != nullptr && unused_) Blocks::get().give_back(device_.get(), own_);
}

Result<Departures::Handle> Departures::handle() const {
  cuda::ArenaHandle handle;
  GC3_ASSIGN(handle.process, cuda::process_id());
  handle.base = cuda::address(own_.block->data());
  handle.device = device_->ordinal();
  const cuda::Current current(*device_);
  const cuda::CaptureRelaxed relaxed(device_->driver());
  GC3_CHECK(device_->driver().check(device_->driver()->get_ipc_handle(&handle.ipc, handle.base),
                                    "memory that other processes can use on " + device_->describe()));
  return Handle{handle, own_.offset};
}

Status Departures::connect(const Member& member, const std::vector<Handle>& handles) {
  unused_ = false;
  GC3_ASSIGN(const auto here, cuda::process_id());
  peers_.resize(handles.size());
  for (std::uint32_t r = 0; r < handles.size(); ++r) {
    if (r == member.rank) continue;
    const auto& [block, offset] = handles[r];
    if (block.process == here) {
      GC3_ASSIGN(peers_[r].device, member.runtime->device(static_cast<int>(block.device)));
      peers_[r].base = reinterpret_cast<std::uint8_t*>(block.base + offset);
      continue;
    }
    GC3_ASSIGN(cuda::OpenedArena arena, cuda::OpenedArena::open(device_, block.ipc));
    opened_.push_back(std::move(arena));
    peers_[r] = {device_, opened_.back().data() + offset};
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

Result<bool> Departures::all_gone(std::uint32_t rank) {
  std::vector<std::uint8_t> gone(ranks_);
  GC3_CHECK(own_.block->read(gone.data(), own_.offset, gone.size()));
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (r != rank && gone[r] == 0) return false;
  }
  unused_ = true;
  return true;
}

}  // namespace gc3::nccl
