// The NCCL below the overlay: every call that is not taken over goes to it.
#pragma once

#include <cstddef>
#include <string>

namespace gc3::nccl {

using Comm = void*;
using Stream = void*;

// Numbers of nccl.h.
enum Answer : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};
inline constexpr int kUint8 = 1;
inline constexpr int kShrinkAbort = 1;

class Real {
 public:
  // Found and loaded at the first call.
  static const Real& get();

  // The address of a function; null: this NCCL has none of that name.
  void* find(const char* symbol) const;
  // Why there is no NCCL; empty if there is one.
  const std::string& problem() const { return problem_; }
  const std::string& path() const { return path_; }
  const char* error_string(int answer) const;
  const char* last_error(Comm comm) const;

#define GC3_NCCL_REAL(member, symbol, parameters) int(*member) parameters = nullptr;
#include "gc3/nccl/real_functions.def"
#undef GC3_NCCL_REAL

 private:
  Real();
  void* handle_ = nullptr;
  std::string path_;
  std::string problem_;
  const char* (*error_string_)(int) = nullptr;
  const char* (*last_error_)(Comm) = nullptr;
};

// Whether this thread is in a call of the NCCL below. That library may call its own functions by name, which can lead
// back to the overlay: these calls are not taken over a second time.
class Inside {
 public:
  Inside() : before_(entered()) { entered() = true; }
  ~Inside() { entered() = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool& entered();

 private:
  bool before_;
};

// The answer to a call of a function that the NCCL below does not have, or without any NCCL; says why once.
int missing(const char* symbol);

// Calls a function of the NCCL below.
template <class... Parameters, class... Arguments>
int ask(const char* symbol, int (*function)(Parameters...), Arguments... arguments) {
  if (function == nullptr) return missing(symbol);
  const Inside inside;
  return function(arguments...);
}

}  // namespace gc3::nccl
