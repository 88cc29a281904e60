// The communicator in Python, and the handles of its calls.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/comm/communicator.h"

namespace gc3::bindings {

// A program of either class of Python as readers return it.
inline ir::ClassProgram as_read(const ir::Program& program) { return ir::as_read(program); }
inline ir::ClassProgram as_read(const ir::ClassProgram& program) { return program; }

// The inside of a communicator, with what only GC3 calls. A finalizer closes it after Python's object is deleted.
class Joined {
 public:
  explicit Joined(std::shared_ptr<comm::Communicator> body) : body_(std::move(body)) {}
  ~Joined() {
    const nanobind::gil_scoped_release release;
    body_.reset();  // waits for started calls
  }
  Joined(const Joined&) = default;
  Joined(Joined&&) = default;
  Joined& operator=(const Joined&) = delete;
  Joined& operator=(Joined&&) = delete;

  comm::Communicator& body() const { return *body_; }
  const std::shared_ptr<comm::Communicator>& shared() const { return body_; }

 private:
  std::shared_ptr<comm::Communicator> body_;
};

// The base class of `gc3.comm.Communicator`. Its collectives are methods in C++, so a call runs no Python function.
class Face {
 public:
  explicit Face(const Joined& joined) : joined_(joined) {}

  const Joined& joined() const { return joined_; }
  comm::Communicator& body() const { return joined_.body(); }

  // Keeps the arrays of a started call until it has finished, and releases those of earlier calls that have finished.
  // They are kept here and not by the call, so that the thread that runs the call never needs the interpreter.
  void keep(std::shared_future<Status> done, nanobind::object arrays) {
    forget();
    kept_.emplace_back(std::move(done), std::move(arrays));
  }
  void keep(std::shared_ptr<p2p::Request> request, nanobind::object array) {
    if (sent_.size() >= forget_at_) {
      forget();
      forget_at_ = 2 * sent_.size() + 16;
    }
    sent_.emplace_back(std::move(request), std::move(array));
  }
  // What it releases may run functions of Python, which call this again, here and in other threads: last.
  void forget() {
    const auto sent = taken(sent_, [](const auto& message) { return !message.first->is_done(); });
    const auto kept = taken(kept_, [](const auto& call) {
      return call.first.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    });
  }

 private:
  // Takes out of `all` those that do not go on.
  template <class Kept, class GoesOn>
  static std::vector<Kept> taken(std::vector<Kept>& all, GoesOn goes_on) {
    const auto first = std::partition(all.begin(), all.end(), goes_on);
    std::vector<Kept> ended(std::make_move_iterator(first), std::make_move_iterator(all.end()));
    all.erase(first, all.end());
    return ended;
  }

  std::vector<std::pair<std::shared_future<Status>, nanobind::object>> kept_;
  std::vector<std::pair<std::shared_ptr<p2p::Request>, nanobind::object>> sent_;  // or to be received
  std::size_t forget_at_ = 16;
  Joined joined_;
};

// A running call.
struct Handle {
  nanobind::object owner;  // the communicator
  std::shared_future<Status> done;
  nanobind::object result;
};

// In the order of calls: that this rank does not make a call, because its arguments are wrong.
inline void refuse(comm::Communicator& comm, const Diagnostic& problem) {
  const nanobind::gil_scoped_release release;
  comm.refuse(problem);
}

// Makes a call. If its arguments are wrong on this rank, the others would wait for it, so they are told.
template <class Make>
auto told(comm::Communicator& comm, Make make) -> decltype(make()) {
  try {
    return make();
  } catch (const DiagnosticError& error) {
    refuse(comm, error.problem());
    throw;
  } catch (const std::bad_alloc&) {
    Diagnostic problem(ErrorCode::OutOfMemory, "an allocation of the call has failed");
    refuse(comm, problem);
    throw DiagnosticError(std::move(problem));
  } catch (const nanobind::python_error& error) {
    // Others than exceptions, as of Ctrl-C, have ended the calls of all ranks.
    if (nanobind::hasattr(error.value(), "diagnostics")) {
      refuse(comm, nanobind::cast<Diagnostic>(error.value().attr("diagnostics")[0]));
    } else if (error.matches(PyExc_Exception)) {
      refuse(comm, {ErrorCode::BadArgument, nanobind::str(error.value()).c_str()});
    }
    throw;
  }
}

// A user's function of no arguments, which a thread without the interpreter may call and drop; none for None.
inline comm::Communicator::Done when_done(nanobind::handle done) {
  if (done.is_none()) return {};
  if (PyCallable_Check(done.ptr()) == 0) throw nanobind::next_overload();  // there is none: the call does not fit
  const nanobind::object why = nanobind::module_::import_("gc3.support.public").attr("misfit")(done);
  if (nanobind::len(why) != 0) {
    throw DiagnosticError(
        {ErrorCode::BadArgument, std::string("done is called without arguments: ") + nanobind::str(why).c_str()});
  }
  const auto drop = [](PyObject* held) {
    const nanobind::gil_scoped_acquire acquire;
    Py_DECREF(held);
  };
  const std::shared_ptr<PyObject> held(nanobind::borrow(done).release().ptr(), drop);
  return [held](const Status&) {
    const nanobind::gil_scoped_acquire acquire;
    PyObject* const result = PyObject_CallNoArgs(held.get());
    if (result == nullptr) PyErr_WriteUnraisable(held.get());
    Py_XDECREF(result);
  };
}

// The counts that a caller gives for blocks of lengths of their own; none for None. `what` they are called.
std::optional<comm::VGiven> counts_of(nanobind::handle given, const char* what);

// Calls whose blocks have lengths of their own.
void bind_v_calls(nanobind::class_<Joined>& joined);
// Programs of the caller.
void bind_programs(nanobind::class_<Joined>& joined);
// The nine collectives: plain, asynchronous, and noted to be made at once.
void bind_collectives(nanobind::module_& m, nanobind::class_<Face>& communicator);
// Sends and receives between two ranks.
void bind_messages(nanobind::module_& m, nanobind::class_<Face>& communicator, nanobind::class_<Joined>& joined);
// The functions for libraries that are compiled apart.
void bind_calls(nanobind::class_<Joined>& joined);

}  // namespace gc3::bindings
