// Sends and receives between two ranks as methods of a communicator.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "communicator.h"
#include "operand.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using p2p::Envelope;
using p2p::Messenger;
using Self = nb::pointer_and_handle<Face>;

// What a receive has got.
struct Got {
  std::uint32_t source = 0;
  std::int32_t tag = 0;
  std::size_t count = 0;  // of elements
};

// A send or receive that was started.
struct Transfer {
  nb::object owner;                       // the communicator
  std::shared_ptr<p2p::Request> request;  // none of one that was done when it was started
  std::size_t element = 0;                // bytes
  bool sends = false;
  Envelope done = {};  // if there is no request
};

// After the arguments have been read, which may run functions of Python that close the communicator.
Messenger& messages_of(const comm::Communicator& comm) { return *unwrap(comm.messages()); }

// A whole number from 0 on, or `any` for None.
std::int64_t number(nb::handle given, std::int64_t most, std::int64_t any, ErrorId code, const std::string& what) {
  if (given.is_none() && any >= -1) return any;
  const std::int64_t found = whole_number(given);
  if (found >= 0 && found <= most) return found;
  throw DiagnosticError(
      {code, what + " " + nb::repr(given).c_str() + "; expected a whole number from 0 to " + std::to_string(most)});
}

constexpr std::int64_t kNone = -2;  // there is no `any`

std::uint32_t rank_of(const comm::Communicator& comm, nb::handle given, bool receives) {
  const std::int64_t found = number(given, std::int64_t{comm.size()} - 1, receives ? -1 : kNone,
                                    ErrorCode::RankOutOfRange, receives ? "source" : "to");
  return found < 0 ? p2p::kAnySource : static_cast<std::uint32_t>(found);
}

std::int32_t tag_of(nb::handle given, bool receives) {
  return static_cast<std::int32_t>(
      number(given, std::numeric_limits<std::int32_t>::max(), receives ? -1 : kNone, ErrorCode::BadArgument, "tag"));
}

p2p::WaitLimits limits_of(const std::optional<double>& timeout) {
  unwrap(core::check_timeout(timeout));
  return {timeout, interrupted};
}

// An array and what is done with it; the only place where arguments of sends and receives are looked at.
struct Message {
  Operand operand;
  p2p::Operation operation;
  std::size_t element() const { return operand.units * model::size_of(operand.type); }
};

Message describe(const comm::Communicator& comm, bool sends, nb::handle array, nb::handle peer, nb::handle tag) {
  Message d;
  d.operand = sends ? source(array) : target(array);
  if (d.operand.device != kHost) {
    throw DiagnosticError({ErrorCode::BadBuffer, "an array on a device; sends and receives take arrays of the host"});
  }
  d.operation = {sends ? p2p::Operation::Kind::send : p2p::Operation::Kind::receive,
                 d.operand.address,
                 d.operand.bytes(),
                 rank_of(comm, peer, !sends),
                 tag_of(tag, !sends),
                 d.operand.known ? p2p::type_of(d.operand.type) : d.operand.number};
  return d;
}

Got got_of(const Envelope& envelope, std::size_t element) {
  return {envelope.peer, envelope.tag, unwrap(envelope.count(element))};
}

void send(Self self, nb::handle x, nb::handle to, nb::handle tag, const std::optional<double>& timeout) {
  const Message d = describe(self.p->body(), true, x, to, tag);
  const p2p::WaitLimits limits = limits_of(timeout);
  Messenger& messages = messages_of(self.p->body());
  const p2p::Operation& o = d.operation;
  without_gil([&] { return messages.send(o.data, o.bytes, o.peer, o.tag, limits, o.type); });
}

Got recv(Self self, nb::handle out, nb::handle source, nb::handle tag, const std::optional<double>& timeout) {
  const Message d = describe(self.p->body(), false, out, source, tag);
  const p2p::WaitLimits limits = limits_of(timeout);
  Messenger& messages = messages_of(self.p->body());
  const p2p::Operation& o = d.operation;
  return got_of(without_gil([&] { return messages.receive(o.data, o.bytes, o.peer, o.tag, limits, o.type); }),
                d.element());
}

