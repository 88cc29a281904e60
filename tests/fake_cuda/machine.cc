#include "machine.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <thread>

namespace gc3::fake_cuda {

const Settings& Settings::get() {
  static const Settings settings = [] {
    Settings s;
    const char* const text = std::getenv("FAKE_CUDA");
    std::istringstream words(text == nullptr ? "" : text);
    for (std::string word; words >> word;) {
      const std::size_t equal = word.find('=');
      const std::string name = word.substr(0, equal);
      const std::string value = equal == std::string::npos ? "" : word.substr(equal + 1);
      if (name == "devices") s.devices = std::stoi(value);
      if (name == "sms") s.multiprocessors = std::stoi(value);
      if (name == "blocks") s.blocks = std::stoi(value);
      if (name == "warps") s.warps = std::stoi(value);
      if (name == "memory") s.memory = std::stoull(value);
      if (name == "peer") s.peer = value != "0";
      if (name == "nvlink") s.nvlink = value != "0";
      if (name == "pools") s.pools = value != "0";
      if (name == "nvrtc") s.compiles = value != "fail";
      if (name == "cuda") s.compiler = std::stoi(value);
      if (name == "nccl") s.nccl = std::stoi(value);
      if (name == "windows") s.windows = value != "0";
      if (name == "lsa") s.lsa = value != "0";
      if (name == "multicast") s.multicast = std::stoi(value);
      if (name == "mapped") s.mapped = value != "0";
      if (name == "unmap") s.unmap_ms = std::stoi(value);
      if (name == "values") s.values = value != "0";
      if (name == "channels") s.channels = std::stoi(value);
      if (name == "fail") {
        const std::size_t colon = value.find(':');
        s.fails = value.substr(0, colon);
        if (colon != std::string::npos) s.fails_at = std::stoi(value.substr(colon + 1));
      }
    }
    return s;
  }();
  return settings;
}

int injected(const char* symbol) {
  static std::atomic<int> calls{0};
  if (Settings::get().fails != symbol) return kSuccess;
  return ++calls == Settings::get().fails_at ? kInvalidValue : kSuccess;
}

Memory& Memory::get() {
  static Memory memory;
  return memory;
}

int Memory::allocate(int device, std::size_t bytes, std::uint64_t* base) {
  const std::lock_guard lock(mutex_);
  if (used_[device] + bytes > Settings::get().memory) return kOutOfMemory;
  const int file = memfd_create("fake-device-memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return kOutOfMemory;
  *base = reinterpret_cast<std::uint64_t>(at);
  allocations_[*base] = {bytes, device, file};
  used_[device] += bytes;
  return kSuccess;
}

int Memory::release(std::uint64_t base, bool shared) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(base);
  if (found == allocations_.end()) return kInvalidValue;
  // CUDA does not say what happens then.
  if (!shared && Settings::get().mapped && flock(found->second.file, LOCK_EX | LOCK_NB) != 0) {
    std::fprintf(stderr, "the fake driver: memory is freed that another process has mapped\n");
    std::abort();
  }
  munmap(reinterpret_cast<void*>(base), found->second.bytes);
  ::close(found->second.file);
  used_[found->second.device] -= found->second.bytes;
  allocations_.erase(found);
  return kSuccess;
}

int Memory::open(std::uint64_t process, std::uint64_t file, const Allocation& of, std::uint64_t* base) {
  const std::string name = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
  const int own = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return kInvalidValue;
  // The lock tells the other process that the memory is mapped, until this one closes it or ends.
  void* const at =
      flock(own, LOCK_SH) != 0 ? MAP_FAILED : mmap(nullptr, of.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
  if (at == MAP_FAILED) {
    ::close(own);
    return kInvalidValue;
  }
  *base = reinterpret_cast<std::uint64_t>(at);
  const std::lock_guard lock(mutex_);
  opened_[*base] = {of.bytes, of.device, own};
  return kSuccess;
}

int Memory::close(std::uint64_t base) {
  std::this_thread::sleep_for(std::chrono::milliseconds(Settings::get().unmap_ms));
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(base);
  if (found == opened_.end()) return kInvalidValue;
  munmap(reinterpret_cast<void*>(base), found->second.bytes);
  ::close(found->second.file);
  opened_.erase(found);
  return kSuccess;
}

const Allocation* Memory::find(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  --after;
  return address < after->first + after->second.bytes ? &after->second : nullptr;
}

int Memory::device_of(std::uint64_t address) {
  if (const Allocation* const own = find(address); own != nullptr) return own->device;
  const std::lock_guard lock(mutex_);
  auto after = opened_.upper_bound(address);
  if (after == opened_.begin()) return -1;
  --after;
  return address < after->first + after->second.bytes ? after->second.device : -1;
}

namespace {

std::mutex streams_mutex;
std::set<Stream*> streams;

}  // namespace

Stream::Stream(int device) : device_(device) {
  static std::atomic<unsigned long long> ids{0};
  id_ = ++ids;
  channel_ = Channel::of(device, id_);
  const std::lock_guard lock(streams_mutex);
  streams.insert(this);
}

void Stream::synchronize_all(int device) {
  const std::lock_guard lock(streams_mutex);
  for (Stream* const stream : streams) {
    if (stream->device_ == device) stream->synchronize();
  }
}

Stream::~Stream() {
  {
    const std::lock_guard lock(streams_mutex);
    streams.erase(this);
  }
  synchronize();
}

void Stream::add(Work work) {
  if (graph_ != nullptr) {
    graph_->push_back(std::move(work));
  } else {
    channel_->add(this, std::move(work));
  }
}

std::shared_ptr<Channel> Channel::of(int device, unsigned long long stream) {
  static std::mutex mutex;
  static std::map<std::pair<int, unsigned long long>, std::shared_ptr<Channel>> shared;
  if (Settings::get().channels == 0) return std::make_shared<Channel>();
  const std::lock_guard lock(mutex);
  std::shared_ptr<Channel>& channel = shared[{device, stream % static_cast<unsigned>(Settings::get().channels)}];
  if (channel == nullptr) channel = std::make_shared<Channel>();
  return channel;
}

Channel::~Channel() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Channel::add(Stream* stream, Work work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.emplace_back(stream, std::move(work));
    ++pending_[stream];
  }
  changed_.notify_all();
}

void Channel::synchronize(const Stream* stream) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.count(stream) == 0; });
}

void Channel::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || stop_; });
    if (queue_.empty()) return;
    {
      const auto [stream, next] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      next();
      lock.lock();
      if (--pending_[stream] == 0) pending_.erase(stream);
    }
    changed_.notify_all();
  }
}

}  // namespace gc3::fake_cuda
