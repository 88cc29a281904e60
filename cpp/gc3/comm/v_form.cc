#include "gc3/comm/v_form.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/ids.h"

namespace gc3::comm {
namespace {

using model::Buffer;
using model::Collective;
using model::CollectiveKind;

constexpr std::size_t kHead = 3;  // words of a rank before its counts: what it knows, its room, its row
constexpr std::uint64_t kInput = 1;
constexpr std::uint64_t kOutput = 2;
constexpr std::uint64_t kRoom = 4;

Diagnostic disagree(std::string text) { return Diagnostic(ErrorCode::CountsDiffer, std::move(text)); }

std::string who(std::uint32_t rank) { return "rank " + std::to_string(rank); }

// "the block from rank 0 to rank 3".
std::string block_name(const Collective& collective, std::uint32_t count) {
  if (collective.kind() != CollectiveKind::alltoall) return "the block of " + who(count);
  return "the block from " + who(count / collective.ranks()) + " to " + who(count % collective.ranks());
}

struct Claim {
  std::uint64_t rows = 0;
  std::uint32_t rank = kNone;
};

// The lengths of a rank's blocks, in bytes.
std::uint64_t bytes_of(const Collective& collective, std::uint32_t rank, Buffer buffer, std::uint32_t block,
                       const VCall& call) {
  return call.counts[collective.v_count(rank, buffer, block)] * model::size_of(call.type);
}

// The memory between the first and the last byte of a rank's blocks; empty if they are.
struct Span {
  const std::uint8_t* first = nullptr;
  const std::uint8_t* last = nullptr;
};

Span span_of(const Collective& collective, std::uint32_t rank, Buffer buffer, const VCall& call) {
  const std::vector<std::uint8_t*>& blocks = buffer == Buffer::input ? call.input : call.output;
  const std::less<> before;
  Span all;
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    const std::uint64_t bytes = bytes_of(collective, rank, buffer, b, call);
    if (bytes == 0) continue;
    if (all.first == nullptr || before(blocks[b], all.first)) all.first = blocks[b];
    if (before(all.last, blocks[b] + bytes)) all.last = blocks[b] + bytes;
  }
  return all;
}

Diagnostic bad(std::string text) { return Diagnostic(ErrorCode::BadBuffer, std::move(text)); }

std::uint64_t sum_of(const std::vector<std::uint64_t>& rows) {
  std::uint64_t all = 0;
  for (const std::uint64_t one : rows) all += std::min(one, 2 * kMostBytes - all);  // no more: no memory has so many
  return all;
}

std::string text_of(const std::vector<std::uint64_t>& rows) {
  std::string text;
  for (const std::uint64_t one : rows) text += (text.empty() ? "" : ", ") + std::to_string(one);
  return "[" + text + "]";
}

Status check_rows(const VBuffer& buffer, const std::vector<std::uint64_t>& rows) {
  if (buffer.is_list ? buffer.rows == rows : sum_of(buffer.rows) == sum_of(rows)) return {};
  if (buffer.is_list) return bad("arrays of " + text_of(buffer.rows) + " rows for counts of " + text_of(rows));
  return bad("an array of " + std::to_string(sum_of(buffer.rows)) + " rows for counts of " +
             std::to_string(sum_of(rows)) + " together");
}

std::string name_of_counts(CollectiveKind kind) { return kind == CollectiveKind::alltoall ? "send_counts" : "counts"; }

// The one list that is given, with a number for each rank.
Result<std::vector<std::uint64_t>> one_list(const VGiven& given, std::uint32_t ranks, const std::string& what) {
  if (given.is_matrix) return bad(what + " has lists; expected a number for each rank");
  const std::vector<std::uint64_t>& list = given.lists.at(0);
  if (list.size() == ranks) return list;
  return bad(what + " has " + std::to_string(list.size()) + " numbers for " + std::to_string(ranks) + " ranks");
}

// Whether a buffer is an empty part of another one: its address then does not say which part.
bool is_nothing_in(const VBuffer* inner, const VBuffer* outer, std::uint64_t row_bytes) {
  if (inner == nullptr || outer == nullptr || inner->at.size() != 1 || outer->is_list) return false;
  const std::less<> before;  // of pointers into different buffers, too
  const std::uint64_t whole = std::max<std::uint64_t>(outer->rows[0] * row_bytes, 1);
  return inner->rows[0] * row_bytes == 0 && !before(inner->at[0], outer->at[0]) &&
         before(inner->at[0], outer->at[0] + whole);
}

}  // namespace

