#include "gc3/model/collective.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <utility>

#include "gc3/base/errors/model.h"

namespace gc3::model {
namespace {

// Blocks in the larger of a rank's two buffers.
std::uint32_t widest_blocks(CollectiveKind kind, std::uint32_t ranks) {
  switch (kind) {
    case CollectiveKind::allgather:
    case CollectiveKind::reducescatter:
    case CollectiveKind::alltoall:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return ranks;
    default:
      return 1;
  }
}

// Of a built-in collective, which has no tables: a program of it may be written for one rank that stands for all. What
// reads or traces a program of all ranks asks `can_split`, which has the lower bound.
constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 33U;

// Whether `ranks` buffers of `blocks` x `chunks` chunks are within the bounds.
bool within_bounds(std::uint64_t ranks, std::uint64_t blocks, std::uint64_t chunks, std::uint64_t most) {
  if (blocks > kMaxBufferChunks || chunks > kMaxBufferChunks || blocks * chunks > kMaxBufferChunks) return false;
  return ranks * (blocks * chunks) <= most;
}

std::string bounds_text(std::uint64_t most) {
  return "more than " + std::to_string(kMaxBufferChunks) + " chunks in a buffer or " + std::to_string(most) +
         " in all ranks together";
}

// What is wrong with the tensors, operations and calls of a collective, or nothing.
std::string wrong_tensors(const CustomCollective& data, std::uint32_t chunks) {
  if (data.tensors.empty()) {
    return data.operations.empty() && data.calls.empty() ? "" : "only a collective of named tensors has operations";
  }
  if (chunks != 1) return "each chunk of a tensor is a block";
  const std::size_t ranks = data.input_chunks.size();
  std::set<std::string_view> names;
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    std::vector<std::uint64_t> sums(ranks);
    for (const Tensor& t : data.tensors) {
      if (t.chunks.size() != ranks || t.buffer > Buffer::output) return "a tensor has chunks on each rank";
      for (std::size_t r = 0; r < ranks && t.buffer == buffer; ++r) sums[r] += t.chunks[r];
    }
    if (!std::ranges::equal(sums, buffer == Buffer::input ? data.input_chunks : data.output_chunks)) {
      return "the tensors do not cover its " + std::string(name_of(buffer));
    }
  }
  for (std::size_t k = 0; k < data.tensors.size(); ++k) {
    const Tensor& t = data.tensors[k];
    if (t.name.empty() || !names.insert(t.name).second) return "two tensors have the name '" + t.name + "', or none";
    if (k != 0 && t.buffer < data.tensors[k - 1].buffer) return "its inputs do not stand before its outputs";
    // Programs number the lengths that other buffers have after these.
    if (t.length >= data.tensors.size()) return "the length of '" + t.name + "' has no valid number";
  }
  if (std::ranges::any_of(data.alias, [](const auto& a) { return a.has_value(); })) return "tensors do not alias";
  names.clear();
  for (const std::string& name : data.operations) {
    if (name.empty() || !names.insert(name).second) return "two operations have the name '" + name + "', or none";
  }
  if (data.properties.size() != data.operations.size()) return "properties are of each operation";
  return "";
}

bool within(const CustomCollective& data, const InputChunk& term, std::size_t calls) {
  if (term.rank == kComputed) return term.index < calls;
  return term.rank < data.input_chunks.size() && term.index < data.input_chunks[term.rank];
}

std::string wrong_calls(const CustomCollective& data) {
  std::uint64_t terms = data.terms.size();
  for (std::size_t k = 0; k < data.calls.size(); ++k) {
    const TermCall& call = data.calls[k];
    if (call.operation >= data.operations.size()) return "call " + std::to_string(k) + " is of no operation";
    if (call.arguments.empty()) return "call " + std::to_string(k) + " has no argument";
    std::uint64_t pieces = 0;
    std::uint32_t most = 0;
    for (const std::uint32_t n : call.pieces) {
      pieces += n;
      most = std::max(most, n);
    }
    const bool whole = !call.pieces.empty();
    if (whole ? pieces != call.arguments.size() || call.part >= most || std::ranges::count(call.pieces, 0U) != 0
              : call.part != 0 || call.columns) {
      return "call " + std::to_string(k) + " is of no part of whole tensors";
    }
    for (const std::vector<InputChunk>& argument : call.arguments) {
      terms += argument.size();
      if (argument.empty()) return "call " + std::to_string(k) + " has an empty argument";
      for (const InputChunk& term : argument) {
        if (!within(data, term, k)) return "call " + std::to_string(k) + " has an argument that does not exist";
      }
    }
  }
  return terms > kMaxTerms ? "the postcondition has more than " + std::to_string(kMaxTerms) + " terms" : "";
}

}  // namespace

