// The communicator as a table of C functions in a capsule (gc3_calls.h), for libraries that are compiled apart.
#include <nanobind/nanobind.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "communicator.h"
#include "gc3/base/errors/common.h"
#include "gc3/runtime/core/waiting/wait_policy.h"
#include "gc3/runtime/interp/divisors.h"
#include "gc3_calls.h"

namespace nb = nanobind;

// Another library holds a pointer to this for each message; only this file knows what it is.
struct gc3_message {
  std::shared_ptr<gc3::p2p::Request> request;
};

namespace gc3::bindings {
namespace {

// What the capsule points to.
struct Caller {
  gc3_caller face;
  std::shared_ptr<comm::Communicator> body;
};

comm::Communicator& of(void* comm) { return *static_cast<comm::Communicator*>(comm); }

gc3_outcome failed(const Diagnostic& problem, const gc3_errors* errors) {
  const std::string text = problem.str();
  errors->take(errors->to, text.data(), text.size());
  return gc3_failed;
}

// Looks at signals while a call waits, if it waits in a thread of Python.
class Watch {
 public:
  explicit Watch(int waits_here) : here_(waits_here != 0) {}

  comm::Interrupted look() {
    if (!here_) return nullptr;
    return [this] {
      const bool raised = interrupted();
      if (raised) raised_ = true;  // only in this thread, because other threads handle no signals
      return raised;
    };
  }
  // Also a call that has succeeded is interrupted, so that the exception that is set is raised. `comm`: the other ranks
  // make the call, and are told of wrong arguments; null: it was a message.
  gc3_outcome end(void* comm, const Status& status, const gc3_errors* errors) const {
    if (raised_) return gc3_interrupted;
    if (!status.ok() && comm != nullptr) of(comm).refuse(status.error());
    return status.ok() ? gc3_done : failed(status.error(), errors);
  }

