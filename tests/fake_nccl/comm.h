// Communicators of the fake NCCL, their work on streams, and groups.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collective.h"
#include "mailbox.h"

namespace gc3::fake_nccl {

enum Answer : int {
  kSuccess = 0,
  kCudaError = 1,
  kSystemError = 2,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};

// The beginning of ncclConfig_t, which is the same since NCCL 2.18.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
constexpr unsigned kMagic = 0xcafebeef;

struct UserOp {
  int type;
  Bytes scalar;        // of the host
  const void* device;  // or of the device, read when the call is executed
};

struct Message {
  bool sends;
  int peer;
  void* data;
  std::size_t bytes;
  std::uint64_t number;  // of this sender and receiver
};

struct Comm;

// A collective, or the sends and receives of a communicator in a group.
struct Work {
  std::shared_ptr<Comm> comm;
  void* stream = nullptr;
  Header header{};
  const void* send = nullptr;
  void* recv = nullptr;
  std::shared_ptr<const UserOp> scaled;
  std::uint64_t number = 0;
  std::vector<Message> messages;
  std::uint64_t runs = 0;  // more than one with graphs
};

struct Comm : std::enable_shared_from_this<Comm> {
  std::shared_ptr<Comm> self;  // until it is destroyed; what is on streams still uses it afterwards
  int rank = 0;
  int ranks = 0;
  int device = 0;
  bool blocking = true;
  std::unique_ptr<Mailbox> mailbox;
  std::atomic<int> error{kSuccess};
  std::atomic<bool> aborted{false};  // ends all waits
  std::atomic<bool> stopped{false};  // ends those of streams
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::atomic<int> outstanding{0};  // work on streams, without graphs
  // Of the thread that makes the calls. A job of a non-blocking communicator uses none of these.
  std::uint64_t calls = 0;
  std::uint64_t children = 0;
  std::map<std::pair<bool, int>, std::uint64_t> messages;  // sent to and received from a peer
  std::vector<std::unique_ptr<Work>> captured;
  std::map<int, std::shared_ptr<const UserOp>> ops;
  int last_op = 4;
  std::mutex mutex;  // of the following: another thread asks for errors
  std::shared_future<int> job;
  int polls = 0;  // how often the job is still said to be in progress

  // Success, or why no call may be made. As NCCL, refuses calls before an earlier one was seen to have ended.
  int ready();
  int async_error();
  void wait_for_job();
  // Waits for all ranks of a new communicator.
  int meet();
};

// Opens the current device for a new communicator.
int device_here(int* device);
// Calls a function with the device current.
int on_device(int device, const std::function<int()>& work);

// A step of a call: at once, at the end of the thread's group, or in another thread if the communicator is
// non-blocking. Such steps of a group that wait for other ranks (`meets`) go side by side.
int step(const std::shared_ptr<Comm>& comm, bool meets, std::function<int()> run);
int submit(std::unique_ptr<Work> work);
int group_start();
int group_end();

}  // namespace gc3::fake_nccl
