// gc3 for C++ programs: ranks are processes of one host, which call collectives on their own buffers.
//
// The names and the behaviour on failures are those of the Python communicator (docs/processes.md). Nothing throws:
// functions return a Status or a Result, whose error() is a Diagnostic. A Diagnostic has a code and says what is wrong
// and what to do.
//
//   gc3::Result<gc3::Communicator> made = gc3::init({.programs = "programs"});
//   if (!made.ok()) return complain(made.error().str());
//   gc3::Communicator& comm = made.value();
//   gc3::Status status = comm.all_reduce(x, y, count, gc3::DataType::float32);
//
// A selection table decides which program serves a call. `gc3 table export -o programs` compiles a table into a folder,
// whose path is given as `Options::programs`. `load` adds further programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"

namespace gc3 {

namespace comm {
class Communicator;
}
namespace p2p {
class Request;
}

using model::CollectiveKind;
using model::DataType;
using model::ReduceOp;

// How the inputs of the ranks are combined: an operation, or `pre_mul_sum`.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  model::Factor factor = {};

  Reduction(ReduceOp named = ReduceOp::sum) : op(named) {}  // NOLINT: an operation is one
  // The sum of the inputs, each multiplied before by `scalar` of its rank: an element of `type`, which is the call's.
  // As ncclRedOpCreatePreMulSum.
  static Reduction pre_mul_sum(const void* scalar, DataType type) {
    Reduction made(ReduceOp::premulsum);
    made.factor = model::Factor::of(scalar, type);
    return made;
  }
};

struct Options {
  std::string programs = {};               // folder of `gc3 table export`; empty: only programs of `load`
  std::optional<std::uint32_t> rank = {};  // must be given with `size`; neither: both are from the launcher
  std::optional<std::uint32_t> size = {};  // the number of ranks
  std::string job = {};                    // the name of the job on this host; empty: the name from the launcher
  std::optional<double> timeout_s = {};    // a call without progress for so long fails; none: GC3_COMM_TIMEOUT
  std::optional<bool> pin = {};            // to a share of the cores, see GC3_PIN; none: GC3_PIN
  std::string adapt = {};                  // whether it learns while calls run, as in GC3_ADAPT; empty: GC3_ADAPT
  double adapt_share = 0.02;               // of the time, that trials may cost then
  std::string wait = {};                   // auto, spin, yield or block as in GC3_WAIT; empty: GC3_WAIT
};

// The blocks of a buffer in a call that gives each a length of its own: one after the other from an address on, or each
// where a list says.
template <class Pointer>
struct BlocksAt {
  BlocksAt(Pointer from) : first(from) {}
  BlocksAt(std::nullptr_t) {}
  BlocksAt(std::vector<Pointer> all) : each(std::move(all)) {}
  Pointer first = nullptr;
  std::vector<Pointer> each = {};
};
using InputBlocks = BlocksAt<const void*>;
using OutputBlocks = BlocksAt<void*>;
using Counts = std::vector<std::uint64_t>;

// A collective call with its buffers, as the functions of `Communicator` take them; of broadcast only `output`. Blocks
// of a buffer may lie in arrays of their own. If such a call is made alone, they do so on all ranks.
struct CollectiveCall {
  CollectiveKind collective = CollectiveKind::allreduce;
  InputBlocks input = nullptr;
  OutputBlocks output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  Reduction op = {};
  std::uint32_t root = 0;
  std::optional<double> timeout_s = {};  // as of the functions; of several calls at once, the shortest counts
};

// Called by another thread with the status of a call that has ended; it must neither wait for other calls nor throw.
using Done = std::function<void(const Status&)>;

// A running call. The caller must not use its buffers until it has finished.
class Handle {
 public:
  // The status of the call once it has finished; the error GC3-R003 if it still runs after `timeout_s`.
  [[nodiscard]] Status wait(std::optional<double> timeout_s = {}) const;
  // Whether the call has finished, successfully or not.
  bool test() const;

 private:
  friend class Communicator;
  explicit Handle(std::shared_future<Status> done);
  std::shared_future<Status> done_;
  int process_;  // the process whose thread runs the call
};

