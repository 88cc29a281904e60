#include "gc3/base/interrupt.h"

#include <utility>

namespace gc3 {
namespace {

// Set per thread, and only while an Interruptible on its stack is alive.
const Hook*& hook_here() {
  thread_local const Hook* hook = nullptr;
  return hook;
}

}  // namespace

Interruptible::Interruptible(Hook hook) : hook_(std::move(hook)), outer_(std::exchange(hook_here(), &hook_)) {}
Interruptible::~Interruptible() { hook_here() = outer_; }

void call_hook() {
  if (const Hook* hook = hook_here(); hook != nullptr) (*hook)();
}

}  // namespace gc3
