#include "mailbox.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace gc3::fake_nccl {
namespace {

std::string place_of(const std::string& folder, int rank) { return folder + "/rank." + std::to_string(rank); }

std::optional<Bytes> read_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct stat found{};
  fstat(file, &found);
  Bytes bytes(static_cast<std::size_t>(found.st_size));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = read(file, bytes.data() + at, bytes.size() - at);
    if (got <= 0) std::abort();
    at += static_cast<std::size_t>(got);
  }
  close(file);
  return bytes;
}

}  // namespace

Mailbox::Mailbox(std::string folder, int rank) : folder_(std::move(folder)), rank_(rank) {
  mkdir(folder_.c_str(), 0700);  // another rank may have made it
  lock_ = open(place_of(folder_, rank_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0 || flock(lock_, LOCK_EX) != 0) std::abort();
}

Mailbox::~Mailbox() {
  unlink(place_of(folder_, rank_).c_str());
  close(lock_);
  rmdir(folder_.c_str());  // succeeds for the last rank, if all messages were taken
}

std::string Mailbox::path(const std::string& name, int from, int to) const {
  return folder_ + "/" + name + "." + std::to_string(from) + "." + std::to_string(to);
}

void Mailbox::post(const std::string& name, const std::vector<int>& to, const void* data, std::size_t bytes) const {
  const std::string draft = path("draft-" + name, rank_, to.front());
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) std::abort();
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t put = write(file, static_cast<const std::byte*>(data) + at, bytes - at);
    if (put <= 0) std::abort();
    at += static_cast<std::size_t>(put);
  }
  close(file);
  for (const int reader : to) {
    if (link(draft.c_str(), path(name, rank_, reader).c_str()) != 0) std::abort();
  }
  unlink(draft.c_str());
}

bool Mailbox::lives(int rank) const {
  if (rank == rank_) return true;
  const int file = open(place_of(folder_, rank).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0;
  close(file);
  return locked;
}

std::optional<Bytes> Mailbox::take(const std::string& name, int from, const std::atomic<bool>& stop,
                                   bool has_come) const {
  const std::string file = path(name, from, rank_);
  std::chrono::microseconds pause(20);
  while (!stop) {
    const bool there = !has_come || lives(from);  // before the look at the file: what it has posted is there by now
    if (auto found = read_file(file)) {
      unlink(file.c_str());
      return found;
    }
    if (!there) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  return std::nullopt;
}

}  // namespace gc3::fake_nccl