Result<std::vector<std::uint64_t>> all_counts(CollectiveKind kind, const VGiven& given, std::uint32_t ranks) {
  if (kind != CollectiveKind::alltoall) return one_list(given, ranks, "counts");
  const std::string size = std::to_string(ranks);
  if (!given.is_matrix)
    return bad("counts of an all-to-all: expected a list of " + size + " for each of " + size + " ranks");
  std::vector<std::uint64_t> all;
  for (const std::vector<std::uint64_t>& list : given.lists) {
    GC3_ASSIGN(const std::vector<std::uint64_t> row, one_list({{list}}, ranks, "a row of send_counts"));
    all.insert(all.end(), row.begin(), row.end());
  }
  if (given.lists.size() == ranks) return all;
  return bad("send_counts has " + std::to_string(given.lists.size()) + " rows for " + size + " ranks");
}

Result<VKnown> known_of(VKnown known, std::uint32_t ranks, std::uint32_t rank, const std::optional<VGiven>& given,
                        const std::optional<VGiven>& expected, const VBuffer* input, const VBuffer* output) {
  const bool to_each = known.kind == CollectiveKind::alltoall;
  const bool takes = to_each || (known.kind == CollectiveKind::scatter && known.root == rank);
  if (given && (to_each ? given->is_matrix : !model::is_rooted(known.kind))) {
    GC3_ASSIGN(known.all, all_counts(known.kind, *given, ranks));
    if (to_each) known.input = given->lists[rank];
  } else if (given && takes) {
    GC3_ASSIGN(known.input, one_list(*given, ranks, name_of_counts(known.kind)));
  } else if (input != nullptr && is_divided(known.kind) && !input->is_list) {
    return bad("give " + name_of_counts(known.kind) + ", or x as a list of an array for each rank");
  }
  if (known.kind == CollectiveKind::reducescatter && !known.all) known.all = input->rows;
  if (expected) {
    GC3_ASSIGN(known.output, one_list(*expected, ranks, "recv_counts"));
  }
  if (input != nullptr && known.input) GC3_CHECK(check_rows(*input, *known.input));
  if (input != nullptr && (input->is_list || !is_divided(known.kind))) known.input = input->rows;
  if (output == nullptr) return known;
  if (output->is_list && known.output) GC3_CHECK(check_rows(*output, *known.output));
  if (output->is_list) {
    known.output = output->rows;
  } else {
    known.room = output->rows[0];
  }
  return known;
}

Status check_known(const Collective& collective, std::uint32_t rank, const VKnown& known) {
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    const auto& counts = buffer == Buffer::input ? known.input : known.output;
    const std::uint32_t blocks =
        buffer == Buffer::input ? collective.input_blocks(rank) : collective.output_blocks(rank);
    if (!counts || counts->size() == blocks) continue;
    return bad(std::to_string(counts->size()) + " counts for the " + std::string(name_of(buffer)) + " of " + who(rank) +
               ", which has " + std::to_string(blocks) + " blocks");
  }
  return {};
}

std::vector<std::uint64_t> lengths_of(const Collective& collective, std::uint32_t rank, Buffer buffer,
                                      const std::vector<std::uint64_t>& counts) {
  const std::uint32_t blocks = buffer == Buffer::input ? collective.input_blocks(rank) : collective.output_blocks(rank);
  std::vector<std::uint64_t> found;
  for (std::uint32_t b = 0; b < blocks; ++b) found.push_back(counts[collective.v_count(rank, buffer, b)]);
  return found;
}

Result<std::vector<std::uint64_t>> elements_of(const Collective& collective, model::DataType type,
                                               const VCounts& counts) {
  const std::uint64_t row = std::max<std::uint64_t>(counts.row, 1);  // so that rows without elements are not endless
  std::vector<std::uint64_t> elements;
  for (const std::uint64_t rows : counts.counts) elements.push_back(rows > kMostBytes / row ? kMostBytes : rows * row);
  GC3_CHECK(check_counts(collective, type, elements));
  if (counts.row == 0) std::ranges::fill(elements, 0);
  return elements;
}