std::string to_string(const Properties& properties) {
  std::string out;
  for (const auto& [name, operands] : kProperties) {
    const std::uint32_t of = properties.*operands;
    if (of == 0) continue;
    out.append(out.empty() ? "" : " and ").append(name);
    if (of == UINT32_MAX) continue;
    const char* separator = std::popcount(of) == 1 ? " in operand " : " in operands ";
    for (std::uint32_t k = 0; k < kPropertyOperands; ++k) {
      if (!covers(of, k)) continue;
      out.append(separator).append(std::to_string(k));
      separator = ", ";
    }
  }
  return out;
}

std::optional<std::vector<std::vector<InputChunk>>> part_arguments(const TermCall& call, const Properties& properties) {
  if (call.pieces.empty()) return call.arguments;
  const std::uint32_t most = std::ranges::max(call.pieces);
  // The operands that are cut are those of the property, and each has this part.
  const auto fits = [&](std::uint32_t operands) {
    for (std::size_t k = 0; k < call.pieces.size(); ++k) {
      if (call.pieces[k] != (covers(operands, k) ? most : 1)) return false;
    }
    return true;
  };
  const bool of_rows = !call.columns && fits(properties.rowwise);
  if (most != 1 && !of_rows && !fits(properties.elementwise)) return std::nullopt;
  std::vector<std::vector<InputChunk>> arguments;
  std::size_t first = 0;
  for (const std::uint32_t n : call.pieces) {
    arguments.push_back(call.arguments[first + (n == 1 ? 0 : call.part)]);
    first += n;
  }
  return arguments;
}

Result<CollectiveKind> parse_collective(std::string_view name) {
  const auto kind = parse_name<CollectiveKind>(kCollectiveNames, name);
  if (!kind) return Diagnostic(ErrorCode::BadCollective, "there is no collective '" + std::string(name) + "'");
  return *kind;
}

Result<Collective> Collective::builtin(CollectiveKind kind, std::uint32_t ranks, std::uint32_t chunks,
                                       std::uint32_t root, bool in_place) {
  if (kind == CollectiveKind::custom)
    return Diagnostic(ErrorCode::BadCollective, "'custom' needs a description of its signature and postcondition");
  if (ranks == 0) return Diagnostic(ErrorCode::BadCollective, "a collective needs at least one rank");
  if (chunks == 0) return Diagnostic(ErrorCode::BadCollective, "a collective needs at least one chunk");
  if (root >= ranks) {
    return Diagnostic(ErrorCode::BadCollective, "root " + std::to_string(root) + " of " + std::to_string(ranks) +
                                                    (ranks == 1 ? " rank" : " ranks"));
  }
  if (!within_bounds(ranks, widest_blocks(kind, ranks), chunks, kMostChunks)) {
    return Diagnostic(ErrorCode::BadCollective, bounds_text(kMostChunks));
  }
  Collective c;
  c.kind_ = kind;
  c.ranks_ = ranks;
  c.chunks_ = chunks;
  c.root_ = root;
  c.in_place_ = in_place;
  return c;
}

