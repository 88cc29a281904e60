// Coverage-guided fuzzing with g++. The libraries are built with -fsanitize-coverage=trace-pc, which calls
// __sanitizer_cov_trace_pc at each branch. An input that reaches a new edge, or an edge another magnitude of times, is
// kept and mutated further.
//   gc3_fuzz MINUTES SEED CORPUS FOUND   mutates the files of CORPUS, keeps new inputs in FOUND, and a failing input as
//                                        FOUND/failed
//   gc3_fuzz --minimize TO FROM...       copies files of FROM to TO that together reach all edges that FROM reaches
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/mix64.h"
#include "gc3/ir/file.h"
#include "judge.h"
#include "mutate.h"

namespace {

using gc3::fuzz::Input;
using Clock = std::chrono::steady_clock;

constexpr unsigned kHangSeconds = 20;  // of processor time, because the machine may be busy with other work

// Global, because the coverage callback has no arguments, and a failure can happen at any time.
std::array<std::uint8_t, std::size_t{1} << 16U> g_hits;
std::uint64_t g_previous;
const Input* g_current;
std::string g_failed_path;

void keep_failed() {
  if (g_current == nullptr) return;
  static_cast<void>(gc3::ir::write_file(g_failed_path, *std::exchange(g_current, nullptr)));
  std::fprintf(stderr, "the input is in %s\n", g_failed_path.c_str());
}

void on_signal(int signal) {
  keep_failed();
  std::fprintf(stderr, signal == SIGPROF ? "it took more than %u s\n" : "aborted\n", kHangSeconds);
  _exit(1);
}

// Requests a SIGPROF after `seconds` of processor time; 0 cancels it.
void limit_time(unsigned seconds) {
  const itimerval limit = {{0, 0}, {static_cast<time_t>(seconds), 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

// Runs inputs, and finds whether one reaches a new edge or, with `counts`, an edge another magnitude of times.
class Coverage {
 public:
  explicit Coverage(bool counts) : counts_(counts) {}
  bool run(const Input& input) {
    g_hits.fill(0);
    g_previous = 0;
    g_current = &input;
    limit_time(kHangSeconds);
    gc3::fuzz::judge(input);
    limit_time(0);
    g_current = nullptr;
    bool is_new = false;
    for (std::size_t i = 0; i < g_hits.size(); i += sizeof(std::uint64_t)) {
      std::uint64_t any = 0;
      std::memcpy(&any, &g_hits[i], sizeof(any));
      if (any == 0) continue;
      for (std::size_t k = i; k < i + sizeof(any); ++k) {
        const auto bit = static_cast<std::uint8_t>(g_hits[k] == 0 ? 0U : counts_ ? 1U << magnitude(g_hits[k]) : 1U);
        if ((seen_[k] & bit) != bit) is_new = true;
        seen_[k] = static_cast<std::uint8_t>(seen_[k] | bit);
      }
    }
    return is_new;
  }
  std::size_t edges() const {
    return static_cast<std::size_t>(std::count_if(seen_.begin(), seen_.end(), [](auto s) { return s != 0; }));
  }

 private:
  static unsigned magnitude(std::uint8_t hits) {
    constexpr std::array<std::uint8_t, 7> kSteps = {2, 3, 4, 8, 16, 32, 128};
    return static_cast<unsigned>(std::upper_bound(kSteps.begin(), kSteps.end(), hits) - kSteps.begin());
  }
  bool counts_;
  std::array<std::uint8_t, std::size_t{1} << 16U> seen_{};
};

// The order decides which inputs are kept, and folders list their files in any order.
void smallest_first(std::vector<Input>& inputs) {
  std::sort(inputs.begin(), inputs.end(),
            [](const Input& a, const Input& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
}

std::vector<Input> load(const std::string& folder) {
  std::vector<Input> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    auto bytes = gc3::ir::read_file(entry.path().string());
    if (bytes.ok()) found.push_back(std::move(bytes).value());
  }
  smallest_first(found);
  return found;
}

void keep(const Input& input, const std::string& folder) {
  std::uint64_t hash = input.size();
  for (const std::byte b : input) hash = gc3::mix64(hash ^ static_cast<std::uint64_t>(b));
  char name[17];
  std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(hash));
  const auto written = gc3::ir::write_file(folder + "/" + name, input);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.error().str().c_str());
}

int minimize(const std::string& to, std::span<const std::string> from) {
  std::filesystem::create_directories(to);
  std::vector<Input> inputs;
  for (const std::string& folder : from) {
    for (Input& input : load(folder)) inputs.push_back(std::move(input));
  }
  smallest_first(inputs);
  Coverage coverage(false);
  std::size_t kept = 0;
  for (const Input& input : inputs) {
    if (!coverage.run(input)) continue;
    keep(input, to);
    ++kept;
  }
  std::printf("%zu files, %zu edges\n", kept, coverage.edges());
  return 0;
}

int fuzz(double minutes, std::uint64_t seed, const std::string& corpus, const std::string& folder) {
  std::filesystem::create_directories(folder);
  g_failed_path = folder + "/failed";
  Coverage coverage(true);
  std::vector<Input> pool = load(corpus);
  if (pool.empty()) return 2;
  for (const Input& input : pool) coverage.run(input);
  std::printf("%zu files, %zu edges\n", pool.size(), coverage.edges());
  gc3::fuzz::Mutator mutator(seed);
  for (const Input& input : pool) mutator.learn(input);
  const auto start = Clock::now();
  auto reported = start;
  std::uint64_t runs = 0;
  for (auto now = start; std::chrono::duration<double>(now - start).count() < 60 * minutes; now = Clock::now()) {
    const Input input = mutator.mutated(pool);
    ++runs;
    if (coverage.run(input)) {
      keep(input, folder);
      pool.push_back(input);
    }
    if (now - reported < std::chrono::seconds(15)) continue;
    reported = now;
    std::printf("%llu runs, %zu inputs, %zu edges\n", static_cast<unsigned long long>(runs), pool.size(),
                coverage.edges());
    std::fflush(stdout);
  }
  std::printf("%llu runs, %zu inputs, %zu edges: nothing failed\n", static_cast<unsigned long long>(runs), pool.size(),
              coverage.edges());
  return 0;
}

}  // namespace

// Called by the code under test. Addresses are relative, so that all processes have the same counts.
extern "C" __attribute__((no_sanitize_address, no_sanitize_undefined)) void __sanitizer_cov_trace_pc() {
  const std::uint64_t here = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) -
                             reinterpret_cast<std::uintptr_t>(&gc3::fuzz::judge);
  const std::uint64_t place = here * 0x9e3779b97f4a7c15U >> 48U;
  std::uint8_t& hits = g_hits[(place ^ g_previous) & 0xffffU];
  if (hits != 255) ++hits;
  g_previous = place >> 1U;
}
extern "C" void __sanitizer_set_death_callback(void (*callback)());
// The memory for an input must be bounded by its size, far below these limits.
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=1024:hard_rss_limit_mb=4096"; }

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  __sanitizer_set_death_callback(keep_failed);
  signal(SIGPROF, on_signal);
  signal(SIGABRT, on_signal);
  if (arguments.size() >= 3 && arguments[0] == "--minimize") {
    return minimize(arguments[1], std::span(arguments).subspan(2));
  }
  if (arguments.size() != 4) return 2;
  return fuzz(std::stod(arguments[0]), std::stoull(arguments[1]), arguments[2], arguments[3]);
}