Status complete(VCall& call, const Collective& collective, std::uint32_t rank, const VKnown& known,
                const VCounts& counts, const VBuffer* input, const VBuffer* output) {
  GC3_ASSIGN(call.counts, elements_of(collective, call.type, counts));
  const std::size_t elem_bytes = model::size_of(call.type);
  for (const Buffer which : {Buffer::input, Buffer::output}) {
    const VBuffer* const buffer = which == Buffer::input ? input : output;
    if (buffer == nullptr) continue;
    GC3_CHECK(check_rows(*buffer, lengths_of(collective, rank, which, counts.counts)));
    (which == Buffer::input ? call.input : call.output) =
        buffer->is_list ? buffer->at : consecutive(collective, rank, which, call.counts, elem_bytes, buffer->at[0]);
  }
  if (known.output) {
    const std::vector<std::uint64_t> gets = lengths_of(collective, rank, Buffer::output, counts.counts);
    if (gets != *known.output)
      return bad("recv_counts are " + text_of(*known.output) + ", the others send " + text_of(gets));
  }
  const std::uint64_t row_bytes = counts.row * elem_bytes;
  if (call.kind == CollectiveKind::allgather && is_nothing_in(input, output, row_bytes)) {
    call.input = {call.output[rank]};
  }
  if (call.kind == CollectiveKind::reducescatter && is_nothing_in(output, input, row_bytes)) {
    call.output = {call.input[rank]};
  }
  return {};
}

std::vector<std::uint64_t> words_of(const VKnown& known, std::uint32_t ranks) {
  std::vector<std::uint64_t> words(kHead + std::size_t{2} * ranks);
  words[0] = (known.input ? kInput : 0) | (known.output ? kOutput : 0) | (known.room ? kRoom : 0);
  words[1] = known.room.value_or(0);
  words[2] = known.row;
  if (known.input) std::ranges::copy(*known.input, words.begin() + kHead);
  if (known.output) std::ranges::copy(*known.output, words.begin() + kHead + ranks);
  return words;
}

Result<VCounts> merge(const Collective& collective, model::DataType type, const std::vector<std::uint64_t>& words) {
  const std::uint32_t ranks = collective.ranks();
  const std::size_t each = words.size() / ranks;
  std::vector<Claim> claims(collective.v_counts());
  Claim row;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint64_t* const own = words.data() + r * each;
    if (own[2] != 0) {
      if (row.rank != kNone && row.rows != own[2]) {
        return disagree(who(row.rank) + " has rows of " + std::to_string(row.rows) + " elements, " + who(r) + " of " +
                        std::to_string(own[2]));
      }
      row = {own[2], r};
    }
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      const bool is_input = buffer == Buffer::input;
      if ((own[0] & (is_input ? kInput : kOutput)) == 0) continue;
      const std::uint32_t blocks = is_input ? collective.input_blocks(r) : collective.output_blocks(r);
      for (std::uint32_t b = 0; b < blocks; ++b) {
        const std::uint32_t number = collective.v_count(r, buffer, b);
        const std::uint64_t rows = own[kHead + (is_input ? 0 : ranks) + b];
        Claim& claim = claims[number];
        if (claim.rank != kNone && claim.rows != rows) {
          return disagree(block_name(collective, number) + " has " + std::to_string(claim.rows) + " rows for " +
                          who(claim.rank) + ", and " + std::to_string(rows) + " for " + who(r));
        }
        if (claim.rank == kNone) claim = {rows, r};
      }
    }
  }
  VCounts found;
  found.row = std::max<std::uint64_t>(row.rows, 1);
  for (std::uint32_t number = 0; number < claims.size(); ++number) {
    if (claims[number].rank == kNone) {
      return disagree("no rank says how many rows " + block_name(collective, number) + " has");
    }
    found.counts.push_back(claims[number].rows);
  }
  GC3_CHECK(elements_of(collective, type, found));
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::uint64_t* const own = words.data() + r * each;
    std::uint64_t all = 0;
    for (std::uint32_t b = 0; b < collective.output_blocks(r); ++b) {
      all += found.counts[collective.v_count(r, Buffer::output, b)];
    }
    if ((own[0] & kRoom) != 0 && own[1] != all) {
      return disagree("the out of " + who(r) + " has " + std::to_string(own[1]) + " rows; it gets " +
                      std::to_string(all));
    }
  }
  return found;
}

std::vector<std::uint8_t*> consecutive(const Collective& collective, std::uint32_t rank, Buffer buffer,
                                       const std::vector<std::uint64_t>& counts, std::size_t elem_bytes, void* base) {
  const std::uint32_t blocks = buffer == Buffer::input ? collective.input_blocks(rank) : collective.output_blocks(rank);
  std::vector<std::uint8_t*> found;
  found.reserve(blocks);
  auto* at = static_cast<std::uint8_t*>(base);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    found.push_back(at);
    at += counts[collective.v_count(rank, buffer, b)] * elem_bytes;
  }
  return found;
}