Result<Collective> Collective::custom(CustomCollective data, std::uint32_t ranks, std::uint32_t chunks, bool in_place) {
  const auto fail = [&](const std::string& why) {
    return Diagnostic(ErrorCode::BadCollective, "custom collective '" + data.name + "': " + why);
  };
  if (data.properties.empty()) data.properties.resize(data.operations.size());
  if (ranks == 0 || chunks == 0) return fail("needs at least one rank and one chunk per block");
  if (data.input_chunks.size() != ranks || data.output_chunks.size() != ranks || data.alias.size() != ranks) {
    return fail("sizes are needed for each of " + std::to_string(ranks) + " ranks");
  }
  Collective c;
  c.kind_ = CollectiveKind::custom;
  c.ranks_ = ranks;
  c.chunks_ = chunks;
  c.in_place_ = in_place;
  std::uint64_t total = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (data.input_chunks[r] > kMaxBufferChunks || data.output_chunks[r] > kMaxBufferChunks)
      return fail(bounds_text(kMaxTotalChunks));
    if (data.input_chunks[r] % chunks != 0 || data.output_chunks[r] % chunks != 0) {
      return fail("rank " + std::to_string(r) + " has buffers that are not whole blocks of " + std::to_string(chunks) +
                  " chunks");
    }
    c.custom_base_.push_back(total);
    total += data.output_chunks[r];
    if (const auto a = data.alias[r]; a.has_value()) {
      const std::uint64_t outer = *a >= 0 ? data.input_chunks[r] : data.output_chunks[r];
      const std::uint64_t inner = *a >= 0 ? data.output_chunks[r] : data.input_chunks[r];
      const std::uint64_t offset = *a >= 0 ? static_cast<std::uint64_t>(*a) : static_cast<std::uint64_t>(-(*a + 1));
      if (offset % chunks != 0) return fail("an in-place offset is a whole number of blocks");
      if (offset + inner > outer) return fail("the in-place offset of rank " + std::to_string(r) + " does not fit");
    }
  }
  if (data.begin.size() != total + 1 || data.begin.front() != 0 || data.begin.back() != data.terms.size()) {
    return fail("the postcondition does not cover the output chunks");
  }
  if (data.terms.size() > kMaxTerms) {
    return fail("the postcondition has more than " + std::to_string(kMaxTerms) + " terms");
  }
  for (std::uint64_t i = 0; i < total; ++i) {
    if (data.begin[i] > data.begin[i + 1]) return fail("the postcondition is out of order");
  }
  for (const InputChunk& t : data.terms) {
    if (!within(data, t, data.calls.size())) {
      return fail("the postcondition names input (rank " + std::to_string(t.rank) + ", index " +
                  std::to_string(t.index) + "), which does not exist");
    }
  }
  for (const std::string& wrong : {wrong_tensors(data, chunks), wrong_calls(data)}) {
    if (!wrong.empty()) return fail(wrong);
  }
  // Where a count is not divisible, the chunks of a block differ in length. The k-th chunk of one block is as long as
  // the k-th chunk of another.
  for (std::uint32_t r = 0; chunks > 1 && r < ranks; ++r) {
    for (std::uint32_t k = 0; k < data.output_chunks[r]; ++k) {
      for (std::uint64_t i = data.begin[c.custom_base_[r] + k]; i < data.begin[c.custom_base_[r] + k + 1]; ++i) {
        const InputChunk& t = data.terms[i];
        if (t.index % chunks == k % chunks) continue;
        return fail(
            "output (rank " + std::to_string(r) + ", index " + std::to_string(k) + ") demands input (rank " +
            std::to_string(t.rank) + ", index " + std::to_string(t.index) +
            "), which is a different chunk of its block and can have another length; put each in a block of its own");
      }
    }
  }
  c.custom_ = std::make_shared<const CustomCollective>(std::move(data));
  if (!c.can_split(1)) return fail(bounds_text(kMaxTotalChunks));
  return c;
}

Collective Collective::with_in_place(bool in_place) const {
  Collective c = *this;
  c.in_place_ = in_place;
  return c;
}

