#include "gc3/nccl/member.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"
#include "gc3/base/errors/processes.h"

namespace gc3::nccl {
namespace {

using Clock = std::chrono::steady_clock;

Status checked(Comm comm, int answer, const std::string& what) {
  if (answer == kSuccess) return {};
  const Real& real = Real::get();
  const char* const more = real.last_error(comm);
  const ErrorId code = answer == kRemoteError ? ErrorCode::RankLost : ErrorCode::CudaFailed;
  return Diagnostic(
      code, what + ": " + real.error_string(answer) + (more == nullptr || *more == 0 ? "" : ", " + std::string(more)));
}

// The end of an operation of a communicator that may be non-blocking.
Status finished(const Member& member, int answer, const std::string& what, Clock::time_point end) {
  while (answer == kInProgress) {
    if (member.aborted) return Diagnostic(ErrorCode::Aborted, "the communicator is aborted");
    if (Clock::now() > end) return Diagnostic(ErrorCode::Timeout, what);
    std::this_thread::yield();
    const int asked = ask("ncclCommGetAsyncError", Real::get().async_error, member.comm, &answer);
    if (asked != kSuccess) answer = asked;
  }
  return checked(member.comm, answer, what);
}

Status put_all(std::span<Message> messages, Clock::time_point end) {
  const Real& real = Real::get();
  constexpr const char* kWhat = "an exchange between the ranks";
  GC3_CHECK(checked(nullptr, ask("ncclGroupStart", real.group_start), kWhat));
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
  if (answer != kSuccess && answer != kInProgress) return checked(messages[0].of->comm, answer, kWhat);
  for (const Message& m : messages) GC3_CHECK(finished(*m.of, ended, kWhat, end));
  return {};
}

}  // namespace

Result<std::unique_ptr<Member>> Member::of(Comm comm, const std::shared_ptr<cuda::Runtime>& runtime) {
  const Real& real = Real::get();
  int rank = 0;
  int ranks = 0;
  int device = 0;
  GC3_CHECK(checked(comm, ask("ncclCommUserRank", real.rank, comm, &rank), "the rank of a communicator"));
  GC3_CHECK(checked(comm, ask("ncclCommCount", real.count, comm, &ranks), "the size of a communicator"));
  GC3_CHECK(checked(comm, ask("ncclCommCuDevice", real.device, comm, &device), "the device of a communicator"));
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

bool Member::in_progress() const {
  int error = kSuccess;
  return ask("ncclCommGetAsyncError", Real::get().async_error, comm, &error) == kSuccess && error == kInProgress;
}

Status tell_all(std::span<Message> messages, double timeout_s) {
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  for (const Message& m : messages) GC3_CHECK(m.of->memory.write(m.own.data(), 0, kMessageBytes));
  GC3_CHECK(put_all(messages, end));
  for (Message& m : messages) {
    const cuda::Current current(*m.of->device);
    const cuda::CaptureRelaxed relaxed(m.of->device->driver());
    const cuda::Driver& driver = m.of->device->driver();
    GC3_ASSIGN(const cuda::Event done, cuda::Event::create(m.of->device, false));
    GC3_CHECK(driver.check(driver->record_event(done.get(), m.of->stream.get()), "an exchange between the ranks"));
    for (int found = cuda::kCudaNotReady; found == cuda::kCudaNotReady;) {
      found = driver->query_event(done.get());
      if (found == cuda::kCudaSuccess) break;
      if (found != cuda::kCudaNotReady) return driver.check(found, "an exchange between the ranks");
      if (m.of->aborted) return Diagnostic(ErrorCode::Aborted, "the communicator is aborted");
      if (Clock::now() > end) {
        return Diagnostic(ErrorCode::Timeout,
                          "the other ranks do not take part: every rank needs the overlay and the same programs");
      }
      std::this_thread::yield();
    }
    // NCCL's work also ends when a rank is lost or the communicator is aborted, which frees its handle; nothing has
    // been received then.
    if (m.of->aborted) return Diagnostic(ErrorCode::Aborted, "the communicator is aborted");
    int failed = kSuccess;
    const int asked = ask("ncclCommGetAsyncError", Real::get().async_error, m.of->comm, &failed);
    GC3_CHECK(checked(m.of->comm, asked == kSuccess ? failed : asked, "an exchange between the ranks"));
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