Status check_counts(const Collective& collective, model::DataType type, const std::vector<std::uint64_t>& counts) {
  if (counts.size() != collective.counts()) {
    return Diagnostic(ErrorCode::BadBuffer, std::to_string(counts.size()) + " counts for " +
                                                std::string(collective.name()) + " of " +
                                                std::to_string(collective.ranks()) + " ranks, which has " +
                                                std::to_string(collective.counts()));
  }
  const std::uint64_t most = kMostBytes / model::size_of(type);
  std::uint64_t any = 0;  // no smaller than the largest
  for (const std::uint64_t count : counts) any |= count;
  if (counts.empty() || any <= most / counts.size()) return {};
  std::uint64_t left = most;
  for (const std::uint64_t count : counts) {
    if (count > left) {
      return Diagnostic(ErrorCode::BadBuffer, "a block of " + std::to_string(count) +
                                                  " elements: with the others more than any memory holds");
    }
    left -= count;
  }
  return {};
}

Result<bool> in_place(const Collective& collective, std::uint32_t rank, const VCall& call) {
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    const bool is_input = buffer == Buffer::input;
    const std::vector<std::uint8_t*>& blocks = is_input ? call.input : call.output;
    const std::uint32_t wanted = is_input ? collective.input_blocks(rank) : collective.output_blocks(rank);
    const std::string name = is_input ? "input" : "output";
    if (blocks.size() != wanted) {
      return Diagnostic(ErrorCode::BadBuffer, "an " + name + " of " + std::to_string(blocks.size()) + " blocks for " +
                                                  who(rank) + ", which has " + std::to_string(wanted));
    }
    for (std::uint32_t b = 0; b < wanted; ++b) {
      if (blocks[b] == nullptr && bytes_of(collective, rank, buffer, b, call) != 0) {
        return Diagnostic(ErrorCode::BadBuffer,
                          "a null pointer for block " + std::to_string(b) + " of the " + name + " of " + who(rank));
      }
    }
  }
  // Of gather and scatter only the root would know that a call is in place, so none is.
  const bool known_to_all = !model::is_rooted(call.kind);
  if (const auto alias = collective.with_in_place(true).alias(rank); alias && known_to_all) {
    const bool input_inside = alias->inner == Buffer::input;
    const std::vector<std::uint8_t*>& inner = input_inside ? call.input : call.output;
    const std::vector<std::uint8_t*>& outer = input_inside ? call.output : call.input;
    bool same = inner[0] != nullptr;
    for (std::size_t b = 0; b < inner.size(); ++b) same = same && inner[b] == outer[alias->offset + b];
    if (same) {
      for (std::uint32_t r = 0; r < collective.ranks() && call.kind == CollectiveKind::alltoall; ++r) {
        for (std::uint32_t s = 0; s < r; ++s) {
          const std::uint64_t to = call.counts[collective.v_count(r, Buffer::input, s)];
          const std::uint64_t from = call.counts[collective.v_count(s, Buffer::input, r)];
          if (to == from) continue;
          return Diagnostic(ErrorCode::BadBuffer, "in place, any two ranks send each other equally much; " + who(r) +
                                                      " sends " + std::to_string(to) + " elements to " + who(s) +
                                                      ", which sends " + std::to_string(from));
        }
      }
      return true;
    }
  }
  const std::less<> before;  // of pointers into different buffers, too
  const Span read = span_of(collective, rank, Buffer::input, call);
  const Span written = span_of(collective, rank, Buffer::output, call);
  if (!before(read.first, written.last) || !before(written.first, read.last)) return false;
  for (std::uint32_t i = 0; i < call.input.size(); ++i) {
    const std::uint64_t input = bytes_of(collective, rank, Buffer::input, i, call);
    for (std::uint32_t o = 0; o < call.output.size() && input != 0; ++o) {
      const std::uint64_t output = bytes_of(collective, rank, Buffer::output, o, call);
      if (output == 0 || !before(call.input[i], call.output[o] + output) ||
          !before(call.output[o], call.input[i] + input)) {
        continue;
      }
      return Diagnostic(ErrorCode::BadBuffer, "block " + std::to_string(i) + " of the input overlaps block " +
                                                  std::to_string(o) +
                                                  " of the output, and the call is not in place as a whole");
    }
  }
  return false;
}

}  // namespace gc3::comm