bool Collective::can_split(std::uint32_t parts) const {
  if (parts == 0 || (parts != 1 && has_tensors())) return false;
  if (!custom_)
    return within_bounds(ranks_, widest_blocks(kind_, ranks_), std::uint64_t{chunks_} * parts, kMaxTotalChunks);
  std::uint64_t total = 0;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    const std::uint64_t widest = std::uint64_t{std::max(input_chunks(r), output_chunks(r))} * parts;
    if (widest > kMaxBufferChunks) return false;
    total += widest;
  }
  return total <= kMaxTotalChunks && std::uint64_t{chunks_} * parts <= kMaxBufferChunks;
}

bool Collective::has_linear() const {
  return has_tensors() && std::ranges::any_of(custom_->properties, [](const Properties& p) { return p.linear != 0; });
}

Collective Collective::without_properties() const {
  Collective c = *this;
  if (!has_tensors()) return c;
  CustomCollective data = *custom_;
  data.properties.assign(data.operations.size(), {});
  c.custom_ = std::make_shared<const CustomCollective>(std::move(data));
  return c;
}

Collective Collective::with_lengths(const std::vector<std::uint32_t>& lengths) const {
  CustomCollective data = *custom_;
  for (std::size_t k = 0; k < lengths.size(); ++k) data.tensors[k].length = lengths[k];
  Collective c = *this;
  c.custom_ = std::make_shared<const CustomCollective>(std::move(data));
  return c;
}

Collective Collective::split_chunks(std::uint32_t parts) const {
  Collective c = *this;
  c.chunks_ *= parts;
  c.split_ *= parts;
  return c;
}

std::uint32_t Collective::input_chunks(std::uint32_t rank) const {
  switch (kind_) {
    case CollectiveKind::allreduce:
    case CollectiveKind::allgather:
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::alltonext:
      return chunks_;
    case CollectiveKind::reducescatter:
    case CollectiveKind::alltoall:
      return ranks_ * chunks_;
    case CollectiveKind::broadcast:
      return rank == root_ ? chunks_ : 0;
    case CollectiveKind::scatter:
      return rank == root_ ? ranks_ * chunks_ : 0;
    case CollectiveKind::custom:
      return custom_->input_chunks[rank] * split_;
  }
  return 0;
}

std::uint32_t Collective::output_chunks(std::uint32_t rank) const {
  switch (kind_) {
    case CollectiveKind::allreduce:
    case CollectiveKind::reducescatter:
    case CollectiveKind::broadcast:
    case CollectiveKind::scatter:
    case CollectiveKind::alltonext:
      return chunks_;
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall:
      return ranks_ * chunks_;
    case CollectiveKind::reduce:
      return rank == root_ ? chunks_ : 0;
    case CollectiveKind::gather:
      return rank == root_ ? ranks_ * chunks_ : 0;
    case CollectiveKind::custom:
      return custom_->output_chunks[rank] * split_;
  }
  return 0;
}

std::uint32_t Collective::v_counts() const {
  switch (kind_) {
    case CollectiveKind::alltoall:
      return ranks_ * ranks_;
    case CollectiveKind::allgather:
    case CollectiveKind::reducescatter:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return ranks_;
    default:
      return 0;
  }
}

std::uint32_t Collective::v_count(std::uint32_t rank, Buffer buffer, std::uint32_t block) const {
  const bool is_input = buffer == Buffer::input;
  switch (kind_) {
    case CollectiveKind::alltoall:
      return is_input ? rank * ranks_ + block : block * ranks_ + rank;
    case CollectiveKind::allgather:
    case CollectiveKind::gather:
      return is_input ? rank : block;
    case CollectiveKind::reducescatter:
    case CollectiveKind::scatter:
      return is_input ? block : rank;
    case CollectiveKind::custom:
      for (const Tensor& t : custom_->tensors) {
        if (t.buffer != buffer) continue;
        if (block < t.chunks[rank]) return t.length;
        block -= t.chunks[rank];
      }
      return 0;
    default:
      return 0;
  }
}

