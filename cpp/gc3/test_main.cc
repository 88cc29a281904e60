#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
// The sanitizer knows one table of descriptors for a process. The thread that answers late ranks has its own, where the
// same numbers mean other files.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:answer_late_ranks\n";
}
#endif
