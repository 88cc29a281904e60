#include "gc3/nccl/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "gc3/base/random.h"
#include "gc3/base/text.h"
#include "gc3/ir/file.h"
#include "gc3/nccl/overlay.h"
#include "gc3/nccl/real.h"
#include "gc3/nccl/report.h"

namespace gc3::nccl {
namespace {

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : shown(text)) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + "\"";
}

// Counts of a bucket: of n bits, thus from 2^(n-1) to 2^n - 1.
std::string counts(std::size_t bits) {
  const std::uint64_t first = bits == 0 ? 0 : std::uint64_t{1} << (bits - 1);
  return "\"from\": " + std::to_string(first) + ", \"to\": " + std::to_string(bits == 0 ? 0 : first + (first - 1));
}

}  // namespace

void Log::open(const std::string& folder) {
  if (folder.empty()) return;
  // Processes of other hosts and containers, whose numbers may be the same, may write into the folder, too.
  std::array<std::uint64_t, 1> word{};
  if (const Status drawn = draw_random(word); !drawn.ok()) report_setup("GC3_NCCL_LOG: " + drawn.error().str());
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  host_ = host.data();
  process_ = getpid();
  std::ostringstream name;
  name << folder << "/gc3-nccl-" << host_ << '-' << process_ << '-' << std::hex << word[0] << ".json";
  file_ = name.str();
  // A process may not see a failure when it ends.
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    report_setup("GC3_NCCL_LOG: cannot make the folder '" + shown(folder) + "': " + std::strerror(errno));
  }
  std::atexit([] { Overlay::get().log().write(); });
}

void Log::left_because(const Call& call, const std::string& why) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  ++reasons_[{call.function, why}];
}

void Log::served(const Call& call, const std::string& program, std::int64_t ns) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  Served& entry = served_[{call.function, log2(call.count), program}];
  ++entry.calls;
  entry.ns += ns;
}

std::string Log::text() {
  std::ostringstream out;
  const std::lock_guard lock(mutex_);
  out << "{\"format\": \"gc3-nccl-log-2\", \"host\": " << quoted(host_) << ", \"process\": " << process_
      << ", \"nccl\": " << quoted(Real::get().path()) << ",\n \"served\": [";
  const char* comma = "\n  ";
  for (const auto& [key, entry] : served_) {
    const auto& [function, bits, program] = key;
    out << comma << "{\"function\": \"" << name_of(function) << "\", " << counts(bits)
        << ", \"program\": " << quoted(program) << ", \"calls\": " << entry.calls << ", \"host_ns\": " << entry.ns
        << "}";
    comma = ",\n  ";
  }
  out << "],\n \"left\": [";
  comma = "\n  ";
  for (std::size_t f = 0; f < left_.size(); ++f) {
    for (std::size_t bits = 0; bits < left_[f].size(); ++bits) {
      const std::uint64_t calls = left_[f][bits].load(std::memory_order_relaxed);
      if (calls == 0) continue;
      out << comma << "{\"function\": \"" << kFunctionNames[f] << "\", " << counts(bits) << ", \"calls\": " << calls
          << "}";
      comma = ",\n  ";
    }
  }
  out << "],\n \"reasons\": [";
  comma = "\n  ";
  for (const auto& [key, calls] : reasons_) {
    out << comma << "{\"function\": \"" << name_of(std::get<0>(key)) << "\", \"why\": " << quoted(std::get<1>(key))
        << ", \"calls\": " << calls << "}";
    comma = ",\n  ";
  }
  out << "]}\n";
  return out.str();
}

void Log::write() {
  if (!on() || getpid() != process_) return;  // a child of a fork has its parent's counts
  const std::string content = text();
  const auto* const bytes = reinterpret_cast<const std::byte*>(content.data());
  if (const Status status = ir::write_file(file_, {bytes, content.size()}); !status.ok()) {
    report_problem(status.error().str());
  }
}

}  // namespace gc3::nccl
