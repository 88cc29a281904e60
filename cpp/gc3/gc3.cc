#include "gc3/gc3.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "gc3/base/knobs.h"
#include "gc3/base/launch.h"
#include "gc3/ir/forms.h"
#include "gc3/runtime/core/progress.h"
#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/cpu/program_folder.h"
#include "gc3/verify/verify.h"

namespace gc3 {
namespace {

using cpu::CallShape;
using cpu::ProgramEntry;
using model::Collective;

constexpr std::size_t kMostRemembered = 4096;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62U;  // of a buffer, so that no sum of sizes overflows

// How many times this process has met the ranks of each job.
std::uint32_t next_ordinal(const std::string& job) {
  static std::mutex mutex;
  static std::map<std::string, std::uint32_t> ordinals;
  const std::lock_guard lock(mutex);
  return ordinals[job]++;
}

std::uint32_t largest_blocks(const Collective& collective) {
  std::uint32_t blocks = 0;
  for (std::uint32_t rank = 0; rank < collective.ranks(); ++rank) {
    blocks = std::max({blocks, collective.input_blocks(rank), collective.output_blocks(rank)});
  }
  return blocks;
}

// A call as the user has made it.
struct Asked {
  CollectiveKind kind;
  const void* input;
  void* output;
  std::size_t count;
  DataType type;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
};

std::string described(const CallShape& shape) {
  return std::string(name_of(shape.kind)) + " of " + std::to_string(shape.size) + " bytes on " +
         std::to_string(shape.ranks) + " ranks" + (shape.in_place ? ", in place" : "");
}

Diagnostic nothing_serves(const CallShape& shape) {
  Diagnostic problem(ErrorCode::BadTable, "no program serves " + described(shape));
  return problem.note("`gc3 table export -o FOLDER` makes the folder that Options::programs names");
}

}  // namespace

struct Communicator::Body {
  using Ready = std::shared_ptr<cpu::ProcessProgram>;

  std::unique_ptr<cpu::Communicator> core;
  // Loaded programs, the last first, then those of the folder; made ready when a call needs them.
  std::vector<ProgramEntry> entries;
  std::map<std::tuple<std::string, std::uint32_t, std::uint64_t>, Ready> ready;  // by path and FIFOs
  // What earlier calls have found: the buffers of a collective, and the program of a kind of call.
  std::map<std::tuple<CollectiveKind, std::uint32_t>, Collective> collectives;
  std::map<std::tuple<CollectiveKind, std::uint64_t, bool, std::uint32_t>, Ready> remembered;
  std::mutex mutex;         // of all but the first
  core::Progress progress;  // the last: what it still does needs the rest

