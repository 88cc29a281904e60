// Messages between ranks, which are threads of one process or of several: files of a folder.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace gc3::fake_nccl {

using Bytes = std::vector<std::byte>;

class Mailbox {
 public:
  // Shows the other ranks that this one is there, as long as this object and its process live.
  Mailbox(std::string folder, int rank);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // A message to some ranks is one file with a name for each reader, so its memory is freed by the last one.
  void post(const std::string& name, const std::vector<int>& to, const void* data, std::size_t bytes) const;
  // Waits for a message. None: `stop` is set, or the sender has left or died; the latter only for a sender that must
  // have come before.
  std::optional<Bytes> take(const std::string& name, int from, const std::atomic<bool>& stop, bool has_come) const;
  const std::string& folder() const { return folder_; }

 private:
  std::string path(const std::string& name, int from, int to) const;
  bool lives(int rank) const;

  std::string folder_;
  int rank_;
  int lock_;
};

}  // namespace gc3::fake_nccl
