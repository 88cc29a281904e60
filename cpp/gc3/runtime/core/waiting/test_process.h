// For tests: processes that wait for each other.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace gc3::core::testing {

// A process of the test; `body` returns an error message, or an empty text.
class Process {
 public:
  explicit Process(const std::function<std::string()>& body, uid_t user = geteuid()) : id_(fork()) {
    if (id_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (user != geteuid() && setresuid(user, user, user) != 0) _exit(3);
    const std::string wrong = body();
    if (!wrong.empty()) std::fprintf(stderr, "process %d: %s\n", getpid(), wrong.c_str());
    _exit(wrong.empty() ? 0 : 1);
  }
  ~Process() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  Process(Process&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  bool succeeds() {
    int status = 0;
    waitpid(std::exchange(id_, 0), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t id_;
};

// Whether `times_out`, which waits for one second, waits longer in a process that is stopped for a part of it.
inline bool leaves_out_stops(const std::function<bool()>& times_out) {
  using Clock = std::chrono::steady_clock;
  return Process([&]() -> std::string {
           const auto begun = Clock::now();
           Process stops([waits = getpid()]() -> std::string {
             std::this_thread::sleep_for(std::chrono::milliseconds(50));
             kill(waits, SIGSTOP);
             std::this_thread::sleep_for(std::chrono::milliseconds(1500));
             return kill(waits, SIGCONT) == 0 ? "" : "not continued";
           });
           const bool late = times_out();
           const std::chrono::duration<double> waited = Clock::now() - begun;
           if (!late || !stops.succeeds()) return "no time-out";
           return waited.count() > 2.2 ? "" : "it took " + std::to_string(waited.count()) + " s";
         })
      .succeeds();
}

// One process waits until another one has come so far.
class Signal {
 public:
  Signal() {
    if (pipe2(ends_, O_CLOEXEC) != 0) std::abort();
  }
  ~Signal() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  void give() const {
    if (write(ends_[1], "s", 1) != 1) std::abort();
  }
  void await() const {
    char byte = 0;
    if (read(ends_[0], &byte, 1) != 1) std::abort();
  }

 private:
  int ends_[2];
};

}  // namespace gc3::core::testing
