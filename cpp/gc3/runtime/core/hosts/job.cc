#include "gc3/runtime/core/hosts/job.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/hosts/mirror.h"
#include "gc3/runtime/core/meeting/handshake.h"
#include "gc3/runtime/core/meeting/peer_process.h"
#include "gc3/runtime/core/sharing/cores.h"

namespace gc3::core {
namespace {

constexpr std::size_t kDoorbells = 256;

}  // namespace

// At the beginning of the shared file, before all allocated memory.
struct Job::Header {
  Heap::Words heap;
  Cores cores;
  std::uint64_t copies;  // see copies()
  Digest key;            // see key()
  Doorbell doorbells[kDoorbells];
};

std::uint64_t* Job::copies() const { return &header().copies; }

Doorbell& Job::doorbell(std::uint32_t rank) const { return header().doorbells[rank % kDoorbells]; }

// Maps the memory, and prepares what does not depend on who is in the job.
Status Job::open(SharedMemory memory) {
  memory_ = std::move(memory);
  const Extent kHead{0, whole_pages(sizeof(Header))};
  GC3_ASSIGN(std::uint8_t* const head, own_->window.map(memory_, kHead));
  header_ = reinterpret_cast<Header*>(head);
  own_->heap.open(header_->heap);
  void* witness = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (witness == MAP_FAILED) return refused("mmap");
  own_->witness = static_cast<std::uint8_t*>(witness);
  if (madvise(witness, kPage, MADV_WIPEONFORK) != 0) return refused("MADV_WIPEONFORK");
  *own_->witness = 1;
  return {};
}

Result<std::shared_ptr<Job>> Job::create() {
  std::shared_ptr<Job> job(new Job());
  GC3_ASSIGN(SharedMemory memory, SharedMemory::create());
  const Extent kHead{0, whole_pages(sizeof(Header))};
  GC3_CHECK(memory.reserve(kHead, "the job"));
  GC3_CHECK(job->open(std::move(memory)));
  job->header().heap.used[0] = kHead.bytes;
  GC3_ASSIGN(job->header().key, Handshake::new_nonce());
  return job;
}

Result<Job::Joined> Job::join(const Meeting& meeting, std::uint64_t control_bytes) {
  // Kept until the ranks have met, so that none can end meanwhile.
  std::vector<std::shared_ptr<Job>> jobs =
      meeting.jobs != nullptr ? meeting.jobs->all() : std::vector<std::shared_ptr<Job>>();
  // Processes that have proven nothing, or that they know another secret, may be in the others.
  const Digest secret = hmac_sha256(meeting.secret, "the secret of a job");
  std::erase_if(jobs, [&](const std::shared_ptr<Job>& job) { return job->secret_ != secret; });
  Terms terms;
  const std::size_t first = jobs.size() - std::min(jobs.size(), Terms::kMostKnown);
  for (std::size_t i = first; i < jobs.size(); ++i) terms.known.push_back(jobs[i]->id_);
  Joined joined;
  terms.give = [&](const std::vector<pid_t>& processes, const std::vector<std::uint64_t>& common) -> Result<Given> {
    Given given;
    for (const auto& job : jobs) {
      if (joined.job == nullptr && std::ranges::find(common, job->id_) != common.end() && job->places_of(processes)) {
        joined.job = job;
        given.job = job->id_;
      }
    }
    if (joined.job == nullptr) {
      GC3_ASSIGN(joined.job, create());
      given.descriptor = joined.job->memory_.descriptor();
    }
    GC3_ASSIGN(given.control, joined.job->allocate(control_bytes, "a communicator"));
    return given;
  };
  GC3_ASSIGN(Met met, meet(meeting, terms));
  joined.control = met.given.control;
  joined.again = met.given.job != 0;
  if (meeting.rank != 0) {
    if (joined.again) {
      joined.job = *std::ranges::find(jobs, met.given.job, &Job::id_);
    } else {
      joined.job.reset(new Job());
      if (Status status = joined.job->open(std::move(met.memory)); !status.ok()) joined.unmapped = status.error();
    }
  }
  Job& job = *joined.job;
  if (joined.again) {
    std::optional<std::vector<std::uint32_t>> places = job.places_of(met.processes);
    if (!places) return Diagnostic(ErrorCode::NotMet, "rank 0 has named a job that other processes have joined");
    joined.members = std::move(*places);
  }
  if (joined.control.bytes != whole_pages(control_bytes) || joined.control.offset < whole_pages(sizeof(Header))) {
    return Diagnostic(ErrorCode::NotMet, "rank 0 has allocated memory for another number of ranks");
  }
  if (joined.again) return joined;
  job.processes_ = std::move(met.processes);
  job.pidfds_ = std::move(met.pidfds);
  joined.members.resize(job.processes_.size());
  std::iota(joined.members.begin(), joined.members.end(), 0U);
  if (joined.unmapped) return joined;
  job.key_ = job.header().key;
  const Digest digest = hmac_sha256(job.key(), "the id of a job");
  std::memcpy(&job.id_, digest.data(), sizeof job.id_);
  job.secret_ = secret;
  if (meeting.jobs != nullptr) meeting.jobs->add(joined.job);
  return joined;
}

std::optional<std::vector<std::uint32_t>> Job::places_of(const std::vector<pid_t>& processes) const {
  std::vector<std::uint32_t> places;
  for (const pid_t process : processes) {
    const auto found = std::ranges::find(processes_, process);
    if (found == processes_.end()) return {};
    places.push_back(static_cast<std::uint32_t>(found - processes_.begin()));
  }
  // Another process may have the id of one that has ended.
  if (!dead(places).empty() || outsider()) return {};
  return places;
}

std::optional<pid_t> Job::outsider() const {
  for (std::uint32_t r = 0; r < size(); ++r) {
    if (!pidfds_[r].valid() || is_own(processes_[r], pidfds_[r])) continue;
    if (dead({r}).empty()) return processes_[r];
  }
  return {};
}

std::vector<std::shared_ptr<Job>> Jobs::all() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Job>> found;
  std::erase_if(jobs_, [&](const std::weak_ptr<Job>& known) {
    std::shared_ptr<Job> job = known.lock();
    if (job == nullptr || !job->here()) return true;
    found.push_back(std::move(job));
    return false;
  });
  return found;
}

