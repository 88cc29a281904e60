// An exception that leaves a thread of the library ends the process of the program that uses it.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/result.h"

namespace gc3 {

// What `work` returns, or the failure of an allocation within it, the one exception that the library itself meets.
template <class Work>
Status guarded(Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return Diagnostic(ErrorCode::OutOfMemory, "an allocation has failed");
  } catch (const std::exception& other) {
    return Diagnostic(ErrorCode::Internal, other.what());
  }
}

}  // namespace gc3
