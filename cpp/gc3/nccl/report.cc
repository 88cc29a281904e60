#include "gc3/nccl/report.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "gc3/base/knobs.h"
#include "gc3/nccl/real.h"

namespace gc3::nccl {
namespace {

enum class Level : std::uint8_t { none, warn, info };

// NCCL_DEBUG is NCCL's own variable, so it is not among the knobs.
Level level() {
  static const Level level = [] {
    const char* const text = process_environment()("NCCL_DEBUG");
    const std::string_view said = text == nullptr ? "" : text;
    if (said == "INFO" || said == "TRACE" || said == "ABORT") return Level::info;
    return said == "WARN" || said == "VERSION" ? Level::warn : Level::none;
  }();
  return level;
}

// To standard output, as NCCL's own lines.
void write_line(const char* what, const std::string& text) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::fprintf(stdout, "%s:%d:%ld NCCL %s GC3: %s\n", host.data(), getpid(), syscall(SYS_gettid), what, text.c_str());
  std::fflush(stdout);
}

struct LastError {
  std::string text;
  std::string of_nccl;  // its last error at that time
};

LastError& problem() {
  static thread_local LastError problem;
  return problem;
}

std::string of_nccl() {
  const char* const text = Real::get().last_error(nullptr);
  return text == nullptr ? "" : text;
}

}  // namespace

void report(const std::string& text) {
  if (level() == Level::info) write_line("INFO", text);
}

void report_problem(const std::string& text) {
  problem() = {"GC3: " + text, of_nccl()};
  if (level() != Level::none) write_line("WARN", text);
}

void report_setup(const std::string& text) {
  if (level() == Level::none) std::fprintf(stderr, "GC3: %s\n", text.c_str());
  report_problem(text);
}

const char* last_problem(void* comm) {
  const LastError& own = problem();
  return own.text.empty() || own.of_nccl != of_nccl() ? Real::get().last_error(comm) : own.text.c_str();
}

}  // namespace gc3::nccl
