// Builds a Trace operation by operation and reports every misuse at the user's line (002 section 3, 000 section 3.2).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/compiler/fingerprint.h"
#include "gc3/compiler/trace.h"
#include "gc3/model/terms.h"

namespace gc3::compiler {

// A reference that the user holds: the chunks at a location, valid until an operation overwrites one of them.
struct Ref {
  Range range;  // canonical
  Range named;  // as the user wrote it, for messages
  std::uint32_t count = 1;
  std::uint32_t made = 0;  // number of operations traced when the reference was made
  LocationId where;
};

struct Directives {
  std::int32_t channel = kAuto;
  std::int32_t send_tb = kAuto;
  std::int32_t recv_tb = kAuto;
  std::uint32_t group = kNone;  // see ChunkOp
};

struct TracerOptions {
  std::string name;
  model::Collective collective;  // the mode that the algorithm is written for
  bool in_place = false;         // the mode of the program; if they differ, copies adapt the algorithm
  model::Protocol protocol = model::Protocol::Simple;
  std::vector<std::string> scratch;  // names of further scratch buffers
  bool open = false;                 // the outputs are required to hold what the program makes
  SourceLocation where;              // the line of the algorithm itself, for copies that adapt it
};

class Tracer {
 public:
  static Result<Tracer> create(TracerOptions options);
  static Result<Tracer> create(TracerOptions options, Fingerprints fingerprints);

  // The program is written from the view of one rank of a machine of this shape. From then on a rank is a translation
  // of it, and an index is the one that this rank gives to the place that it shares with the named one.
  Status see_from_one_rank(const std::vector<std::uint32_t>& shape, LocationId where);
  const model::Symmetry& symmetry() const { return trace_.symmetry; }
  // The chunks of a reference depend on coordinates of the rank, as these axes say.
  Status depend(const Ref& ref, const model::Axes& axes, LocationId where);

  // Interns a source location, with the line that called its function; pass the id to the calls below.
  LocationId add_location(SourceLocation location, LocationId caller = LocationId::none());
  // The problem, placed at a line, with the lines that called its function as notes.
  Diagnostic at(Diagnostic problem, LocationId where) const;
  Result<BufferIndex> buffer(std::string_view name) const;
  // The buffer of that name; makes a scratch buffer if there is none.
  Result<BufferIndex> scratch_buffer(const std::string& name);

  // `may_be_empty`: the reference is a destination (000's `chunk(...).assign(c)`), not a source.
  Result<Ref> chunk(std::int64_t rank, BufferIndex buffer, std::int64_t index, std::int64_t count, bool may_be_empty,
                    LocationId where);
  // Without an index: to the end of a scratch buffer. Without a buffer either: to the same place of `rank`.
  Result<Ref> copy(const Ref& src, std::int64_t rank, std::optional<BufferIndex> buffer,
                   std::optional<std::int64_t> index, const Directives& directives, LocationId where);
  // dst = dst + src.
  Result<Ref> reduce(const Ref& dst, const Ref& src, const Directives& directives, LocationId where);

  // Applies a compute operation to single chunks of a rank; the results are at the places `out` of that rank.
  struct OutPlace {
    std::int64_t rank;
    BufferIndex buffer;
    std::int64_t index;
  };
  Result<std::vector<Ref>> apply(std::string_view operation, std::span<const Ref> operands,
                                 std::span<const OutPlace> out, LocationId where);

  // Copies to the same place of several ranks, which a switch may multicast.
  Result<std::vector<Ref>> multicast(const Ref& src, std::span<const std::int64_t> ranks,
                                     std::optional<BufferIndex> buffer, std::optional<std::int64_t> index,
                                     Directives directives, LocationId where);
  // dst = dst + all of these, of other ranks, which a switch may add up.
  Result<Ref> multireduce(const Ref& dst, std::span<const Ref> parts, Directives directives, LocationId where);

  // The reference cut into `parts` references of equal counts.
  Result<std::vector<Ref>> split(const Ref& ref, std::int64_t parts, LocationId where);
  // One reference to the chunks of two, which touch or overlap.
  Result<Ref> group(const Ref& a, const Ref& b, LocationId where);

  // Nested `with parallelize(n)` blocks multiply.
  Status push_factor(std::int64_t factor, LocationId where);
  void pop_factor();
  // Begins the next step: see ChunkOp::step.
  void next_step() { ++step_; }

