#include "gc3/runtime/core/job.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/handshake.h"
#include "gc3/runtime/core/peer_process.h"

namespace gc3::core {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaskWords = 64;  // 4096 cores
constexpr std::size_t kMaskBits = kMaskWords * 64;

struct Mask {
  std::uint64_t words[kMaskWords] = {};

  std::uint32_t count() const {
    std::uint32_t n = 0;
    for (const std::uint64_t w : words) n += static_cast<std::uint32_t>(__builtin_popcountll(w));
    return n;
  }
};

// sched_getaffinity of the kernel, which is not limited to 1024 cores as cpu_set_t is.
Mask own_cores() {
  Mask mask;
  syscall(SYS_sched_getaffinity, 0, sizeof mask.words, mask.words);
  return mask;
}

}  // namespace

// At the beginning of the shared file, before all allocated memory.
struct Job::Header {
  std::uint64_t end;         // of the allocated memory
  std::uint64_t control[2];  // offset and bytes
  std::uint64_t cores[kMaskWords];
  std::uint64_t copies;  // see copies()
  Digest key;            // see key()
};

std::uint64_t* Job::copies() const { return &header().copies; }

Job::Header& Job::header() const { return *reinterpret_cast<Header*>(header_.data()); }

Result<std::shared_ptr<Job>> Job::join(const Meeting& meeting, std::uint64_t control_bytes) {
  std::shared_ptr<Job> job(new Job());
  job->rank_ = meeting.rank;
  SharedMemory memory;
  if (meeting.rank == 0) {
    GC3_ASSIGN(memory, SharedMemory::create());
    std::uint64_t end = 0;
    GC3_ASSIGN(const Extent head, memory.allocate(end, sizeof(Header), "the job"));
    GC3_ASSIGN(const Extent control, memory.allocate(end, control_bytes, "the job"));
    GC3_ASSIGN(const Mapping mapped, memory.map(head));
    auto& header = *reinterpret_cast<Header*>(mapped.data());
    header.end = end;
    header.control[0] = control.offset;
    header.control[1] = control.bytes;
    GC3_ASSIGN(header.key, Handshake::new_nonce());
  }
  GC3_ASSIGN(Met met, meet(meeting, std::move(memory)));
  job->memory_ = std::move(met.memory);
  GC3_ASSIGN(job->header_, job->memory_.map({0, (sizeof(Header) + kPage - 1) / kPage * kPage}));
  job->own_->heap.open(job->memory_);
  job->control_ = {job->header().control[0], job->header().control[1]};
  job->key_ = job->header().key;
  if (job->control_.bytes < control_bytes) {
    return Diagnostic(ErrorCode::NotMet, "rank 0 has allocated memory for another number of ranks");
  }
  job->processes_ = std::move(met.processes);
  job->pidfds_ = std::move(met.pidfds);
  void* witness = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (witness == MAP_FAILED || madvise(witness, kPage, MADV_WIPEONFORK) != 0) return refused("MADV_WIPEONFORK");
  job->own_->witness = static_cast<std::uint8_t*>(witness);
  *job->own_->witness = 1;
  return job;
}

Job::Own::~Own() {
  if (witness != nullptr) munmap(witness, kPage);
}

Result<Extent> Job::allocate(std::uint64_t bytes, const std::string& purpose) const {
  return memory_.allocate(header().end, bytes, purpose);
}

Result<std::shared_ptr<std::uint8_t>> Job::allocate_shared(std::uint64_t bytes) const {
  GC3_ASSIGN(std::uint8_t* const at, own_->heap.allocate(memory_, header().end, bytes));
  return std::shared_ptr<std::uint8_t>(at, [own = own_, bytes](std::uint8_t* memory) {
    if (own->here()) own->heap.free(memory, bytes);  // in a fork the memory belongs to the parent
  });
}

std::vector<std::uint32_t> Job::dead(const std::vector<std::uint32_t>& ranks) const {
  std::vector<pollfd> watched;
  for (const std::uint32_t r : ranks) watched.push_back({pidfds_[r].get(), POLLIN, 0});
  std::vector<std::uint32_t> found;
  if (poll(watched.data(), watched.size(), 0) <= 0) return found;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (watched[i].revents != 0) found.push_back(ranks[i]);
  }
  return found;
}

bool Job::stopped(std::uint32_t rank) const {
  const std::optional<ProcessFacts> facts = facts_of(processes_[rank]);
  return facts && facts->state == 'T';
}

void Job::announce_cores() {
  const Mask mask = own_cores();
  for (std::size_t w = 0; w < kMaskWords; ++w) {
    std::atomic_ref(header().cores[w]).fetch_or(mask.words[w], std::memory_order_relaxed);
  }
}

std::uint32_t Job::cores() const {
  Mask mask;
  for (std::size_t w = 0; w < kMaskWords; ++w) {
    mask.words[w] = std::atomic_ref(header().cores[w]).load(std::memory_order_relaxed);
  }
  return mask.count();
}

void Job::pin(const Place& place) {
  const Mask mask = own_cores();
  const std::uint32_t count = mask.count();
  if (count < static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN))) return;
  const bool enough = count >= place.size;
  const auto share_of = [&](std::uint64_t rank) { return static_cast<std::uint32_t>(count * rank / place.size); };
  const std::uint32_t first = enough ? share_of(place.rank) : place.rank % count;
  const std::uint32_t last = enough ? share_of(std::uint64_t{place.rank} + 1) : first + 1;
  Mask share;
  for (std::uint32_t bit = 0, seen = 0; bit < kMaskBits; ++bit) {
    const std::uint64_t flag = std::uint64_t{1} << bit % 64;
    if ((mask.words[bit / 64] & flag) == 0) continue;
    if (seen >= first && seen < last) share.words[bit / 64] |= flag;
    ++seen;
  }
  // If the system refuses, the process keeps its cores.
  syscall(SYS_sched_setaffinity, 0, sizeof share.words, share.words);
}

Status die_with_parent() {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return refused("PR_SET_PDEATHSIG");
  return {};
}

}  // namespace gc3::core
