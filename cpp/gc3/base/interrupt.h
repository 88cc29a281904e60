// How long work on one thread learns that its caller does not want it any more.
//
// Compiling, proving and simulating are pure functions of many passes. Handing a flag through all of them would be in
// the signature of every loop, so the caller leaves a hook for its thread, and loops call `breathe`. A hook ends the
// work by an exception of the caller's, which nothing below catches and which unwinds as std::bad_alloc would. Without
// a hook, as in C++ programs, nothing ever throws.
#pragma once

#include <cstdint>
#include <functional>

namespace gc3 {

using Hook = std::function<void()>;

// Leaves `hook` for this thread while it lives; hooks nest.
class Interruptible {
 public:
  explicit Interruptible(Hook hook);
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
  ~Interruptible();

 private:
  Hook hook_;
  const Hook* outer_;
};

// Calls the hook of this thread now, if there is one.
void call_hook();

// For loops: calls the hook once in `kBreath` of its own calls. An object per loop, so that counting costs next to
// nothing.
class Breath {
 public:
  void operator()() {
    if (++done_ % kBreath == 0) call_hook();
  }

 private:
  static constexpr std::uint32_t kBreath = 1U << 12U;
  std::uint32_t done_ = 0;
};

}  // namespace gc3
