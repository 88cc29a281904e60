// What the backend's calls return: works, which PyTorch waits for.
#pragma once

#include <Python.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "gc3_calls.h"
#include "lane.h"

namespace gc3_torch {

using at::Tensor;
using Tensors = std::vector<Tensor>;

[[noreturn]] inline void fail(const std::string& text) { C10_THROW_ERROR(DistBackendError, text); }

// Raises the error that a function of gc3.torch.work returns, which the backend in Python raises as well.
template <class... About>
[[noreturn]] void raise(const char* error, const About&... about) {
  std::string text;
  {
    const py::gil_scoped_acquire acquire;
    text = py::cast<std::string>(py::str(py::module_::import("gc3.torch.work").attr(error)(about...)));
  }
  fail(text);
}

// An object of Python that is used and dropped by threads without the GIL.
using Held = std::shared_ptr<py::object>;
inline Held held(py::object object) {
  return Held(new py::object(std::move(object)), [](py::object* old) {
    if (Py_IsInitialized() == 0) {
      old->release();
    } else {
      const py::gil_scoped_acquire acquire;
      *old = py::object();
    }
    delete old;
  });
}

// What a signal handler of Python has raised in this thread while a call waited.
class __attribute__((visibility("hidden"))) Interrupted : public py::error_already_set {};

// The communicator, through the table of the core.
class Caller {
 public:
  explicit Caller(py::object capsule) : capsule_(held(std::move(capsule))) {
    const auto* found = static_cast<const gc3_caller*>(PyCapsule_GetPointer(capsule_->ptr(), GC3_CALLS_NAME));
    if (found == nullptr) throw py::error_already_set();
    calls_ = found->calls;
    comm_ = found->comm;
  }

  ~Caller() {
    sweep();
    for (Left& one : left_) {
      new Tensor(std::move(one.memory));  // for the communicator still uses it
      calls_->drop(one.message);
    }
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  const gc3_calls& calls() const { return *calls_; }
  void* comm() const { return comm_; }

  // Drops a message. Memory that one under way reads or writes is kept until it is done.
  void drop(gc3_message* message, Tensor memory) {
    {
      const std::lock_guard lock(mutex_);
      left_.push_back({message, std::move(memory)});
    }
    sweep();
  }
  // Releases the memory of dropped messages that are done now.
  void sweep() {
    std::vector<Left> done;  // released without the lock, because that may need the GIL
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(left_.begin(), left_.end(),
                                             [this](const Left& one) { return calls_->test(comm_, one.message) == 0; });
    for (auto one = first; one != left_.end(); ++one) calls_->drop(one->message);
    done.assign(std::move_iterator(first), std::move_iterator(left_.end()));
    left_.erase(first, left_.end());
  }

  // Runs a function in a thread of its own, for which `settle` waits.
  template <class Run>
  void follow(Run run) {
    const auto all = followers_;
    try {
      const std::lock_guard lock(all->mutex);  // so that the thread is counted before it ends
      std::thread([all, run = std::optional<Run>(std::move(run))]() mutable {
        (*run)();
        run.reset();
        const std::lock_guard inner(all->mutex);
        --all->running;
        all->changed.notify_all();
      }).detach();
      ++all->running;
    } catch (const std::system_error&) {
      raise("thread_error");
    }
  }
  void settle() {
    std::unique_lock lock(followers_->mutex);
    followers_->changed.wait(lock, [this] { return followers_->running == 0; });
  }

  // Makes a call of the table: `call` gets the communicator and where errors go.
  template <class Call>
  void made(Call call) const {
    std::string text;
    const gc3_errors errors = sink(text);
    const gc3_outcome outcome = call(comm_, &errors);
    if (outcome == gc3_interrupted) {
      const py::gil_scoped_acquire acquire;
      throw Interrupted();
    }
    if (outcome != gc3_done) fail(text);
  }
  static gc3_errors sink(std::string& text) {
    return {&text, [](void* to, const char* from, std::uint64_t bytes) {
              static_cast<std::string*>(to)->assign(from, bytes);
            }};
  }

 private:
  // A message that nobody waits for any more.
  struct Left {
    gc3_message* message;
    Tensor memory;
  };
  struct Followers {
    std::mutex mutex;
    std::condition_variable changed;
    int running = 0;
  };

  std::mutex mutex_;
  std::vector<Left> left_;
  std::shared_ptr<Followers> followers_ = std::make_shared<Followers>();
  Held capsule_;  // keeps the communicator
  const gc3_calls* calls_ = nullptr;
  void* comm_ = nullptr;
};

// Lets other threads have the GIL, if this one has it: they may need it before they release what this one waits for.
class Released {
 public:
  Released() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released_.emplace();
  }