void Jobs::add(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(job);
}

Job::Own::~Own() {
  if (witness != nullptr) munmap(witness, kPage);
}

Result<Extent> Job::allocate(std::uint64_t bytes, const std::string& purpose) const {
  GC3_ASSIGN(const Extent part, take(bytes, purpose));
  Status status = reserve(part, purpose);
  if (status.ok()) return part;
  discard(part);
  return std::move(status.error());
}

Result<Extent> Job::take(std::uint64_t bytes, const std::string& purpose) const {
  GC3_CHECK(SharedMemory::afford(bytes, purpose));
  const std::optional<Extent> part = own_->heap.take(own_->window, memory_, bytes);
  if (!part) {
    const std::string size = std::to_string(memory_.size()) + " bytes";
    const bool limited = memory_.size() < SharedMemory::kMostAddresses;
    return Diagnostic(ErrorCode::OutOfMemory,
                      std::to_string(bytes) + " bytes of shared memory for " + purpose + ": " +
                          (limited ? "it is a file, of which rank 0 may have " + size + " (`ulimit -f` raises that)"
                                   : size + " of addresses are used up, or this process may map no more"));
  }
  return *part;
}

Result<Mapping> Job::map(Extent extent) const {
  GC3_ASSIGN(std::uint8_t* const at, own_->window.map(memory_, extent));
  return Mapping(at, extent.bytes);
}

void Job::write(std::uint64_t offset, const void* data, std::size_t bytes) const {
  while (pwrite(memory_.descriptor(), data, bytes, static_cast<off_t>(offset)) < 0 && errno == EINTR) continue;
}

void Job::discard(Extent extent) const {
  const Result<std::uint8_t*> at = own_->window.map(memory_, extent);
  if (at.ok()) own_->heap.give(at.value(), extent);  // without an address it is kept until the job ends
}

std::uint8_t* Job::reach(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t first = offset / kPage * kPage;
  if (offset > memory_.size() || bytes > memory_.size() - offset) return nullptr;
  const Result<std::uint8_t*> at =
      own_->window.map(memory_, {first, std::max<std::uint64_t>(offset - first + bytes, 1)});
  return at.ok() ? at.value() + (offset - first) : nullptr;
}