  Status call(const Asked& asked);
  Status in_turn(const Asked& asked) {
    return progress.in_turn([this, asked] { return call(asked); });
  }
  std::shared_future<Status> start(const Asked& asked) {
    return progress.start([this, asked] { return call(asked); });
  }
  Result<const Collective*> buffers(CollectiveKind kind, std::size_t count, DataType type, std::uint32_t root);
  Result<std::string> explain(const CallShape& shape, std::string text);
  Result<Ready> choose(const CallShape& shape);
  Result<Ready> prepare(const ProgramEntry& entry, bool prove);
};

Result<Communicator::Body::Ready> Communicator::Body::prepare(const ProgramEntry& entry, bool prove) {
  GC3_ASSIGN(ir::ProgramFile file, ir::load_any(entry.path));
  if (prove) {
    const verify::Report report = verify::verify(file.program);
    if (!report.ok()) return report.diagnostics.front();
  }
  return core->prepare(file.program, entry.slots, entry.slot_bytes);
}

// The buffers of a call, which exist and could be.
Result<const Collective*> Communicator::Body::buffers(CollectiveKind kind, std::size_t count, DataType type,
                                                      std::uint32_t root) {
  if (root >= core->size()) {
    return Diagnostic(ErrorCode::RankOutOfRange,
                      "root " + std::to_string(root) + " of " + std::to_string(core->size()) + " ranks");
  }
  const std::lock_guard lock(mutex);
  auto found = collectives.find({kind, root});
  if (found == collectives.end()) {
    GC3_ASSIGN(Collective made, Collective::builtin(kind, core->size(), 1, root, true));
    found = collectives.emplace(std::tuple(kind, root), std::move(made)).first;
  }
  if (count > kMostBytes / size_of(type) / largest_blocks(found->second)) {
    return Diagnostic(ErrorCode::BadBuffer, std::to_string(count) + " elements are more than any memory holds");
  }
  return &found->second;
}

// Continues `text`, which names the call.
Result<std::string> Communicator::Body::explain(const CallShape& shape, std::string text) {
  const std::lock_guard lock(mutex);
  std::string others;
  for (const ProgramEntry& entry : entries) {
    if (entry.shape.kind != shape.kind || entry.shape.ranks != shape.ranks) continue;
    const std::string why = entry.misfit(shape);
    if (why.empty()) return text + ": " + entry.path + "\n  chosen by " + entry.source + others;
    others += "\n  not " + entry.source + ": " + why;
  }
  return nothing_serves(shape);
}

Result<Communicator::Body::Ready> Communicator::Body::choose(const CallShape& shape) {
  const std::lock_guard lock(mutex);
  const std::tuple key(shape.kind, shape.size, shape.in_place, shape.root);
  const auto known = remembered.find(key);
  if (known != remembered.end()) return known->second;
  for (const ProgramEntry& entry : entries) {
    if (!entry.serves(shape)) continue;
    Ready& found = ready[{entry.path, entry.slots, entry.slot_bytes}];
    if (found == nullptr) {
      GC3_ASSIGN(found, prepare(entry, false));
    }
    if (remembered.size() >= kMostRemembered) remembered.clear();
    remembered[key] = found;
    return found;
  }
  return nothing_serves(shape);
}

Status Communicator::Body::call(const Asked& asked) {
  const std::uint32_t ranks = core->size();
  const std::uint32_t rank = core->rank();
  GC3_ASSIGN(const Collective* const found, buffers(asked.kind, asked.count, asked.type, asked.root));
  const Collective& collective = *found;
  const std::size_t block = asked.count * size_of(asked.type);
  const std::size_t input_bytes = block * collective.input_blocks(rank);
  const std::size_t output_bytes = block * collective.output_blocks(rank);
  if ((input_bytes != 0 && asked.input == nullptr) || (output_bytes != 0 && asked.output == nullptr)) {
    return Diagnostic(ErrorCode::BadBuffer, "a null pointer for the " +
                                                std::string(asked.input == nullptr && input_bytes != 0 ? "in" : "out") +
                                                "put of rank " + std::to_string(rank));
  }
  const auto* const input = input_bytes == 0 ? nullptr : static_cast<const std::byte*>(asked.input);
  auto* const output = output_bytes == 0 ? nullptr : static_cast<std::byte*>(asked.output);

  // Only the root would know that a call of these is in place, so it never is.
  const bool may_be_in_place = asked.kind != CollectiveKind::reduce && asked.kind != CollectiveKind::gather &&
                               asked.kind != CollectiveKind::scatter;
  bool in_place = asked.kind == CollectiveKind::broadcast;
  if (!in_place && input != nullptr && output != nullptr) {
    const std::less<> before;  // of pointers into different buffers, too
    const bool overlap = before(input, output + output_bytes) && before(output, input + input_bytes);
    const auto alias = collective.alias(rank);
    const std::byte* inner = output;
    const std::byte* outer = input;
    if (alias && alias->inner == model::Buffer::input) std::swap(inner, outer);
    in_place = overlap && may_be_in_place && alias && inner == outer + block * alias->offset;
    if (overlap && !in_place) {
      return Diagnostic(ErrorCode::BadBuffer, "input and output of rank " + std::to_string(rank) +
                                                  " overlap other than " + std::string(name_of(asked.kind)) +
                                                  " in place does");
    }
  }
  const std::uint64_t size = std::uint64_t{block} * largest_blocks(collective);
  GC3_ASSIGN(const Ready program, choose({asked.kind, ranks, size, in_place, asked.root}));
  return core->run(*program, {input, output, asked.count, asked.type, asked.op});
}

Communicator::Communicator(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

std::uint32_t Communicator::rank() const { return body_->core->rank(); }
std::uint32_t Communicator::size() const { return body_->core->size(); }

Status Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
  return body_->in_turn({CollectiveKind::allreduce, input, output, count, type, op});
}
Status Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type) {
  return body_->in_turn({CollectiveKind::allgather, input, output, count, type});
}
Status Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
  return body_->in_turn({CollectiveKind::reducescatter, input, output, count, type, op});
}
Status Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type) {
  return body_->in_turn({CollectiveKind::alltoall, input, output, count, type});
}
Status Communicator::broadcast(void* buffer, std::size_t count, DataType type, std::uint32_t root) {
  return body_->in_turn({CollectiveKind::broadcast, buffer, buffer, count, type, ReduceOp::sum, root});
}
Status Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                            std::uint32_t root) {
  return body_->in_turn({CollectiveKind::reduce, input, output, count, type, op, root});
}
Status Communicator::gather(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root) {
  return body_->in_turn({CollectiveKind::gather, input, output, count, type, ReduceOp::sum, root});
}
Status Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root) {
  return body_->in_turn({CollectiveKind::scatter, input, output, count, type, ReduceOp::sum, root});
}
Status Communicator::all_to_next(const void* input, void* output, std::size_t count, DataType type) {
  return body_->in_turn({CollectiveKind::alltonext, input, output, count, type});
}
Status Communicator::barrier() {
  return body_->progress.in_turn([this] { return body_->core->barrier(); });
}

