// Lets a caller end long work on its thread, for example after Ctrl-C.
//
// Compiling, proving and simulating are pure functions of many passes. A flag handed through all of them would stand in
// the signature of every loop. Instead the caller sets a hook for its thread, and loops call `breathe`. The hook ends
// the work by throwing an exception of the caller's. Nothing below catches it; it unwinds as std::bad_alloc would.
// Without a hook, as in C++ programs, nothing throws.
#pragma once

#include <cstdint>
#include <functional>

namespace gc3 {

using Hook = std::function<void()>;

// Sets `hook` for this thread while the object lives; hooks nest.
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

// For loops: calls the hook once in `kBreath` of its own calls. Each loop has its own object, so counting is cheap.
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