Result<std::shared_ptr<std::uint8_t>> Job::allocate_shared(std::uint64_t bytes) const {
  GC3_ASSIGN(const Extent part, allocate(bytes, "an array that all ranks can read"));
  Result<Mapping> mapping = map(part);
  if (!mapping.ok()) {
    discard(part);
    return Diagnostic(ErrorCode::OutOfMemory, std::to_string(bytes) + " bytes for an array that all ranks can read: " +
                                                  mapping.error().message);
  }
  mapping.value().populate(0, part.bytes);
  return std::shared_ptr<std::uint8_t>(mapping.value().data(), [own = own_, part](std::uint8_t* memory) {
    if (own->here()) own->heap.give(memory, part);  // in a fork the memory belongs to the parent
  });
}

std::vector<std::uint32_t> Job::dead(const std::vector<std::uint32_t>& ranks) const {
  std::vector<pollfd> watched;
  for (const std::uint32_t r : ranks) watched.push_back(watch_for_end(pidfds_[r].get()));
  std::vector<std::uint32_t> found;
  if (hosts_.several()) {
    std::ranges::copy_if(ranks, std::back_inserter(found),
                         [&](std::uint32_t r) { return !hosts_.is_here(r) && board_.state(r) == Board::State::ended; });
  }
  int answered = 0;
  do {
    answered = poll(watched.data(), watched.size(), 0);
  } while (answered < 0 && errno == EINTR);
  if (answered <= 0) return found;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (has_ended(watched[i])) found.push_back(ranks[i]);
  }
  return found;
}

bool Job::stopped(std::uint32_t rank) const {
  if (hosts_.several() && !hosts_.is_here(rank)) return board_.state(rank) == Board::State::stopped;
  const std::optional<ProcessFacts> facts = facts_of(processes_[rank]);
  return facts && (facts->state == 'T' || facts->state == 't');
}

Job::Job() = default;

Job::~Job() {
  if (!hosts_.several()) return;
  if (!here()) {
    static_cast<void>(mirror_.release());  // in a fork, its thread does not exist
    return;
  }
  const auto own = std::ranges::find(processes_, getpid());
  if (own != processes_.end()) board_.leave(static_cast<std::uint32_t>(own - processes_.begin()));
  mirror_.reset();
}

Status Job::extend(Hosts hosts, Extent board, const Digest& key) {
  GC3_ASSIGN(const Mapping memory, map(board));
  hosts_ = std::move(hosts);
  board_.open(memory, hosts_);
  key_ = key;
  std::size_t ranks = 0;
  for (const Host& host : hosts_.all()) ranks += host.ranks.size();
  std::vector<pid_t> processes(ranks);
  std::vector<FileDescriptor> pidfds(ranks);
  const Host& own = hosts_.all()[hosts_.own()];
  for (std::size_t i = 0; i < own.ranks.size(); ++i) {
    processes[own.ranks[i]] = processes_[i];
    pidfds[own.ranks[i]] = std::move(pidfds_[i]);
  }
  processes_ = std::move(processes);
  pidfds_ = std::move(pidfds);
  return {};
}

void Job::keep(std::unique_ptr<Mirror> mirror) { mirror_ = std::move(mirror); }

std::optional<std::string> Job::lost(std::uint32_t rank) const {
  if (!hosts_.several() || hosts_.is_here(rank)) return {};
  const std::uint32_t host = hosts_.of(rank);
  if (board_.state(rank) == Board::State::lost) return board_.why(host);
  // Without its leader, this host hears nothing.
  const std::uint32_t leader = hosts_.all()[hosts_.own()].ranks.front();
  if (mirror_ != nullptr || dead({leader}).empty()) return {};
  return "rank " + std::to_string(leader) + " (process " + std::to_string(processes_[leader]) +
         "), which connects this host to the others, has ended";
}

void Job::announce_cores() {
  const Cores own = Cores::own();
  for (std::size_t w = 0; w < own.words.size(); ++w) {
    std::atomic_ref(header().cores.words[w]).fetch_or(own.words[w], std::memory_order_relaxed);
  }
}

std::uint32_t Job::cores() const {
  Cores all;
  for (std::size_t w = 0; w < all.words.size(); ++w) {
    all.words[w] = std::atomic_ref(header().cores.words[w]).load(std::memory_order_relaxed);
  }
  return all.count();
}

void Job::pin(const Place& place) {
  const Cores own = Cores::own();
  if (own.count() >= static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN))) own.share_of(place).keep_here();
}

Status die_with_parent(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return refused("PR_SET_PDEATHSIG");
  if (getppid() != parent) kill(getpid(), SIGKILL);
  return {};
}

}  // namespace gc3::core
