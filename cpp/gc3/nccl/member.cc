#include "gc3/nccl/member.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/waiting/wait_policy.h"

namespace gc3::nccl {
namespace {

Status checked(int answer, const std::string& what) {
  if (answer == kSuccess) return {};
  const Real& real = Real::get();
  const char* const more = real.last_error(nullptr);  // of any communicator: this one may be aborted meanwhile
  const ErrorId code = answer == kRemoteError ? ErrorCode::RankLost : ErrorCode::CudaFailed;
  return Diagnostic(
      code, what + ": " + real.error_string(answer) + (more == nullptr || *more == 0 ? "" : ", " + std::string(more)));
}

// Between two looks at what other ranks or NCCL do. The thread may be one beside those of the program.
void rest() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

// The end of an operation of a communicator that may be non-blocking.
Status finished(const Member& member, int answer, const std::string& what, core::WaitClock& clock, double timeout_s) {
  while (answer == kInProgress) {
    if (clock.waited_s() > timeout_s) return Diagnostic(ErrorCode::Timeout, what);
    rest();
    Held held;
    GC3_CHECK(held.add(member));
    const int asked = ask("ncclCommGetAsyncError", Real::get().async_error, member.comm, &answer);
    if (asked != kSuccess) answer = asked;
  }
  return checked(answer, what);
}

constexpr const char* kWhat = "an exchange between the ranks";

}  // namespace

Result<std::unique_ptr<Member>> Member::of(Comm comm, const std::shared_ptr<cuda::Runtime>& runtime) {
  const Real& real = Real::get();
  int rank = 0;
  int ranks = 0;
  int device = 0;
  GC3_CHECK(checked(ask("ncclCommUserRank", real.rank, comm, &rank), "the rank of a communicator"));
  GC3_CHECK(checked(ask("ncclCommCount", real.count, comm, &ranks), "the size of a communicator"));
  GC3_CHECK(checked(ask("ncclCommCuDevice", real.device, comm, &device), "the device of a communicator"));
  auto made = std::make_unique<Member>();
  made->comm = comm;
  made->rank = static_cast<std::uint32_t>(rank);
  made->ranks = static_cast<std::uint32_t>(ranks);
  made->runtime = runtime;
  GC3_ASSIGN(made->device, runtime->device(device));
  GC3_ASSIGN(made->stream, cuda::Stream::create(made->device));
  GC3_ASSIGN(made->memory, cuda::Memory::on(made->device, (made->ranks + 1) * kMessageBytes, "messages of ranks"));
  return made;
}

Member::~Member() {
  if (!aborted) return;
  // NCCL's kernels of an exchange that was aborted may use the memory until they notice it.
  const cuda::CaptureRelaxed relaxed(device->driver());
  static_cast<void>(stream.synchronize());
}

Status Member::alive() const {
  return aborted ? Status(Diagnostic(ErrorCode::Aborted, "the communicator is aborted")) : Status();
}

void Member::abort() {
  const std::lock_guard lock(handle);
  aborted = true;
}

Status Held::add(const Member& member) {
  if (member.non_blocking) locks_.emplace_back(member.handle);
  return member.alive();
}

bool Member::in_progress() const {
  int error = kSuccess;
  return !aborted && ask("ncclCommGetAsyncError", Real::get().async_error, comm, &error) == kSuccess &&
         error == kInProgress;
}

Status wait_for_last(const Member& member, double timeout_s) {
  core::WaitClock clock;
  return finished(member, kInProgress, "the end of the last call of a communicator", clock, timeout_s);
}

Result<int> begin_telling(std::span<Message> messages) {
  const Real& real = Real::get();
  for (const Message& m : messages) GC3_CHECK(m.of->memory.write(m.own.data(), 0, kMessageBytes));
  Held held;
  for (const Message& m : messages) GC3_CHECK(held.add(*m.of));
  GC3_CHECK(checked(ask("ncclGroupStart", real.group_start), kWhat));
  int answer = kSuccess;
  for (const Message& m : messages) {
    std::uint8_t* const base = m.of->memory.data();
    const cuda::Current current(*m.of->device);
    answer =
        ask("ncclAllGather", real.all_gather, static_cast<const void*>(base), static_cast<void*>(base + kMessageBytes),
            kMessageBytes, kUint8, m.of->comm, static_cast<Stream>(m.of->stream.get()));
    if (answer != kSuccess && answer != kInProgress) break;
  }
  const int ended = ask("ncclGroupEnd", real.group_end);
  if (answer != kSuccess && answer != kInProgress) return checked(answer, kWhat).error();
  for (const Message& m : messages) m.of->non_blocking = m.of->non_blocking || ended == kInProgress;
  return ended;
}

Status tell_all(std::span<Message> messages, double timeout_s) {
  GC3_ASSIGN(const int answer, begin_telling(messages));
  return end_telling(messages, answer, timeout_s);
}

Status end_telling(std::span<Message> messages, int answer, double timeout_s) {
  core::WaitClock clock;
  for (const Message& m : messages) GC3_CHECK(finished(*m.of, answer, kWhat, clock, timeout_s));
  for (Message& m : messages) {
    const cuda::Current current(*m.of->device);
    const cuda::CaptureRelaxed relaxed(m.of->device->driver());
    const cuda::Driver& driver = m.of->device->driver();
    GC3_ASSIGN(const cuda::Event done, cuda::Event::create(m.of->device, false));
    GC3_CHECK(driver.check(driver->record_event(done.get(), m.of->stream.get()), kWhat));
    for (int found = cuda::kCudaNotReady; found == cuda::kCudaNotReady;) {
      found = driver->query_event(done.get());
      if (found == cuda::kCudaSuccess) break;
      if (found != cuda::kCudaNotReady) return driver.check(found, kWhat);
      GC3_CHECK(m.of->alive());
      if (clock.waited_s() > timeout_s) {
        return Diagnostic(ErrorCode::Timeout,
                          "the other ranks do not take part: every rank needs the overlay and the same programs");
      }
      rest();
    }
    // NCCL's work also ends when a rank is lost or the communicator is aborted, which frees its handle; nothing has
    // been received then.
    int failed = kSuccess;
    {
      Held held;
      GC3_CHECK(held.add(*m.of));
      const int asked = ask("ncclCommGetAsyncError", Real::get().async_error, m.of->comm, &failed);
      GC3_CHECK(checked(asked == kSuccess ? failed : asked, kWhat));
    }
    std::vector<std::byte> bytes(m.of->ranks * kMessageBytes);
    GC3_CHECK(m.of->memory.read(bytes.data(), kMessageBytes, bytes.size()));
    for (std::uint32_t r = 0; r < m.of->ranks; ++r) {
      const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(r * kMessageBytes);
      m.all.emplace_back(at, at + kMessageBytes);
    }
  }
  return {};
}

void Problem::set(const Diagnostic& diagnostic) {
  const std::string said =
      std::string(diagnostic.info().code) + " " + std::string(diagnostic.info().title) + ": " + diagnostic.message;
  std::memcpy(text, said.data(), std::min(said.size(), sizeof text - 1));
}

}  // namespace gc3::nccl