  // Ends the trace: returns the finished trace, or every mismatch with the postcondition, up to `limit`.
  std::vector<Diagnostic> check_postcondition(std::size_t limit);
  Result<Trace> finish();

  const Trace& trace() const { return trace_; }

 private:
  struct Cell {
    Fingerprint value;
    std::uint32_t terms = 0;        // the number of inputs in the sum, exact below model::kManyTerms
    std::uint32_t written = kNone;  // number of operations traced when this was written; 0: input data
  };

  Tracer() = default;
  // Makes the cells, when the first is asked for.
  Status begin() { return begun_ ? Status() : make_cells(); }
  Status make_cells();
  Status lay_out_axes();
  // The tensor that a buffer name stands for, or null; the first chunk of one in the buffer where it is.
  const model::Tensor* tensor(BufferIndex buffer) const;
  std::uint32_t first_chunk(const model::Tensor& tensor, std::uint32_t rank) const;
  // The buffer name whose chunks have the length of that place: a tensor or a scratch buffer.
  BufferIndex owner(const Range& range) const;
  BufferIndex same_length(BufferIndex buffer) const;  // the first of those whose chunks have equal lengths
  void share_length(const Range& a, const Range& b, std::uint32_t count);
  void number_lengths();
  Result<Ref> place_result(const OutPlace& out, const Ref& first, std::span<const Ref> operands,
                           std::span<const Ref> results);
  // The exact value of a chunk, where operations may be linear; keeps one, or says that there are too many.
  model::Terms exact(const Range& range, std::uint32_t k) const;
  Status keep_exact(const Range& range, std::uint32_t k, model::Terms terms);
  Status keep_moved(const ChunkOp& op, std::uint32_t k);
  std::optional<model::Terms> held_terms(const Range& range, model::Calls& calls) const;
  Range canonical(const Range& named) const;
  std::uint32_t row(std::uint32_t rank) const { return symmetry().exists() ? 0 : rank; }
  std::vector<Cell>& cells(const Range& range) { return cells_[range.buffer][row(range.rank)]; }
  const std::vector<Cell>& cells(const Range& range) const { return cells_[range.buffer][row(range.rank)]; }
  Result<Range> locate(std::int64_t rank, BufferIndex buffer, std::int64_t index, std::int64_t count, bool write);
  Status check_readable(const Ref& ref, const char* role) const;
  Status check_group(std::uint32_t own, std::span<const std::int64_t> others, const char* what) const;
  static Status check_directives(const Directives& directives);
  Status check_writable(const Range& named, const Range& range, std::uint32_t count) const;
  Result<Ref> record(OpKind kind, const Ref& src, const Range& named, const Range& dst, const Directives& directives,
                     LocationId where);
  void copy_inside_rank(const Range& src, const Range& dst, std::uint32_t count);
  void adapt_before();
  void adapt_after();
  std::optional<model::Terms> held(const Range& range) const;
  void explain_properties(Diagnostic& problem, const Range& place, std::uint32_t rank, std::uint32_t index) const;
  std::string name_output(std::uint32_t rank, std::uint32_t index) const;
  Diagnostic unmet(std::uint32_t rank, std::uint32_t index) const;

  Trace trace_;
  std::optional<Fingerprints> fingerprints_;
  model::Collective written_for_;
  LocationId own_location_;
  BufferIndex saved_ = kInput;  // adapted programs work on a copy of the input in this scratch buffer
  std::vector<std::vector<std::vector<Cell>>> cells_;  // [buffer][rank][index]
  std::vector<std::uint32_t> factors_;
  std::uint32_t step_ = 0;
  std::map<std::tuple<std::string, int, std::uint32_t>, LocationId> locations_;  // file, line, caller
  std::uint32_t groups_ = 0;
  std::vector<BufferIndex> shares_length_;  // by buffer, a forest: an earlier buffer of the same length, or itself
  bool open_ = false;
  // Where operations may be linear, values are compared exactly, since what is made of a sum depends on its terms.
  std::optional<model::Calls> exact_;
  std::map<std::tuple<BufferIndex, std::uint32_t, std::uint32_t>, model::Terms> exact_values_;
  std::uint64_t exact_terms_ = 0;  // in all values so far
  bool begun_ = false;
  struct Use {
    Range named;
    std::uint32_t count;
    model::Axes axes;
    LocationId where;
  };
  std::vector<Use> uses_;  // with a symmetry
};

}  // namespace gc3::compiler