 private:
  std::optional<py::gil_scoped_release> released_;
};

// Raises what a signal handler of Python has raised.
inline void look_at_signals() {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Whether an exception of Python is one of those that end programs, such as KeyboardInterrupt.
inline bool is_interrupt(const py::error_already_set& raised) {
  const py::gil_scoped_acquire acquire;
  return !raised.matches(PyExc_Exception);
}

// The error of a call as one that may be kept, and looked at by threads without the GIL.
inline std::exception_ptr kept(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (py::error_already_set& raised) {
    std::string text;
    {
      const py::gil_scoped_acquire acquire;
      text = py::cast<std::string>(py::str(raised.value()));
      if (text.empty()) text = py::cast<std::string>(raised.type().attr("__name__"));
    }
    try {
      fail(text);
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return std::current_exception();
  }
}

// A collective.
class Call : public c10d::Work {
 public:
  Call(std::shared_ptr<Lane> lane, std::shared_ptr<Caller> caller, int rank, c10d::OpType type, const char* title,
       const std::optional<Tensors>& inputs, Tensors outputs, std::uint64_t number)
      : Work(rank, type, title, inputs),
        lane_(std::move(lane)),
        caller_(std::move(caller)),
        outputs_(std::move(outputs)),
        number_(number) {}

  // Once, by whoever runs it.
  void end(const std::exception_ptr& problem) {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
      const std::lock_guard lock(mutex_);
      exception_ = problem;
      completed_ = true;
      future = future_;
    }
    done_.store(true, std::memory_order_release);  // the results are visible to who sees it
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
    if (future == nullptr) return;
    lane_->tell();  // before functions of the caller run
    complete(*future, problem);
  }

  bool isCompleted() override { return done_.load(std::memory_order_acquire); }
  bool isSuccess() const override { return done_.load(std::memory_order_acquire) && exception_ == nullptr; }
  // Ctrl-C makes the calls of all ranks fail, because no wait for this call will follow.
  bool wait(std::chrono::milliseconds timeout) override {
    const auto done = [this] { return done_.load(std::memory_order_acquire); };
    if (!done()) {
      if (lane_->is_fork()) raise("fork_error");
      const Released released;
      std::optional<Lane::Clock::time_point> until;
      if (timeout.count() > 0) until = Lane::Clock::now() + timeout;
      bool ended = false;
      try {
        ended = lane_->help(done, until, look_at_signals, caller_->calls().counted);
      } catch (...) {
        if (!done()) caller_->calls().abort(caller_->comm());
        throw;
      }
      if (!ended) raise("late_error", std::chrono::duration<double>(timeout).count());
    }
    if (exception_ != nullptr) std::rethrow_exception(exception_);
    return true;
  }
  Tensors result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return number_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    if (future_ == nullptr) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      if (completed_) complete(*future_, exception_);
    }
    return future_;
  }

 private:
  void complete(c10::ivalue::Future& future, const std::exception_ptr& problem) const {
    if (problem != nullptr) {
      future.setError(problem);
    } else {
      future.markCompleted(c10::IValue(outputs_));
    }
  }

  std::shared_ptr<Lane> lane_;
  std::shared_ptr<Caller> caller_;
  Tensors outputs_;
  std::uint64_t number_;
  std::atomic<bool> done_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when it is asked for
};

