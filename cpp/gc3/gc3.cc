#include "gc3/gc3.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/knobs.h"
#include "gc3/base/launch.h"
#include "gc3/base/secret.h"
#include "gc3/comm/communicator.h"
#include "gc3/ir/forms.h"
#include "gc3/runtime/core/meeting/rendezvous.h"
#include "gc3/runtime/select/program_folder.h"
#include "gc3/verify/classes.h"

namespace gc3 {
namespace {

// The number of times that this process has joined each job.
std::uint32_t next_ordinal(const std::string& job) {
  static std::mutex mutex;
  static std::map<std::string, std::uint32_t> ordinals;
  const std::lock_guard lock(mutex);
  return ordinals[job]++;
}

// The jobs that this process is in, which a later init() of the same processes uses again.
const std::shared_ptr<core::Jobs>& jobs() {
  static const auto kJobs = std::make_shared<core::Jobs>();
  return kJobs;
}

// Adds what to do about a call that no row serves: a C++ program has no compiler, so it needs a folder of programs.
Diagnostic with_advice(Diagnostic problem) {
  if (problem.code == ErrorCode::BadTable) {
    problem.note("`gc3 table export -o FOLDER` makes the folder that Options::programs names");
  }
  return problem;
}

}  // namespace

struct Communicator::Body {
  std::shared_ptr<comm::Communicator> comm;

  // Tells the other ranks, which make the call, of wrong arguments. `Outcome`: a Status or Result.
  template <class Outcome>
  Outcome ended(Outcome outcome) const {
    if (outcome.ok()) return outcome;
    comm->refuse(outcome.error());
    return with_advice(std::move(outcome.error()));
  }
  Status call(comm::Call call, std::optional<double> timeout_s) const {
    call.timeout_s = timeout_s;
    return ended(comm->run(call));
  }
  template <class Pointer>
  static std::vector<std::uint8_t*> addresses(const model::Collective& collective, std::uint32_t rank,
                                              model::Buffer buffer, const BlocksAt<Pointer>& blocks,
                                              const Counts& counts, DataType type) {
    if (!blocks.each.empty()) return listed(blocks);
    return comm::consecutive(collective, rank, buffer, counts, model::size_of(type),
                             static_cast<std::uint8_t*>(const_cast<void*>(blocks.first)));
  }
  Status call_v(CollectiveKind kind, const InputBlocks& input, const OutputBlocks& output, const Counts& counts,
                DataType type, ReduceOp op, std::uint32_t root, std::optional<double> timeout_s) const {
    return ended([&]() -> Status {
      GC3_ASSIGN(const model::Collective collective, comm->v_collective(kind, root));
      GC3_CHECK(comm::check_counts(collective, type, counts));
      return comm->run(comm::VCall{kind,
                                   counts,
                                   addresses(collective, comm->rank(), model::Buffer::input, input, counts, type),
                                   addresses(collective, comm->rank(), model::Buffer::output, output, counts, type),
                                   type,
                                   op,
                                   root,
                                   {},
                                   timeout_s});
    }());
  }
  std::shared_future<Status> start(const comm::Call& call) const { return handle_of(comm->start(call), {}); }
  std::shared_future<Status> handle_of(Result<std::shared_future<Status>> started, const Done& done) const {
    if (started.ok()) return std::move(started).value();
    std::promise<Status> failed;
    const Status status = ended(Status(std::move(started.error())));
    if (done) done(status);
    failed.set_value(status);
    return failed.get_future().share();
  }
  template <class Pointer>
  static std::vector<std::uint8_t*> listed(const BlocksAt<Pointer>& blocks) {
    std::vector<std::uint8_t*> found;
    for (const Pointer at : blocks.each) found.push_back(static_cast<std::uint8_t*>(const_cast<void*>(at)));
    return found;
  }
  static comm::Call call_of(const CollectiveCall& call) {
    const void* const input = call.collective == CollectiveKind::broadcast ? call.output.first : call.input.first;
    return {call.collective, input,          call.output.first,  call.count,          call.type,     call.op.op,
            call.root,       call.op.factor, listed(call.input), listed(call.output), call.timeout_s};
  }
  static std::vector<comm::Call> calls_of(const std::vector<CollectiveCall>& calls) {
    std::vector<comm::Call> found;
    for (const CollectiveCall& call : calls) found.push_back(call_of(call));
    return found;
  }
};

Communicator::Communicator(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

std::uint32_t Communicator::rank() const { return body_->comm->rank(); }
std::uint32_t Communicator::size() const { return body_->comm->size(); }

Status Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, const Reduction& op,
                                std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::allreduce, input, output, count, type, op.op, 0, op.factor}, timeout_s);
}
Status Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                                std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::allgather, input, output, count, type}, timeout_s);
}
Status Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                    const Reduction& op, std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::reducescatter, input, output, count, type, op.op, 0, op.factor}, timeout_s);
}
Status Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                                std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::alltoall, input, output, count, type}, timeout_s);
}
Status Communicator::broadcast(void* buffer, std::size_t count, DataType type, std::uint32_t root,
                               std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::broadcast, buffer, buffer, count, type, ReduceOp::sum, root}, timeout_s);
}
Status Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, const Reduction& op,
                            std::uint32_t root, std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::reduce, input, output, count, type, op.op, root, op.factor}, timeout_s);
}
Status Communicator::gather(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root,
                            std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::gather, input, output, count, type, ReduceOp::sum, root}, timeout_s);
}
Status Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root,
                             std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::scatter, input, output, count, type, ReduceOp::sum, root}, timeout_s);
}
Status Communicator::all_to_next(const void* input, void* output, std::size_t count, DataType type,
                                 std::optional<double> timeout_s) {
  return body_->call({CollectiveKind::alltonext, input, output, count, type}, timeout_s);
}
Status Communicator::barrier(std::optional<double> timeout_s) {
  return body_->ended(body_->comm->barrier({}, timeout_s));
}

