// gc3 for C++ programs: ranks that are processes of one host call collectives on their own buffers.
//
// The names are those of the Python communicator (docs/processes.md), and so is what happens when a rank fails. Nothing
// throws: functions return a Status or a Result, whose error() is a Diagnostic with a code, what is wrong and what to
// do.
//
//   gc3::Result<gc3::Communicator> made = gc3::init({.programs = "programs"});
//   if (!made.ok()) return complain(made.error().str());
//   gc3::Communicator& comm = made.value();
//   gc3::Status status = comm.all_reduce(x, y, count, gc3::DataType::float32);
//
// Which program serves a call is data: `gc3 table export -o programs` compiles a selection table into a folder, which
// `programs` names; `load` adds programs of one's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gc3/base/result.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"

namespace gc3 {

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
  std::string programs = {};               // folder of `gc3 table export`; empty: only what `load` brings
  std::optional<std::uint32_t> rank = {};  // with `size`; neither: as the launcher says
  std::optional<std::uint32_t> size = {};  // the number of ranks
  std::string job = {};                    // what names the job on this host; empty: what the launcher gives
  std::optional<double> timeout_s = {};    // a call may stand still so long; none: GC3_COMM_TIMEOUT
};

// A call under way. Its buffers belong to it until it is done.
class Handle {
 public:
  // How the call ended; GC3-R003 if it goes on after so long.
  [[nodiscard]] Status wait(std::optional<double> timeout_s = {}) const;
  // Whether it is done, successfully or not.
  bool test() const;

 private:
  friend class Communicator;
  explicit Handle(std::shared_future<Status> done);
  std::shared_future<Status> done_;
  int process_;  // that has the thread which does the call
};

// Every rank makes the same calls in the same order, with the same counts, types and reductions. `count` is the
// elements of one block, as in NCCL: what a rank gives to all_gather and gather, gets from reduce_scatter and scatter,
// sends to each peer in all_to_all, and the whole buffer otherwise. Calls in place give the same pointers as NCCL does:
// the output for the input; in all_gather the input is this rank's block of the output, in reduce_scatter the reverse.
//
// Calls that end in _async go on, one after the other, while the program does something else; later calls of the others
// wait for their turn.
class Communicator {
 public:
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // finishes the calls that were started, and closes it

  std::uint32_t rank() const;
  std::uint32_t size() const;

  [[nodiscard]] Status all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                  const Reduction& op = {});
  [[nodiscard]] Status all_gather(const void* input, void* output, std::size_t count, DataType type);
  [[nodiscard]] Status reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                      const Reduction& op = {});
  [[nodiscard]] Status all_to_all(const void* input, void* output, std::size_t count, DataType type);
  [[nodiscard]] Status broadcast(void* buffer, std::size_t count, DataType type, std::uint32_t root = 0);
  // Of reduce, gather and scatter, the buffer that is the root's alone may be null elsewhere. Not in place.
  [[nodiscard]] Status reduce(const void* input, void* output, std::size_t count, DataType type,
                              const Reduction& op = {}, std::uint32_t root = 0);
  [[nodiscard]] Status gather(const void* input, void* output, std::size_t count, DataType type,
                              std::uint32_t root = 0);
  [[nodiscard]] Status scatter(const void* input, void* output, std::size_t count, DataType type,
                               std::uint32_t root = 0);
  // Each rank gets the input of the rank before it; the output of rank 0 is left alone.
  [[nodiscard]] Status all_to_next(const void* input, void* output, std::size_t count, DataType type);
  [[nodiscard]] Status barrier();

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

  // Which program serves a call of `count` elements per block, by which line of the folder's index or which `load`, and
  // why no earlier one does.
  [[nodiscard]] Result<std::string> explain(CollectiveKind collective, std::size_t count, DataType type,
                                            bool in_place = false, std::uint32_t root = 0) const;

  // Collective: a communicator of the ranks of one color, ordered by key; none for those that give no color.
  [[nodiscard]] Result<std::optional<Communicator>> split(std::optional<std::uint32_t> color, std::int64_t key = 0);
  // Collective among `ranks` alone, this rank included: a communicator in which they are ranks 0, 1, ...; calls of this
  // one may be under way. `name` stands in its error messages. No timeout: that of this one, in seconds.
  [[nodiscard]] Result<Communicator> group(const std::vector<std::uint32_t>& ranks, const std::string& name = {},
                                           std::optional<double> timeout = {});
  // Collective: a program file (.gc3 or MSCCL XML), proven first, serves its collective before any of the folder's, for
  // calls whose largest buffer has `min_size` to below `max_size` bytes.
  [[nodiscard]] Status load(const std::string& path, std::uint64_t min_size = 0,
                            std::optional<std::uint64_t> max_size = {});

  // Makes the calls of all ranks fail, the one under way included. From any thread.
  void abort();

 private:
  struct Body;
  friend Result<Communicator> init(const Options& options);
  explicit Communicator(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

// Collective: meets the other ranks. Who this is and how many there are, torchrun, mpirun, srun or a script has said in
// the environment, if `options` does not.
[[nodiscard]] Result<Communicator> init(const Options& options = {});

}  // namespace gc3