// A send or receive, which takes no turn with the collectives.
class Message : public c10d::Work {
 public:
  // `memory` is the contiguous memory of `tensor`, `number` that of its type.
  Message(std::shared_ptr<Caller> caller, int rank, c10d::OpType type, const char* title, Tensor tensor, Tensor memory,
          std::int32_t number, std::int64_t peer, int tag)
      : Work(rank, type, title, title == nullptr ? std::nullopt : std::optional<Tensors>({tensor})),
        caller_(std::move(caller)),
        tensor_(std::move(tensor)),
        memory_(std::move(memory)),
        sends_(type == c10d::OpType::SEND) {
    caller_->sweep();
    std::string text;
    const gc3_errors errors = Caller::sink(text);
    message_ = caller_->calls().start(caller_->comm(), sends_ ? 1 : 0, memory_.mutable_data_ptr(), memory_.nbytes(),
                                      number, peer, tag, &errors);
    if (message_ == nullptr) fail(text);
  }
  ~Message() override { caller_->drop(message_, std::move(memory_)); }

  bool isCompleted() override {
    const Released released;
    if (caller_->calls().test(caller_->comm(), message_) == 0) return false;
    try {
      wait(kNoTimeout);
    } catch (...) {  // which `exception` tells
    }
    return true;
  }
  bool isSuccess() const override {
    const std::lock_guard lock(mutex_);
    return completed_ && exception_ == nullptr;
  }
  bool wait(std::chrono::milliseconds timeout) override {
    const Released released;  // who ends it may need the GIL
    gc3_got got{};
    std::exception_ptr problem;
    bool goes_on = false;
    try {
      caller_->made([&](void* comm, const gc3_errors* errors) {
        const double limit = timeout.count() > 0 ? static_cast<double>(timeout.count()) / 1000 : -1;
        return caller_->calls().wait(comm, message_, limit, 1, &got, errors);
      });
    } catch (...) {
      problem = std::current_exception();
      goes_on = caller_->calls().test(caller_->comm(), message_) == 0;
    }
    if (!goes_on) {
      const std::lock_guard lock(ending_);
      if (!ended_) {
        ended_ = true;
        if (problem == nullptr && !sends_) problem = received(got);
        end(problem == nullptr ? nullptr : kept(problem), static_cast<int>(got.peer));
      }
    }
    if (problem != nullptr) std::rethrow_exception(problem);
    if (exception_ != nullptr) std::rethrow_exception(exception_);
    return true;
  }
  int sourceRank() const override {
    const std::lock_guard lock(mutex_);
    return source_;
  }
  Tensors result() override { return {tensor_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    caller_->follow([work = c10::intrusive_ptr<Message>::reclaim_copy(this), future] {
      try {
        work->wait(kNoTimeout);
      } catch (...) {
        future->setError(kept(std::current_exception()));
        return;
      }
      future->markCompleted(c10::IValue(work->result()));
    });
    return future;
  }

 private:
  void end(std::exception_ptr problem, int source) {
    {
      const std::lock_guard lock(mutex_);  // without the GIL, which those who wait for the lock may have
      completed_ = true;
      exception_ = std::move(problem);
      source_ = source;
    }
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
  }
  std::exception_ptr received(const gc3_got& got) {
    try {
      if (got.bytes != memory_.nbytes()) {
        raise("size_error", rank_, got.peer, got.bytes / memory_.element_size(), got.tag, memory_.numel());
      }
      if (!memory_.is_same(tensor_) && memory_.data_ptr() != tensor_.data_ptr()) {
        const at::NoGradGuard none;
        tensor_.copy_(memory_);
      }
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  std::shared_ptr<Caller> caller_;
  Tensor tensor_;
  Tensor memory_;
  bool sends_;
  gc3_message* message_ = nullptr;
  std::mutex ending_;  // of the next one; nobody waits for it with the GIL
  bool ended_ = false;
  int source_ = -1;
};

}  // namespace gc3_torch