Status Communicator::all_to_all_v(const InputBlocks& input, const OutputBlocks& output, const Counts& counts,
                                  DataType type, std::optional<double> timeout_s) {
  return body_->call_v(CollectiveKind::alltoall, input, output, counts, type, ReduceOp::sum, 0, timeout_s);
}
Status Communicator::all_gather_v(const void* input, const OutputBlocks& output, const Counts& counts, DataType type,
                                  std::optional<double> timeout_s) {
  return body_->call_v(CollectiveKind::allgather, input, output, counts, type, ReduceOp::sum, 0, timeout_s);
}
Status Communicator::reduce_scatter_v(const InputBlocks& input, void* output, const Counts& counts, DataType type,
                                      ReduceOp op, std::optional<double> timeout_s) {
  return body_->call_v(CollectiveKind::reducescatter, input, output, counts, type, op, 0, timeout_s);
}
Status Communicator::gather_v(const void* input, const OutputBlocks& output, const Counts& counts, DataType type,
                              std::uint32_t root, std::optional<double> timeout_s) {
  return body_->call_v(CollectiveKind::gather, input, output, counts, type, ReduceOp::sum, root, timeout_s);
}
Status Communicator::scatter_v(const InputBlocks& input, void* output, const Counts& counts, DataType type,
                               std::uint32_t root, std::optional<double> timeout_s) {
  return body_->call_v(CollectiveKind::scatter, input, output, counts, type, ReduceOp::sum, root, timeout_s);
}
Result<Counts> Communicator::agree_counts(CollectiveKind collective, const Counts& input, const Counts& output,
                                          DataType type, std::uint32_t root, std::optional<double> timeout_s) {
  comm::VKnown known{collective, type, ReduceOp::sum, root, 1, {}, {}, {}, timeout_s};
  if (!input.empty()) known.input = input;
  if (!output.empty()) known.output = output;
  GC3_ASSIGN(comm::VCounts found, body_->ended(body_->comm->agree(known)));
  return std::move(found.counts);
}

