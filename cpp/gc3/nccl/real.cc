#include "gc3/nccl/real.h"

#include <dlfcn.h>

#include "gc3/base/knobs.h"
#include "gc3/nccl/report.h"

namespace gc3::nccl {
namespace {

// The library that this code is in.
const void* own_base() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&own_base), &info) == 0 ? nullptr : info.dli_fbase;
}

// Its functions are bound to each other first. Otherwise those that it calls by name would be the overlay's, which
// precede it. Sanitizers refuse that; `Inside` has the same effect, but only in calls from here.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kMode = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

}  // namespace

bool& Inside::entered() {
  static thread_local bool entered = false;
  return entered;
}

Real::Real() {
  const Result<Knobs> knobs = read_knobs();
  if (!knobs.ok()) {
    problem_ = knobs.error().str();
    return;
  }
  path_ = knobs.value().nccl.empty() ? "libnccl.so.2" : knobs.value().nccl;
  void* const handle = dlopen(path_.c_str(), kMode);  // never closed: NCCL's threads may run
  if (handle == nullptr) {
    const char* const why = dlerror();
    problem_ = "no NCCL below GC3's: " + std::string(why == nullptr ? path_ : why);
    return;
  }
  void* const known = dlsym(handle, "ncclGetVersion");
  Dl_info info{};
  if (known == nullptr || dladdr(known, &info) == 0 || info.dli_fbase == own_base()) {
    problem_ =
        "no NCCL below GC3's: " + path_ + (known == nullptr ? " has no ncclGetVersion" : " is GC3's own library");
    return;
  }
  handle_ = handle;
  if (info.dli_fname != nullptr) path_ = info.dli_fname;
#define GC3_NCCL_REAL(member, symbol, parameters) member = reinterpret_cast<decltype(member)>(find(#symbol));
#include "gc3/nccl/real_functions.def"
#undef GC3_NCCL_REAL
  error_string_ = reinterpret_cast<const char* (*)(int)>(find("ncclGetErrorString"));
  last_error_ = reinterpret_cast<const char* (*)(Comm)>(find("ncclGetLastError"));
}

const Real& Real::get() {
  static const Real* const real = new Real;  // never deleted: threads may call it while the process ends
  return *real;
}

void* Real::find(const char* symbol) const { return handle_ == nullptr ? nullptr : dlsym(handle_, symbol); }

const char* Real::error_string(int answer) const {
  return error_string_ == nullptr ? "there is no NCCL below GC3's" : error_string_(answer);
}

const char* Real::last_error(Comm comm) const { return last_error_ == nullptr ? "" : last_error_(comm); }

int missing(const char* symbol) {
  const Real& real = Real::get();
  if (!real.problem().empty()) {
    report_problem(real.problem() + ": start the program with `gc3 nccl run`, or name NCCL's library in GC3_NCCL");
    return kSystemError;
  }
  report_problem(real.path() + " has no " + symbol);
  return kInvalidUsage;
}

}  // namespace gc3::nccl