// The bytes of an object, of any length.
nb::tuple recv_whole(const Joined& joined, nb::handle source, nb::handle tag, const std::optional<double>& timeout) {
  const p2p::WaitLimits limits = limits_of(timeout);
  const std::uint32_t from = rank_of(joined.body(), source, true);
  const std::int32_t with = tag_of(tag, true);
  Messenger& messages = messages_of(joined.body());
  p2p::Whole message = without_gil([&] { return messages.receive_whole(from, with, limits, p2p::kObject); });
  std::uint8_t* const at = message.data.release();
  const nb::capsule owner(at, [](void* held) noexcept { delete[] static_cast<std::uint8_t*>(held); });
  return nb::make_tuple(got_of(message.got, 1),
                        nb::ndarray<std::uint8_t, nb::numpy, nb::ndim<1>>(at, {message.got.bytes}, owner));
}

// Each operation: whether it sends, the array, the rank, the tag.
nb::list run(const Joined& joined, const std::vector<nb::tuple>& operations, const std::optional<double>& timeout) {
  std::vector<Message> described;
  std::vector<p2p::Operation> all;
  for (const nb::tuple& o : operations) {
    all.push_back(described.emplace_back(describe(joined.body(), nb::cast<bool>(o[0]), o[1], o[2], o[3])).operation);
  }
  const p2p::WaitLimits limits = limits_of(timeout);
  Messenger& messages = messages_of(joined.body());
  const std::vector<Envelope> envelopes = without_gil([&] { return messages.run(all, limits); });
  nb::list found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool sends = all[i].kind == p2p::Operation::Kind::send;
    found.append(sends ? nb::none() : nb::cast(got_of(envelopes[i], described[i].element())));
  }
  return found;
}

std::function<void(const p2p::Request&)> notifier(nb::handle done) {
  if (done.is_none()) return {};
  return [call = when_done(done)](const p2p::Request&) { call({}); };
}

Transfer start_transfer(Self self, bool sends, nb::handle array, nb::handle peer, nb::handle tag, nb::handle done) {
  const Message d = describe(self.p->body(), sends, array, peer, tag);
  Transfer made{nb::borrow(self.h), {}, d.element(), sends};
  Messenger& messages = messages_of(self.p->body());
  if (done.is_none() && messages.at_once(d.operation, made.done)) return made;
  auto notify = notifier(done);
  made.request = without_gil([&] { return messages.start(d.operation, std::move(notify)); });
  self.p->keep(made.request, d.operand.array);
  return made;
}

nb::object wait_for(const Transfer& transfer, const std::optional<double>& timeout) {
  Face& face = *nb::inst_ptr<Face>(transfer.owner);
  if (transfer.request == nullptr) {
    return transfer.sends ? nb::object(nb::none()) : nb::cast(got_of(transfer.done, transfer.element));
  }
  p2p::Request& request = *transfer.request;
  if (!request.is_done()) {
    Messenger& messages = messages_of(face.body());
    const p2p::WaitLimits limits = limits_of(timeout);
    without_gil([&] { return messages.wait(request, limits); });
  }
  face.forget();
  unwrap(request.status());
  if (transfer.sends) return nb::none();
  return nb::cast(got_of(request.got, transfer.element));
}

bool test(const Transfer& transfer) {
  if (transfer.request == nullptr || transfer.request->is_done()) return true;
  Messenger& messages = messages_of(nb::inst_ptr<Face>(transfer.owner)->body());
  const nb::gil_scoped_release release;
  return messages.test(*transfer.request);
}

}  // namespace

