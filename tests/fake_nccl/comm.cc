#include "comm.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

namespace gc3::fake_nccl {
namespace {

constexpr int kPolls = 10;

template <class Function>
Function driver(const char* symbol) {
  static void* const library = dlopen(std::getenv("GC3_CUDA_DRIVER"), RTLD_NOW);
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

std::vector<int> everyone(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Bytes copy_of(const void* data, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(data);
  return bytes == 0 ? Bytes() : Bytes(from, from + bytes);
}

std::string numbered(char kind, std::uint64_t number, const std::string& run) {
  return std::string(1, kind).append(std::to_string(number)).append("-").append(run);
}

void collective(Work& work, const std::string& name) {
  Comm& comm = *work.comm;
  const Header& header = work.header;
  Bytes input = copy_of(work.send, input_bytes(header, comm.rank, comm.ranks));
  if (work.scaled != nullptr) {
    const UserOp& op = *work.scaled;
    scale(header.type, input, op.device == nullptr ? op.scalar : copy_of(op.device, bytes_of(op.type)));
  }
  Bytes whole = copy_of(&header, sizeof header);
  whole.insert(whole.end(), input.begin(), input.end());
  comm.mailbox->post(name, everyone(comm.ranks), whole.data(), whole.size());
  std::vector<Bytes> inputs;
  bool fits = true;
  for (int r = 0; r < comm.ranks; ++r) {
    auto given = comm.mailbox->take(name, r, comm.stopped, true);
    if (!given) {
      if (!comm.stopped) comm.error = kRemoteError;
      return;
    }
    Header other;
    std::memcpy(&other, given->data(), sizeof other);
    fits = fits && other == header;
    inputs.emplace_back(given->begin() + sizeof other, given->end());
  }
  if (!fits) {
    comm.error = kRemoteError;
    return;
  }
  const Bytes result = compute(header, comm.rank, inputs);
  if (!result.empty()) std::memcpy(work.recv, result.data(), result.size());
}

void send_and_receive(Work& work, const std::string& run) {
  Comm& comm = *work.comm;
  const auto name = [&](const Message& m) { return numbered('p', m.number, run); };
  for (const Message& m : work.messages) {
    if (m.sends) comm.mailbox->post(name(m), {m.peer}, m.data, m.bytes);
  }
  for (const Message& m : work.messages) {
    if (m.sends) continue;
    const auto found = comm.mailbox->take(name(m), m.peer, comm.stopped, true);
    if (!found || found->size() != m.bytes) {
      if (!comm.stopped) comm.error = kRemoteError;
      return;
    }
    if (m.bytes != 0) std::memcpy(m.data, found->data(), m.bytes);
  }
}

void execute(Work& work) {
  const std::string run = std::to_string(work.runs++);
  if (work.messages.empty()) {
    collective(work, numbered('c', work.number, run));
  } else {
    send_and_receive(work, run);
  }
}

void execute_once(void* data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(data));
  execute(*work);
  --work->comm->outstanding;
}

void execute_again(void* data) { execute(*static_cast<Work*>(data)); }

int put(std::unique_ptr<Work> work) {
  static const auto launch = driver<int (*)(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  static const auto capturing = driver<int (*)(void*, int*)>("cuStreamIsCapturing");
  Comm& comm = *work->comm;
  return on_device(comm.device, [&] {
    int captured = 0;
    if (capturing(work->stream, &captured) != 0) return int{kCudaError};
    void* const stream = work->stream;
    if (captured != 0) {
      // The graph may live longer than the communicator; it may not be launched any more then.
      work->comm = std::shared_ptr<Comm>(std::shared_ptr<Comm>(), &comm);
      comm.captured.push_back(std::move(work));
      return launch(stream, execute_again, comm.captured.back().get()) == 0 ? int{kSuccess} : int{kCudaError};
    }
    ++comm.outstanding;
    return launch(stream, execute_once, work.release()) == 0 ? int{kSuccess} : int{kCudaError};
  });
}

struct Step {
  std::shared_ptr<Comm> comm;
  bool meets;
  std::function<int()> run;
};
struct Group {
  int depth = 0;
  std::vector<Step> steps;
  std::vector<std::pair<Comm*, Work*>> messages;  // work of sends and receives, which later ones are added to
};
Group& group() {
  static thread_local Group group;
  return group;
}

int run_all(std::vector<Step> steps) {
  std::vector<std::future<int>> meetings;
  for (const Step& step : steps) {
    if (step.meets) meetings.push_back(std::async(std::launch::async, step.run));
  }
  int answer = kSuccess;
  const auto note = [&](int given) { answer = answer == kSuccess ? given : answer; };
  for (auto& meeting : meetings) note(meeting.get());
  for (const Step& step : steps) {
    if (!step.meets) note(step.run());
  }
  return answer;
}

int begin(std::vector<Step> steps) {
  bool blocking = true;
  std::vector<std::shared_ptr<Comm>> comms;
  for (const Step& step : steps) {
    blocking = blocking && step.comm->blocking;
    comms.push_back(step.comm);
  }
  if (blocking) return run_all(std::move(steps));
  const std::shared_future<int> job =
      std::async(std::launch::async, [steps = std::move(steps)]() mutable { return run_all(std::move(steps)); });
  for (const auto& comm : comms) {
    const std::lock_guard lock(comm->mutex);
    comm->job = job;
    comm->polls = kPolls;
  }
  return kInProgress;
}

}  // namespace

int Comm::async_error() {
  const std::lock_guard lock(mutex);
  if (job.valid()) {
    if (polls > 0) --polls;
    if (polls > 0 || job.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return kInProgress;
    if (const int answer = job.get(); answer != kSuccess) error = answer;
    job = {};
  }
  return error;
}

int Comm::ready() {
  if (finalized) return kInvalidArgument;
  if (revoked) return kInvalidUsage;
  std::unique_lock lock(mutex);
  if (job.valid()) return kInvalidArgument;
  return error;
}

void Comm::wait_for_job() {
  std::shared_future<int> last;
  {
    const std::lock_guard lock(mutex);
    last = std::exchange(job, {});
  }
  if (last.valid()) last.wait();
}

int Comm::meet() {
  mailbox->post("i", everyone(ranks), "", 0);
  for (int r = 0; r < ranks; ++r) {
    if (!mailbox->take("i", r, aborted, false)) return kRemoteError;
  }
  return kSuccess;
}

int device_here(int* device) {
  static const auto find = driver<int (*)(int*)>("cuCtxGetDevice");
  return find(device) == 0 ? kSuccess : kCudaError;
}

int on_device(int device, const std::function<int()>& work) {
  static const auto retain = driver<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  static const auto push = driver<int (*)(void*)>("cuCtxPushCurrent_v2");
  static const auto pop = driver<int (*)(void**)>("cuCtxPopCurrent_v2");
  void* context = nullptr;
  if (retain(&context, device) != 0 || push(context) != 0) return kCudaError;
  const int answer = work();
  pop(&context);
  return answer;
}

int step(const std::shared_ptr<Comm>& comm, bool meets, std::function<int()> run) {
  std::vector<Step> one;
  one.push_back({comm, meets, std::move(run)});
  if (group().depth == 0) return begin(std::move(one));
  group().steps.push_back(std::move(one.front()));
  return kSuccess;
}

int submit(std::unique_ptr<Work> work) {
  const std::shared_ptr<Comm> comm = work->comm;
  if (const int answer = comm->ready(); answer != kSuccess) return answer;
  if (work->messages.empty()) {
    work->number = comm->calls++;
  } else {
    Message& message = work->messages.front();
    message.number = comm->messages[{message.sends, message.peer}]++;
    for (const auto& [of, earlier] : group().messages) {
      if (of != comm.get()) continue;
      earlier->messages.push_back(message);
      return kSuccess;
    }
    if (group().depth > 0) group().messages.emplace_back(comm.get(), work.get());
  }
  const auto held = std::make_shared<std::unique_ptr<Work>>(std::move(work));
  return step(comm, false, [held] { return put(std::move(*held)); });
}

int group_start() {
  ++group().depth;
  return kSuccess;
}

int group_end() {
  Group& open = group();
  if (open.depth == 0) return kInvalidUsage;
  if (--open.depth > 0) return kSuccess;
  open.messages.clear();
  auto steps = std::exchange(open.steps, {});
  return steps.empty() ? kSuccess : begin(std::move(steps));
}

}  // namespace gc3::fake_nccl
