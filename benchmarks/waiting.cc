// The least time of a small call of ranks that share cores: they exchange flags and nothing else, and wait for each
// other by futexes or by yielding the core. What a library adds to that is its own.
//
//   g++ -std=c++20 -O2 benchmarks/waiting.cc -o waiting && ./waiting
//
// A call is one step, in which each rank waits for all others, or recursive doubling. Before each timed call stands an
// untimed one, as a barrier; the slowest rank counts. Ranks are bound to cores in turn within one session, or each is
// in a session of its own and bound to no core; "beside loops": two processes, each in its own session, never wait.
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int kWarmup = 300;
constexpr int kCalls = 2000;
constexpr int kMostRanks = 8;
constexpr int kLoops = 2;

struct alignas(128) Flag {
  std::atomic<std::uint32_t> posted;
};
struct alignas(128) Sleeper {
  std::atomic<std::uint32_t> asleep;
};
struct Shared {
  Flag flags[kMostRanks][kMostRanks];  // of each rank, one for each step
  Sleeper sleepers[kMostRanks];
  double us[kMostRanks][kCalls];
};

struct Way {
  const char* name;
  int ranks;
  bool doubling, futex, apart, loops;
};

void call(Shared& shared, const Way& way, int rank, std::uint32_t number) {
  const auto here = [&](int r, int step) {
    const std::uint32_t posted = shared.flags[r][step].posted.load();
    return static_cast<std::int32_t>(posted - number) >= 0;
  };
  const auto all_here = [&] {
    for (int r = 0; r < way.ranks; ++r) {
      if (!here(r, 0)) return false;
    }
    return true;
  };
  const auto wake = [&](int r) {
    std::atomic<std::uint32_t>& asleep = shared.sleepers[r].asleep;
    if (asleep.load() != 0 && asleep.exchange(0) != 0) syscall(SYS_futex, &asleep, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  };
  const auto wait_until = [&](const auto& done) {
    std::atomic<std::uint32_t>& asleep = shared.sleepers[rank].asleep;
    while (!done()) {
      if (!way.futex) {
        sched_yield();
        continue;
      }
      asleep.store(1);
      if (!done()) syscall(SYS_futex, &asleep, FUTEX_WAIT, 1, nullptr, nullptr, 0);
      asleep.store(0);
    }
  };
  if (!way.doubling) {
    shared.flags[rank][0].posted.store(number);
    // The last rank wakes all others, once each.
    for (int r = 0; r < way.ranks && way.futex && all_here(); ++r) wake(r);
    wait_until(all_here);
    return;
  }
  for (int step = 0, distance = 1; distance < way.ranks; ++step, distance *= 2) {
    shared.flags[rank][step].posted.store(number);
    if (way.futex) wake(rank ^ distance);
    wait_until([&] { return here(rank ^ distance, step); });
  }
}

void be_rank(Shared& shared, const Way& way, int rank) {
  if (way.apart) {
    setsid();
  } else {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(static_cast<std::size_t>(rank % sysconf(_SC_NPROCESSORS_ONLN)), &core);
    sched_setaffinity(0, sizeof core, &core);
  }
  std::uint32_t number = 0;
  for (int i = -kWarmup; i < kCalls; ++i) {
    call(shared, way, rank, ++number);
    const auto begin = std::chrono::steady_clock::now();
    call(shared, way, rank, ++number);
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
    if (i >= 0) shared.us[rank][i] = taken.count();
  }
}

pid_t started(const auto& body) {
  const pid_t process = fork();
  if (process == 0) {
    body();
    _exit(0);
  }
  return process;
}

void measure(const Way& way) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  Shared& shared = *static_cast<Shared*>(memory);
  std::vector<pid_t> loops;
  for (int i = 0; i < (way.loops ? kLoops : 0); ++i) {
    loops.push_back(started([] {
      setsid();
      for (const pid_t parent = getppid(); getppid() == parent;) {
        for (volatile int n = 0; n < 1'000'000;) n = n + 1;
      }
    }));
  }
  std::vector<pid_t> ranks;
  for (int r = 0; r < way.ranks; ++r) ranks.push_back(started([&] { be_rank(shared, way, r); }));
  for (const pid_t rank : ranks) waitpid(rank, nullptr, 0);
  for (const pid_t loop : loops) kill(loop, SIGKILL), waitpid(loop, nullptr, 0);
  std::vector<double> us(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    for (int r = 0; r < way.ranks; ++r)
      us[static_cast<std::size_t>(i)] = std::max(us[static_cast<std::size_t>(i)], shared.us[r][i]);
  }
  std::ranges::sort(us);
  std::printf("%d ranks, %-18s %-7s %-42s %8.1f %8.1f %8.1f\n", way.ranks,
              way.doubling ? "recursive doubling" : "one step", way.futex ? "futexes" : "yields", way.name,
              us[kCalls / 2], us[kCalls * 95 / 100], us[kCalls * 99 / 100]);
  munmap(memory, sizeof(Shared));
}

}  // namespace

int main() {
  std::printf("us: median, p95, p99\n");
  for (const int ranks : {2, 4, 8}) {
    for (const bool doubling : {true, false}) {
      measure({"one session, bound", ranks, doubling, false, false, false});
      measure({"one session, bound", ranks, doubling, true, false, false});
      measure({"a session each, not bound", ranks, doubling, true, true, false});
      measure({"a session each, not bound, beside loops", ranks, doubling, true, true, true});
    }
  }
}