 private:
  bool here_;
  bool raised_ = false;
};

comm::Call call_of(const gc3_call& c, std::uint32_t ranks) {
  comm::Call made;
  made.kind = static_cast<model::CollectiveKind>(c.kind.collective);
  made.type = static_cast<model::DataType>(c.kind.type);
  made.op = static_cast<model::ReduceOp>(c.kind.op);
  made.root = c.kind.root;
  made.input = c.input;
  made.output = c.output;
  made.count = c.count;
  if (made.op != model::ReduceOp::avg) return made;
  const bool is_single = made.type == model::DataType::complex64;
  if (is_single || made.type == model::DataType::complex128) {  // whose parts are averaged
    made.type = is_single ? model::DataType::float32 : model::DataType::float64;
    made.count *= 2;
  }
  if (const auto factor = interp::average_factor(made.type, ranks)) {
    made.op = model::ReduceOp::premulsum;
    made.factor = *factor;
  }
  return made;
}

template <class Value>
std::int32_t number(std::optional<Value> found) {
  return found ? static_cast<std::int32_t>(*found) : -1;
}

std::int32_t number_of(const char* of, const char* name) {
  const std::string_view what = of;
  if (what == "type") return number(model::parse_data_type(name));
  if (what == "op") return number(model::parse_reduce_op(name));
  const Result<model::CollectiveKind> kind = model::parse_collective(name);
  return kind.ok() ? static_cast<std::int32_t>(kind.value()) : -1;
}

gc3_outcome run_calls(void* comm, const gc3_call* calls, std::uint64_t size, int waits_here, const gc3_errors* errors) {
  Watch watch(waits_here);
  if (size == 1) return watch.end(comm, of(comm).run(call_of(*calls, of(comm).size()), watch.look()), errors);
  std::vector<comm::Call> all;
  for (const gc3_call& call : std::span(calls, size)) all.push_back(call_of(call, of(comm).size()));
  return watch.end(comm, of(comm).run(std::span<const comm::Call>(all), watch.look()), errors);
}

gc3_outcome run_v(void* comm, const gc3_v_call* c, int waits_here, const gc3_errors* errors) {
  const auto addresses = [](void* const* at, std::uint64_t size) {
    std::vector<std::uint8_t*> found;
    for (void* const one : std::span(at, size)) found.push_back(static_cast<std::uint8_t*>(one));
    return found;
  };
  const comm::VCall call{static_cast<model::CollectiveKind>(c->kind.collective),
                         std::vector<std::uint64_t>(c->counts, c->counts + c->counts_size),
                         addresses(c->input, c->input_size),
                         addresses(c->output, c->output_size),
                         static_cast<model::DataType>(c->kind.type),
                         static_cast<model::ReduceOp>(c->kind.op),
                         c->kind.root};
  Watch watch(waits_here);
  return watch.end(comm, of(comm).run(call, watch.look()), errors);
}

gc3_outcome agree(void* comm, const gc3_v_known* k, std::uint64_t* counts, int waits_here, const gc3_errors* errors) {
  const auto lengths = [](const std::uint64_t* at, std::uint64_t size) -> std::optional<std::vector<std::uint64_t>> {
    if (at == nullptr) return std::nullopt;
    return std::vector<std::uint64_t>(at, at + size);
  };
  const comm::VKnown known{static_cast<model::CollectiveKind>(k->kind.collective),
                           static_cast<model::DataType>(k->kind.type),
                           static_cast<model::ReduceOp>(k->kind.op),
                           k->kind.root,
                           k->row,
                           lengths(k->input, k->input_size),
                           lengths(k->output, k->output_size)};
  Watch watch(waits_here);
  const Result<comm::VCounts> found = of(comm).agree(known, watch.look());
  if (found.ok()) std::ranges::copy(found.value().counts, counts);
  return watch.end(comm, found.ok() ? Status() : Status(found.error()), errors);
}

gc3_outcome barrier(void* comm, int waits_here, const gc3_errors* errors) {
  Watch watch(waits_here);
  return watch.end(comm, of(comm).barrier(watch.look()), errors);
}

gc3_message* start_message(void* comm, int sends, void* data, std::uint64_t bytes, std::int32_t type, std::int64_t peer,
                           std::int32_t tag, const gc3_errors* errors) {
  const std::uint32_t other = peer < 0 ? p2p::kAnySource : static_cast<std::uint32_t>(peer);
  const std::uint32_t of_elements =
      type < 0 ? static_cast<std::uint32_t>(type) : p2p::type_of(static_cast<model::DataType>(type));
  const auto operation = sends != 0 ? p2p::send_of(data, bytes, other, tag, of_elements)
                                    : p2p::receive_of(data, bytes, other, tag, of_elements);
  const Result<p2p::Messenger*> messages = of(comm).messages();
  if (!messages.ok()) {
    failed(messages.error(), errors);
    return nullptr;
  }
  Result<std::shared_ptr<p2p::Request>> made = messages.value()->start(operation);
  if (!made.ok()) {
    failed(made.error(), errors);
    return nullptr;
  }
  return new gc3_message{std::move(made).value()};
}

int test_message(void* comm, gc3_message* message) {
  if (message->request->is_done()) return 1;
  const Result<p2p::Messenger*> messages = of(comm).messages();
  return messages.ok() && messages.value()->test(*message->request) ? 1 : 0;
}

gc3_outcome wait_message(void* comm, gc3_message* message, double timeout_s, int waits_here, gc3_got* got,
                         const gc3_errors* errors) {
  p2p::Request& request = *message->request;
  Watch watch(waits_here);
  if (!request.is_done()) {
    const Result<p2p::Messenger*> messages = of(comm).messages();
    if (!messages.ok()) return failed(messages.error(), errors);
    const auto timeout = timeout_s < 0 ? std::nullopt : std::optional(timeout_s);
    const Status waited = messages.value()->wait(request, {timeout, watch.look()});
    if (!waited.ok()) return watch.end(nullptr, waited, errors);
  }
  *got = {request.got.peer, request.got.tag, request.got.bytes};
  return watch.end(nullptr, request.status(), errors);
}

void drop(gc3_message* message) { delete message; }

void abort(void* comm) { of(comm).abort(); }

double counted(double seconds) {
  using Clock = core::WaitClock::Clock;
  const auto gap = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return core::WaitClock(Clock::time_point()).waited_s(Clock::time_point(gap));
}

constexpr gc3_calls kCalls{&number_of,    &run_calls,    &run_v, &agree, &barrier, &start_message,
                           &test_message, &wait_message, &drop,  &abort, &counted};

}  // namespace

void bind_calls(nb::class_<Joined>& joined) {
  joined.def(
      "calls",
      [](const Joined& j) {
        auto made = std::make_unique<Caller>(Caller{{&kCalls, &j.body()}, j.shared()});
        return nb::capsule(made.release(), GC3_CALLS_NAME, [](void* held) noexcept {
          const nb::gil_scoped_release release;
          delete static_cast<Caller*>(held);
        });
      },
      nb::sig("def calls(self) -> object"), "The table of C functions of gc3_calls.h, in a capsule.");
  joined.def_static("counted", &counted, nb::arg("seconds"), "As the function of gc3_calls.h.");
}

}  // namespace gc3::bindings