// For messages between two ranks: from whichever rank, with whichever tag.
inline constexpr std::uint32_t kAnySource = ~std::uint32_t{0};
inline constexpr std::int32_t kAnyTag = -1;

// What a receive has got: from whom, with which tag, how many elements. Of a send: to whom, and what was sent.
struct Transferred {
  std::uint32_t peer = 0;
  std::int32_t tag = 0;
  std::size_t count = 0;
};

// One send or receive of `Communicator::batch`, made by `send_of` and `receive_of`. Tags are 0 or more.
struct Message {
  bool sends = true;
  void* data = nullptr;  // that of a send is only read
  std::size_t count = 0;
  DataType type = DataType::uint8;
  std::uint32_t peer = 0;
  std::int32_t tag = 0;
};
inline Message send_of(const void* data, std::size_t count, DataType type, std::uint32_t to, std::int32_t tag = 0) {
  return {true, const_cast<void*>(data), count, type, to, tag};
}
inline Message receive_of(void* data, std::size_t count, DataType type, std::uint32_t source = kAnySource,
                          std::int32_t tag = kAnyTag) {
  return {false, data, count, type, source, tag};
}

// A send or receive that was started. Its buffer belongs to it until it is done.
class Transfer {
 public:
  // How it ended; GC3-R003 if it goes on after so long.
  [[nodiscard]] Result<Transferred> wait(std::optional<double> timeout_s = {}) const;
  // Whether it is done, successfully or not.
  bool test() const;

 private:
  friend class Communicator;
  Transfer(const Transferred& done, DataType type) : done_(done), type_(type) {}
  Transfer(std::shared_ptr<p2p::Request> request, DataType type, std::weak_ptr<comm::Communicator> comm);
  Transferred done_;  // of one that was done when it was started, which needs no request; in bytes
  std::shared_ptr<p2p::Request> request_;
  DataType type_;
  std::weak_ptr<comm::Communicator> comm_;  // whose end is the end of the request
};

// A chunk of a tensor of a program that computes. That of an operand is only read.
struct Chunk {
  void* data = nullptr;
  std::size_t count = 0;  // elements
};

// A compute operation: fills its results from its operands. It is called by the thread that has made the call, and
// makes no calls itself. A status that is not ok ends the call, and gives up the communicator, on all ranks.
using Operation = std::function<Status(const std::vector<Chunk>& operands, const std::vector<Chunk>& results)>;

// A program of named tensors with a function for each of its operations; made by `Communicator::bind`.
class Bound {
 public:
  // Runs this rank's part; all ranks make the call. `tensors`: by name, the inputs and outputs of this rank, whose
  // chunks lie one after the other. `counts`: the elements of a chunk, by the name of a tensor or scratch buffer; of
  // buffers between which the program moves chunks, one is enough.
  [[nodiscard]] Status run(const std::map<std::string, void*>& tensors,
                           const std::map<std::string, std::size_t>& counts, DataType type, ReduceOp op = ReduceOp::sum,
                           std::optional<double> timeout_s = {});

 private:
  friend class Communicator;
  struct Body;
  explicit Bound(std::shared_ptr<Body> body);
  static Result<Bound> made(const std::shared_ptr<comm::Communicator>& comm, const std::string& path,
                            std::map<std::string, Operation> functions);
  std::shared_ptr<Body> body_;
};

// All ranks make the same calls in the same order, with the same counts, types and reductions. `count` is the number of
// elements of one block, as in NCCL. A block is a rank's input in all_gather and gather, its output in reduce_scatter
// and scatter, the part for each rank in all_to_all, and the whole buffer otherwise. In-place calls have the same
// pointers as in NCCL: input and output are the same; in all_gather the input is this rank's block of the output, in
// reduce_scatter the output is this rank's block of the input.
//
// A call that makes no progress for `timeout_s` fails with GC3-R003, and the communicator is given up on all ranks;
// none: as Options::timeout_s says.
//
// Calls that end in _async run one after the other while the program continues. Other calls made later wait until these
// have finished.
class Communicator {
 public:
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // waits for started calls, and closes the communicator

  std::uint32_t rank() const;
  std::uint32_t size() const;

