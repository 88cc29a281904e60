// Large zeroed memory directly from the system. Pages cost nothing until they are touched, and a request for more than
// is available gives a Diagnostic instead of killing the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gc3/base/result.h"

namespace gc3::cpu {

class Arena {
 public:
  Arena() = default;
  // `purpose` completes "N bytes for ...".
  static Result<Arena> create(std::size_t bytes, const std::string& purpose);
  Arena(Arena&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Arena& operator=(Arena&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Arena();

  // Says that all of it will be used. Where the system offers huge pages on request (`madvise` in
  // /sys/kernel/mm/transparent_hugepage/enabled) it takes them; elsewhere this has no effect.
  void use_all() const;

  std::uint8_t* data() const { return base_; }
  std::size_t size() const { return bytes_; }

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace gc3::cpu