std::optional<Collective::Alias> Collective::alias(std::uint32_t rank) const {
  if (!in_place_) return std::nullopt;
  switch (kind_) {
    case CollectiveKind::allreduce:
    case CollectiveKind::alltoall:
    case CollectiveKind::alltonext:
      return Alias{Buffer::input, 0};
    case CollectiveKind::allgather:
      return Alias{Buffer::input, rank * chunks_};
    case CollectiveKind::reducescatter:
      return Alias{Buffer::output, rank * chunks_};
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      if (rank != root_) return std::nullopt;
      return Alias{Buffer::input, 0};
    case CollectiveKind::gather:
      if (rank != root_) return std::nullopt;
      return Alias{Buffer::input, rank * chunks_};
    case CollectiveKind::scatter:
      if (rank != root_) return std::nullopt;
      return Alias{Buffer::output, rank * chunks_};
    case CollectiveKind::custom: {
      const auto a = custom_->alias[rank];
      if (!a.has_value()) return std::nullopt;
      if (*a >= 0) return Alias{Buffer::output, static_cast<std::uint32_t>(*a) * split_};
      return Alias{Buffer::input, static_cast<std::uint32_t>(-(*a + 1)) * split_};
    }
  }
  return std::nullopt;
}

Place Collective::canonical(std::uint32_t rank, Place place) const {
  const auto a = alias(rank);
  if (!a.has_value() || place.buffer != a->inner) return place;
  return Place{a->inner == Buffer::input ? Buffer::output : Buffer::input, place.index + a->offset};
}

bool Collective::writable(std::uint32_t rank, Place canonical_place) const {
  if (canonical_place.buffer != Buffer::input) return true;
  const auto a = alias(rank);
  return a.has_value() && a->inner == Buffer::output;
}

Demand Collective::demand(std::uint32_t rank, std::uint32_t index) const {
  const auto chunk = [](std::uint32_t of, std::uint32_t at) { return Demand{.first = {of, at}, .ranks = 1}; };
  const auto of_every_rank = [this](std::uint32_t at) { return Demand{.first = {0, at}, .ranks = ranks_}; };
  switch (kind_) {
    case CollectiveKind::allreduce:
    case CollectiveKind::reduce:
      return of_every_rank(index);
    case CollectiveKind::reducescatter:
      return of_every_rank(rank * chunks_ + index);
    case CollectiveKind::allgather:
    case CollectiveKind::gather:
      return chunk(index / chunks_, index % chunks_);
    case CollectiveKind::alltoall:
      return chunk(index / chunks_, rank * chunks_ + index % chunks_);
    case CollectiveKind::broadcast:
      return chunk(root_, index);
    case CollectiveKind::scatter:
      return chunk(root_, rank * chunks_ + index);
    case CollectiveKind::alltonext:
      return rank == 0 ? Demand{} : chunk(rank - 1, index);
    case CollectiveKind::custom: {
      const std::uint64_t slot = custom_base_[rank] + index / split_;
      const std::span<const InputChunk> all(custom_->terms);
      const auto listed = all.subspan(custom_->begin[slot], custom_->begin[slot + 1] - custom_->begin[slot]);
      return Demand{.listed = listed, .split = split_, .part = index % split_};
    }
  }
  return {};
}

std::vector<InputChunk> Collective::expected_terms(std::uint32_t rank, std::uint32_t index) const {
  const Demand demanded = demand(rank, index);
  std::vector<InputChunk> terms;
  terms.reserve(demanded.size());
  for (std::uint32_t k = 0; k < demanded.size(); ++k) terms.push_back(demanded[k]);
  return terms;
}

bool Collective::operator==(const Collective& other) const {
  const bool same_data = (custom_ == nullptr) == (other.custom_ == nullptr) && (!custom_ || *custom_ == *other.custom_);
  return kind_ == other.kind_ && in_place_ == other.in_place_ && ranks_ == other.ranks_ && chunks_ == other.chunks_ &&
         root_ == other.root_ && split_ == other.split_ && same_data;
}

}  // namespace gc3::model