Handle Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
  return Handle(body_->start({CollectiveKind::allreduce, input, output, count, type, op}));
}
Handle Communicator::all_gather_async(const void* input, void* output, std::size_t count, DataType type) {
  return Handle(body_->start({CollectiveKind::allgather, input, output, count, type}));
}
Handle Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                          ReduceOp op) {
  return Handle(body_->start({CollectiveKind::reducescatter, input, output, count, type, op}));
}
Handle Communicator::all_to_all_async(const void* input, void* output, std::size_t count, DataType type) {
  return Handle(body_->start({CollectiveKind::alltoall, input, output, count, type}));
}
Handle Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, std::uint32_t root) {
  return Handle(body_->start({CollectiveKind::broadcast, buffer, buffer, count, type, ReduceOp::sum, root}));
}
Handle Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                                  std::uint32_t root) {
  return Handle(body_->start({CollectiveKind::reduce, input, output, count, type, op, root}));
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

Status Handle::wait(std::optional<double> timeout_s) const {
  if (timeout_s && done_.wait_for(std::chrono::duration<double>(*timeout_s)) != std::future_status::ready) {
    return Diagnostic(ErrorCode::Timeout, "the call is not done after " + std::to_string(*timeout_s) + " s");
  }
  return done_.get();
}

bool Handle::test() const { return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

Result<std::string> Communicator::explain(CollectiveKind collective, std::size_t count, DataType type, bool in_place,
                                          std::uint32_t root) const {
  GC3_ASSIGN(const Collective* const found, body_->buffers(collective, count, type, root));
  const CallShape shape{collective, size(), count * size_of(type) * largest_blocks(*found), in_place, root};
  return body_->explain(shape, described(shape));
}

Result<std::optional<Communicator>> Communicator::split(std::optional<std::uint32_t> color, std::int64_t key) {
  std::unique_ptr<cpu::Communicator> core;
  GC3_CHECK(body_->progress.in_turn([&]() -> Status {
    GC3_ASSIGN(core, body_->core->split(color, key));
    return {};
  }));
  if (core == nullptr) return std::optional<Communicator>();
  auto body = std::make_unique<Body>();
  body->core = std::move(core);
  const std::lock_guard lock(body_->mutex);
  body->entries = body_->entries;
  return std::optional<Communicator>(Communicator(std::move(body)));
}

Status Communicator::load(const std::string& path, std::uint64_t min_size, std::optional<std::uint64_t> max_size) {
  ProgramEntry entry;
  entry.path = path;
  entry.source = "load of " + path;
  GC3_ASSIGN(Body::Ready program, body_->prepare(entry, true));
  GC3_CHECK(body_->progress.in_turn([&] { return body_->core->load(*program); }));
  const std::lock_guard lock(body_->mutex);
  const Collective& collective = program->plan().collective;
  entry.shape = {collective.kind(), collective.ranks(), min_size, collective.in_place(), collective.root()};
  entry.end = max_size;
  body_->ready[{path, 0, 0}] = std::move(program);
  body_->remembered.clear();
  body_->entries.insert(body_->entries.begin(), std::move(entry));
  return {};
}

void Communicator::abort() { body_->core->abort(); }

Result<Communicator> init(const Options& options) {
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
  }
  if (!options.job.empty()) meeting.job = options.job;
  // Ranks that one process has started are a job, if nothing else says which.
  if (meeting.job.empty()) meeting.job = "started by " + std::to_string(getppid());
  meeting.ordinal = next_ordinal(meeting.job);
  meeting.timeout_s = knobs.join_timeout;
  auto body = std::make_unique<Communicator::Body>();
  GC3_ASSIGN(body->entries, cpu::read_program_folder(options.programs));
  GC3_ASSIGN(body->core, cpu::Communicator::init(meeting, {options.timeout_s.value_or(knobs.comm_timeout),
                                                           knobs.pin != 0, knobs.single_copy != 0}));
  return Communicator(std::move(body));
}

}  // namespace gc3