Handle Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                      const Reduction& op) {
  return Handle(body_->start({CollectiveKind::allreduce, input, output, count, type, op.op, 0, op.factor}));
}
Handle Communicator::all_gather_async(const void* input, void* output, std::size_t count, DataType type) {
  return Handle(body_->start({CollectiveKind::allgather, input, output, count, type}));
}
Handle Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                          const Reduction& op) {
  return Handle(body_->start({CollectiveKind::reducescatter, input, output, count, type, op.op, 0, op.factor}));
}
Handle Communicator::all_to_all_async(const void* input, void* output, std::size_t count, DataType type) {
  return Handle(body_->start({CollectiveKind::alltoall, input, output, count, type}));
}
Handle Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, std::uint32_t root) {
  return Handle(body_->start({CollectiveKind::broadcast, buffer, buffer, count, type, ReduceOp::sum, root}));
}
Handle Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                  const Reduction& op, std::uint32_t root) {
  return Handle(body_->start({CollectiveKind::reduce, input, output, count, type, op.op, root, op.factor}));
}
Handle Communicator::gather_async(const void* input, void* output, std::size_t count, DataType type,
                                  std::uint32_t root) {
  return Handle(body_->start({CollectiveKind::gather, input, output, count, type, ReduceOp::sum, root}));
}
Handle Communicator::scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                   std::uint32_t root) {
  return Handle(body_->start({CollectiveKind::scatter, input, output, count, type, ReduceOp::sum, root}));
}
Handle Communicator::all_to_next_async(const void* input, void* output, std::size_t count, DataType type) {
  return Handle(body_->start({CollectiveKind::alltonext, input, output, count, type}));
}

Status Communicator::run(const std::vector<CollectiveCall>& calls) {
  return body_->ended(body_->comm->run(Body::calls_of(calls)));
}
Handle Communicator::start(const CollectiveCall& call, Done done) {
  return Handle(body_->handle_of(body_->comm->start(Body::call_of(call), done), done));
}
Handle Communicator::start(const std::vector<CollectiveCall>& calls, Done done) {
  return Handle(body_->handle_of(body_->comm->start(std::span<const comm::Call>(Body::calls_of(calls)), done), done));
}

Handle::Handle(std::shared_future<Status> done) : done_(std::move(done)), process_(getpid()) {}

Status Handle::wait(std::optional<double> timeout_s) const {
  if (getpid() != process_ && !test()) {
    return Diagnostic(ErrorCode::UsedAfterFork, "process " + std::to_string(process_) + " has made the call");
  }
  if (timeout_s) GC3_CHECK(core::wait_for(done_, *timeout_s, {}));
  return done_.get();
}

bool Handle::test() const { return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

namespace {

// No Result: it would cost short messages 8 % of their rate.
inline Status describe(const Message& message, p2p::Operation& as) {
  if (__builtin_mul_overflow(message.count, model::size_of(message.type), &as.bytes) || as.bytes >> 62U != 0) {
    return Diagnostic(ErrorCode::BadBuffer, std::to_string(message.count) + " elements are more than any memory holds");
  }
  as.kind = message.sends ? p2p::Operation::Kind::send : p2p::Operation::Kind::receive;
  as.data = static_cast<std::uint8_t*>(message.data);
  as.peer = message.peer;
  as.tag = message.tag;
  as.type = p2p::type_of(message.type);
  return {};
}

Result<Transferred> in_elements(const p2p::Envelope& envelope, DataType type) {
  GC3_ASSIGN(const std::uint64_t count, envelope.count(model::size_of(type)));
  return Transferred{envelope.peer, envelope.tag, count};
}

}  // namespace

Result<std::vector<Transferred>> Communicator::batch(const std::vector<Message>& messages,
                                                     std::optional<double> timeout_s) {
  GC3_ASSIGN(p2p::Messenger* const messenger, body_->comm->messages());
  std::vector<p2p::Operation> operations;
  for (const Message& message : messages) {
    GC3_CHECK(describe(message, operations.emplace_back()));
  }
  GC3_ASSIGN(const std::vector<p2p::Envelope> envelopes, messenger->run(operations, {timeout_s, {}}));
  std::vector<Transferred> transferred;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    GC3_ASSIGN(const Transferred one, in_elements(envelopes[i], messages[i].type));
    transferred.push_back(one);
  }
  return transferred;
}

Status Communicator::send(const void* data, std::size_t count, DataType type, std::uint32_t to, std::int32_t tag,
                          std::optional<double> timeout_s) {
  GC3_ASSIGN(p2p::Messenger* const messenger, body_->comm->messages());
  p2p::Operation operation;
  GC3_CHECK(describe(send_of(data, count, type, to, tag), operation));
  return messenger->send(data, operation.bytes, to, tag, {timeout_s, {}}, operation.type);
}

