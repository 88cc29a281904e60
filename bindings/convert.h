// Conversion of diagnostics to exceptions, for all binding files. Bindings only convert; they have no other logic.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <utility>

#include "gc3/base/interrupt.h"
#include "gc3/base/result.h"

namespace gc3::bindings {

// Carries a Diagnostic to the one exception translator (module.cc), which raises gc3.errors.*.
class DiagnosticError : public std::exception {
 public:
  explicit DiagnosticError(Diagnostic problem) : problem_(std::move(problem)) {}
  const Diagnostic& problem() const { return problem_; }
  const char* what() const noexcept override { return "gc3 diagnostic"; }

 private:
  Diagnostic problem_;
};

// For Interruptible: ends the work of this thread if a signal handler of Python has raised an exception.
inline void check_signals() {
  const nanobind::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Python handles signals in the main thread alone. On Linux its number is that of the process.
inline bool handles_signals() { return ::gettid() == ::getpid(); }

// Ends the long work of other threads than the main one, those that are within it.
class Stop {
 public:
  void set() { set_ = true; }
  void enter() { of_thread() = this; }
  static void exit() { of_thread() = nullptr; }

  // Raises KeyboardInterrupt if the stop of this thread is set.
  static void check() {
    const Stop* stop = of_thread();
    if (stop == nullptr || !stop->set_) return;
    const nanobind::gil_scoped_acquire acquire;
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nanobind::python_error();
  }

 private:
  static Stop*& of_thread() {
    static thread_local Stop* stop = nullptr;
    return stop;
  }

  std::atomic<bool> set_ = false;
};

// Runs long work without the GIL; Ctrl-C ends it. Other threads ask for the GIL only to end, so several can work at
// once; they end if their Stop is set.
template <class Work>
auto long_work(Work work) {
  Stop::check();
  const nanobind::gil_scoped_release release;
  const Interruptible scope(handles_signals() ? Hook(check_signals) : Hook(Stop::check));
  return work();
}

template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw DiagnosticError(std::move(result.error()));
  return std::move(result).value();
}
inline void unwrap(Status status) {
  if (!status.ok()) throw DiagnosticError(std::move(status.error()));
}

void bind_base(nanobind::module_& m);
void bind_public(nanobind::module_& m);
void bind_model(nanobind::module_& m);
void bind_ir(nanobind::module_& m);
void bind_direct(nanobind::module_& m);
void bind_compiler(nanobind::module_& m);
void bind_compute(nanobind::module_& m);
void bind_relative(nanobind::module_& m);
void bind_verify(nanobind::module_& m);
void bind_runtime(nanobind::module_& m);
void bind_select(nanobind::module_& m);
void bind_processes(nanobind::module_& m);
void bind_cuda(nanobind::module_& m);
void bind_sim(nanobind::module_& m);
void bind_synth(nanobind::module_& m);

}  // namespace gc3::bindings