  [[nodiscard]] Status all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                  const Reduction& op = {}, std::optional<double> timeout_s = {});
  [[nodiscard]] Status all_gather(const void* input, void* output, std::size_t count, DataType type,
                                  std::optional<double> timeout_s = {});
  [[nodiscard]] Status reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                      const Reduction& op = {}, std::optional<double> timeout_s = {});
  [[nodiscard]] Status all_to_all(const void* input, void* output, std::size_t count, DataType type,
                                  std::optional<double> timeout_s = {});
  [[nodiscard]] Status broadcast(void* buffer, std::size_t count, DataType type, std::uint32_t root = 0,
                                 std::optional<double> timeout_s = {});
  // In reduce, gather and scatter, the buffer that only the root uses may be null on other ranks. They cannot be in
  // place, but the root of reduce may give one buffer for both, of which the call makes a copy.
  [[nodiscard]] Status reduce(const void* input, void* output, std::size_t count, DataType type,
                              const Reduction& op = {}, std::uint32_t root = 0, std::optional<double> timeout_s = {});
  [[nodiscard]] Status gather(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root = 0,
                              std::optional<double> timeout_s = {});
  [[nodiscard]] Status scatter(const void* input, void* output, std::size_t count, DataType type,
                               std::uint32_t root = 0, std::optional<double> timeout_s = {});
  // Each rank gets the input of the previous rank; the output of rank 0 is not changed.
  [[nodiscard]] Status all_to_next(const void* input, void* output, std::size_t count, DataType type,
                                   std::optional<double> timeout_s = {});
  [[nodiscard]] Status barrier(std::optional<double> timeout_s = {});

  // Blocks of different lengths. `counts` are those of all blocks, in elements, the same on all ranks: of all_to_all_v
  // what rank 0 sends to each rank, then rank 1 and so on; of the others the length of each rank's block. In place as
  // the calls above; all_to_all_v then needs any two ranks to send each other equally much.
  [[nodiscard]] Status all_to_all_v(const InputBlocks& input, const OutputBlocks& output, const Counts& counts,
                                    DataType type, std::optional<double> timeout_s = {});
  [[nodiscard]] Status all_gather_v(const void* input, const OutputBlocks& output, const Counts& counts, DataType type,
                                    std::optional<double> timeout_s = {});
  [[nodiscard]] Status reduce_scatter_v(const InputBlocks& input, void* output, const Counts& counts, DataType type,
                                        ReduceOp op = ReduceOp::sum, std::optional<double> timeout_s = {});
  [[nodiscard]] Status gather_v(const void* input, const OutputBlocks& output, const Counts& counts, DataType type,
                                std::uint32_t root = 0, std::optional<double> timeout_s = {});
  [[nodiscard]] Status scatter_v(const InputBlocks& input, void* output, const Counts& counts, DataType type,
                                 std::uint32_t root = 0, std::optional<double> timeout_s = {});
  // Collective: the counts of such a call, from the lengths of the blocks of this rank's input, and of its output where
  // they are known. Empty: not known here. GC3-R025 on every rank if two ranks disagree.
  [[nodiscard]] Result<Counts> agree_counts(CollectiveKind collective, const Counts& input, const Counts& output,
                                            DataType type, std::uint32_t root = 0,
                                            std::optional<double> timeout_s = {});

  Handle all_reduce_async(const void* input, void* output, std::size_t count, DataType type, const Reduction& op = {});
  Handle all_gather_async(const void* input, void* output, std::size_t count, DataType type);
  Handle reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                              const Reduction& op = {});
  Handle all_to_all_async(const void* input, void* output, std::size_t count, DataType type);
  Handle broadcast_async(void* buffer, std::size_t count, DataType type, std::uint32_t root = 0);
  Handle reduce_async(const void* input, void* output, std::size_t count, DataType type, const Reduction& op = {},
                      std::uint32_t root = 0);
  Handle gather_async(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root = 0);
  Handle scatter_async(const void* input, void* output, std::size_t count, DataType type, std::uint32_t root = 0);
  Handle all_to_next_async(const void* input, void* output, std::size_t count, DataType type);

  // Several calls at once, none of which may use what another writes: those of one collective, type, reduction and root
  // are one run of one program, which needs no copies of their buffers.
  [[nodiscard]] Status run(const std::vector<CollectiveCall>& calls);
  // Starts a call, or several at once. `done`, if given, is called when they have ended; a call that is invalid has
  // ended at once, and `done` is called before this returns.
  Handle start(const CollectiveCall& call, Done done = {});
  Handle start(const std::vector<CollectiveCall>& calls, Done done = {});

  // Messages between two ranks, which are no calls in the order of the others. A receive takes the first message of its
  // source and tag; messages of one sender and tag come in the order in which they were sent. A longer buffer than the
  // message is no mistake, a shorter one is GC3-R026. A long message is sent when it is received. `timeout_s`: this
  // call alone ends after so long. From any thread, beside all other calls.
  [[nodiscard]] Status send(const void* data, std::size_t count, DataType type, std::uint32_t to, std::int32_t tag = 0,
                            std::optional<double> timeout_s = {});
  [[nodiscard]] Result<Transferred> recv(void* data, std::size_t count, DataType type,
                                         std::uint32_t source = kAnySource, std::int32_t tag = kAnyTag,
                                         std::optional<double> timeout_s = {});
  // Both at once; what the receive has got.
  [[nodiscard]] Result<Transferred> sendrecv(const Message& send, const Message& receive,
                                             std::optional<double> timeout_s = {});
  // All of them at once, in any order.
  [[nodiscard]] Result<std::vector<Transferred>> batch(const std::vector<Message>& messages,
                                                       std::optional<double> timeout_s = {});
  // Starts one. `done`, if given, is called by another thread when it has ended, and must neither wait nor throw.
  [[nodiscard]] Result<Transfer> start(const Message& message, Done done = {});
  [[nodiscard]] Result<Transfer> isend(const void* data, std::size_t count, DataType type, std::uint32_t to,
                                       std::int32_t tag = 0) {
    return start(send_of(data, count, type, to, tag));
  }
  [[nodiscard]] Result<Transfer> irecv(void* data, std::size_t count, DataType type, std::uint32_t source = kAnySource,
                                       std::int32_t tag = kAnyTag) {
    return start(receive_of(data, count, type, source, tag));
  }

  // The program that serves a call of `count` elements per block, the line of the folder's index or the `load` that
  // names it, and why earlier ones do not serve the call.
  [[nodiscard]] Result<std::string> explain(CollectiveKind collective, std::size_t count, DataType type,
                                            bool in_place = false, std::uint32_t root = 0) const;

  // Collective: a communicator of the ranks with the same color, ordered by key; none for ranks without a color.
  [[nodiscard]] Result<std::optional<Communicator>> split(std::optional<std::uint32_t> color, std::int64_t key = 0);
  // Collective among `ranks` only, which must include this rank: a communicator in which they are ranks 0, 1, ... Calls
  // of this communicator may be running. `name` is part of the new one's error messages. `timeout` is in seconds; none:
  // that of this communicator. Groups without a name are made in one order, by the same lines of the program on all of
  // their ranks; two that one line makes of the same ranks are only told apart by names.
  [[nodiscard]] Result<Communicator> group(const std::vector<std::uint32_t>& ranks, const std::string& name = {},
                                           std::optional<double> timeout = {}, const char* file = __builtin_FILE(),
                                           int line = __builtin_LINE());
  // Collective: verifies a program file (.gc3 or MSCCL XML). From then on it serves its collective, before the programs
  // of the folder, for calls whose largest buffer has at least `min_size` and less than `max_size` bytes.
  [[nodiscard]] Status load(const std::string& path, std::uint64_t min_size = 0,
                            std::optional<std::uint64_t> max_size = {});

  // Verifies the file of a program that computes. `functions`: by the names of its operations.
  [[nodiscard]] Result<Bound> bind(const std::string& path, std::map<std::string, Operation> functions);

  // Makes the calls of all ranks fail, including running ones. Can be called from any thread.
  void abort();

 private:
  struct Body;
  friend Result<Communicator> init(const Options& options);
  explicit Communicator(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

// Collective: connects to the other ranks. Without `rank` and `size` in `options`, both are read from the environment,
// where torchrun, mpirun, srun or a script has set them.
[[nodiscard]] Result<Communicator> init(const Options& options = {});

}  // namespace gc3