Result<Transferred> Communicator::recv(void* data, std::size_t count, DataType type, std::uint32_t source,
                                       std::int32_t tag, std::optional<double> timeout_s) {
  GC3_ASSIGN(p2p::Messenger* const messenger, body_->comm->messages());
  p2p::Operation operation;
  GC3_CHECK(describe(receive_of(data, count, type, source, tag), operation));
  GC3_ASSIGN(const p2p::Envelope envelope,
             messenger->receive(data, operation.bytes, source, tag, {timeout_s, {}}, operation.type));
  return in_elements(envelope, type);
}

Result<Transferred> Communicator::sendrecv(const Message& send, const Message& receive,
                                           std::optional<double> timeout_s) {
  GC3_ASSIGN(const std::vector<Transferred> both, batch({send, receive}, timeout_s));
  return both[1];
}

Transfer::Transfer(std::shared_ptr<p2p::Request> request, DataType type, std::weak_ptr<comm::Communicator> comm)
    : request_(std::move(request)), type_(type), comm_(std::move(comm)) {}

Result<Transfer> Communicator::start(const Message& message, Done done) {
  GC3_ASSIGN(p2p::Messenger* const messenger, body_->comm->messages());
  p2p::Operation operation;
  GC3_CHECK(describe(message, operation));
  std::function<void(const p2p::Request&)> notify;
  if (done) notify = [done](const p2p::Request& request) { done(request.status()); };
  p2p::Envelope got;
  GC3_ASSIGN(std::shared_ptr<p2p::Request> request,
             messenger->start(operation, std::move(notify), done ? nullptr : &got));
  if (request == nullptr) return Transfer(Transferred{got.peer, got.tag, got.bytes}, message.type);
  return Transfer(std::move(request), message.type, body_->comm);
}

Result<Transferred> Transfer::wait(std::optional<double> timeout_s) const {
  if (request_ == nullptr) return in_elements({done_.peer, done_.tag, done_.count}, type_);
  p2p::Request& request = *request_;
  if (!request.is_done()) {
    const std::shared_ptr<comm::Communicator> comm = comm_.lock();
    if (comm == nullptr) return Diagnostic(ErrorCode::CommunicatorClosed, "");
    GC3_ASSIGN(p2p::Messenger* const messenger, comm->messages());
    GC3_CHECK(messenger->wait(request, {timeout_s, {}}));
  }
  GC3_CHECK(request.status());
  return in_elements(request.got, type_);
}

bool Transfer::test() const {
  if (request_ == nullptr || request_->is_done()) return true;
  const std::shared_ptr<comm::Communicator> comm = comm_.lock();
  if (comm == nullptr) return false;
  const Result<p2p::Messenger*> messenger = comm->messages();
  return messenger.ok() && messenger.value()->test(*request_);
}

Result<std::string> Communicator::explain(CollectiveKind collective, std::size_t count, DataType type, bool in_place,
                                          std::uint32_t root) const {
  GC3_ASSIGN(const select::CallShape shape, body_->comm->shape(collective, count, type, in_place, root));
  Result<select::Explanation> found = body_->comm->explain(shape);
  if (!found.ok()) return with_advice(std::move(found.error()));
  return found.value().str();
}

Result<std::optional<Communicator>> Communicator::split(std::optional<std::uint32_t> color, std::int64_t key) {
  GC3_ASSIGN(std::unique_ptr<comm::Communicator> made, body_->comm->split(color, key));
  if (made == nullptr) return std::optional<Communicator>();
  return std::optional<Communicator>(Communicator(std::make_unique<Body>(Body{std::move(made)})));
}

Result<Communicator> Communicator::group(const std::vector<std::uint32_t>& ranks, const std::string& name,
                                         std::optional<double> timeout, const char* file, int line) {
  const std::string place = std::string(file).substr(std::string_view(file).rfind('/') + 1);
  Result<std::unique_ptr<comm::Communicator>> group =
      body_->comm->group(ranks, name, timeout, {}, name.empty() ? place + ":" + std::to_string(line) : "");
  // Nobody waits for a rank outside the list.
  if (!group.ok() && std::ranges::find(ranks, rank()) == ranks.end()) return std::move(group.error());
  GC3_ASSIGN(std::unique_ptr<comm::Communicator> made, body_->ended(std::move(group)));
  return Communicator(std::make_unique<Body>(Body{std::move(made)}));
}