void bind_messages(nb::module_& m, nb::class_<Face>& communicator, nb::class_<Joined>& joined) {
  nb::class_<Got>(m, "Status", "Status()\n--\n\nWhat a receive has got.")
      .def_ro("source", &Got::source, "The rank that sent it.")
      .def_ro("tag", &Got::tag)
      .def_ro("count", &Got::count, "How many elements, of the receive's type.")
      .def("__repr__", [](const Got& g) {
        return "Status(source=" + std::to_string(g.source) + ", tag=" + std::to_string(g.tag) +
               ", count=" + std::to_string(g.count) + ")";
      });
  nb::class_<Transfer>(
      m, "Transfer", "Transfer()\n--\n\nA send or receive that was started. Its array belongs to it until it is done.")
      .def("wait", &wait_for, "timeout"_a.none() = nb::none(),
           nb::sig("def wait(self, timeout: float | None = None) -> Status | None"),
           "Returns the `Status` of a receive, None of a send, once it is done.\n\n"
           "Args:\n    timeout: Seconds; it goes on when they have passed.\n\n"
           "Raises:\n    gc3.UserError: The message is longer than the array.\n"
           "    gc3.CommError: A peer failed, or `timeout` has passed.")
      .def("test", &test, "Returns whether it is done, successfully or not.");
  const nb::object nothing = nb::none();
  communicator
      .def(
          "send", &send, "x"_a.none(), "to"_a.none(), "tag"_a.none() = 0, "timeout"_a.none() = nothing,
          nb::sig("def send(self, x: typing.Any, to: int, tag: int = 0, timeout: float | None = None) -> None"),
          "Sends `x` to rank `to`; a long message is sent when it is received.\n\n"
          "Args:\n    x: As of collectives, on the host.\n    to: A rank of this communicator.\n"
          "    tag: From 0 on; a receive chooses by it.\n"
          "    timeout: Seconds after which this call ends alone; None: those of the communicator, which ends then.\n\n"
          "Raises:\n    gc3.UserError: There is no such rank, or a wrong argument.\n"
          "    gc3.CommError: The other rank is gone, or does not receive in time.")
      .def("recv", &recv, "out"_a.none(), "source"_a.none() = nothing, "tag"_a.none() = nothing,
           "timeout"_a.none() = nothing,
           nb::sig("def recv(self, out: typing.Any, source: int | None = None, tag: int | None = None, "
                   "timeout: float | None = None) -> Status"),
           "Receives into `out` the first message of rank `source`, or any, with tag `tag`, or any.\n\n"
           "Messages of one rank and tag come in the order in which they were sent. `out` may be longer than the\n"
           "message; the rest of it is left alone.\n\n"
           "Raises:\n    gc3.UserError: The message is longer than `out`, or a wrong argument.\n"
           "    gc3.CommError: The other rank is gone, or does not send in time.")
      .def(
          "isend",
          [](Self self, nb::handle x, nb::handle to, nb::handle tag, nb::handle done) {
            return start_transfer(self, true, x, to, tag, done);
          },
          "x"_a.none(), "to"_a.none(), "tag"_a.none() = 0, "done"_a.none() = nothing,
          nb::sig("def isend(self, x: typing.Any, to: int, tag: int = 0, "
                  "done: collections.abc.Callable[[], object] | None = None) -> Transfer"),
          "Starts `send`; another thread calls `done` when it has ended, successfully or not.")
      .def(
          "irecv",
          [](Self self, nb::handle out, nb::handle source, nb::handle tag, nb::handle done) {
            return start_transfer(self, false, out, source, tag, done);
          },
          "out"_a.none(), "source"_a.none() = nothing, "tag"_a.none() = nothing, "done"_a.none() = nothing,
          nb::sig("def irecv(self, out: typing.Any, source: int | None = None, tag: int | None = None, "
                  "done: collections.abc.Callable[[], object] | None = None) -> Transfer"),
          "Starts `recv`; another thread calls `done` when it has ended, successfully or not.");
  joined
      .def("recv_whole", &recv_whole, "source"_a.none(), "tag"_a.none(), "timeout"_a.none(),
           nb::sig("def recv_whole(self, source: int | None, tag: int | None, timeout: float | None) -> "
                   "tuple[Status, gc3.datatypes.Array]"),
           "As `Communicator.recv`, of a message of bytes that may be of any length, which gets an array.")
      .def("run_messages", &run, "operations"_a, "timeout"_a.none() = nothing,
           nb::sig("def run_messages(self, operations: collections.abc.Sequence[tuple[bool, typing.Any, typing.Any, "
                   "typing.Any]], timeout: float | None = None) -> list[Status | None]"),
           "All of them at once: whether one sends, its array, rank and tag.");
}

}  // namespace gc3::bindings