Status Communicator::load(const std::string& path, std::uint64_t min_size, std::optional<std::uint64_t> max_size) {
  return body_->ended([&]() -> Status {
    GC3_ASSIGN(ir::ProgramFile file, ir::load_any(path, {.keep_classes = true}));
    ir::ClassProgram program = file.taken();
    const verify::Report report = verify::verify(program);
    if (!report.ok()) return report.diagnostics.front();
    return body_->comm->load(std::move(program), min_size, max_size, "load of " + path, path);
  }());
}

Result<Bound> Communicator::bind(const std::string& path, std::map<std::string, Operation> functions) {
  return body_->ended(Bound::made(body_->comm, path, std::move(functions)));
}

void Communicator::abort() { body_->comm->abort(); }

Result<Communicator> init(const Options& options) {
  for (const std::string& remark : unknown_variables(environment_names())) {
    std::fprintf(stderr, "gc3: warning: %s\n", remark.c_str());
  }
  GC3_ASSIGN(const Knobs knobs, read_knobs());
  core::Meeting meeting;
  if (options.rank.has_value() != options.size.has_value()) {
    return Diagnostic(ErrorCode::BadArgument, "rank and size are given both or neither");
  }
  if (options.rank) {
    if (*options.rank >= *options.size) {
      return Diagnostic(ErrorCode::RankOutOfRange,
                        "rank " + std::to_string(*options.rank) + " of " + std::to_string(*options.size) + " ranks");
    }
    meeting.rank = *options.rank;
    meeting.size = *options.size;
  } else {
    GC3_ASSIGN(const Launch launch, read_launch(process_environment()));
    meeting.rank = launch.rank;
    meeting.size = launch.size;
    meeting.job = launch.job;
    if (launch.here) {
      GC3_ASSIGN(meeting.route, core::route_by_address(launch, knobs.network));
    }
  }
  if (!options.job.empty()) meeting.job = options.job;
  // Without a name, the ranks that one process has started are a job; each host has a process of its own that does.
  if (meeting.job.empty()) meeting.job = meeting.route ? "unnamed" : "started by " + std::to_string(getppid());
  meeting.ordinal = next_ordinal(meeting.job);
  meeting.timeout_s = knobs.join_timeout;
  meeting.jobs = jobs();
  GC3_ASSIGN(meeting.secret, read_secret(process_environment()));
  const std::string pin = options.pin ? (*options.pin ? "1" : "0") : knobs.pin;
  GC3_ASSIGN(const std::optional<Place> place,
             choose_place(pin, process_environment(), false, {meeting.rank, meeting.size}));
  GC3_ASSIGN(const core::WaitMode wait, core::parse_wait_mode(options.wait.empty() ? knobs.wait : options.wait));
  GC3_ASSIGN(core::ProbeWish probe, core::ProbeWish::from(knobs.probe, knobs.cache));
  GC3_ASSIGN(const std::vector<select::Row> rows, select::read_program_folder(options.programs));
  comm::AdaptOptions adapt;
  GC3_ASSIGN(adapt.mode,
             comm::parse_adapt_mode(options.adapt.empty() || knobs.adapt == "0" ? knobs.adapt : options.adapt));
  if (!(options.adapt_share >= 0 && options.adapt_share <= 1)) {
    return Diagnostic(ErrorCode::BadOption, "adapt_share must be from 0 to 1");
  }
  adapt.share = static_cast<std::uint32_t>(options.adapt_share * 1e6);
  GC3_ASSIGN(std::unique_ptr<comm::Communicator> made,
             comm::Communicator::init(meeting,
                                      {options.timeout_s.value_or(knobs.comm_timeout),
                                       place.has_value(),
                                       knobs.single_copy != 0,
                                       std::move(probe),
                                       {},
                                       wait,
                                       place},
                                      select::Selection(rows), {}, std::move(adapt)));
  return Communicator(std::make_unique<Communicator::Body>(Communicator::Body{std::move(made)}));
}

}  // namespace gc3
