#include "gc3/compiler/made.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/interrupt.h"

namespace gc3::compiler {
namespace {

using model::InputChunk;
using Value = std::shared_ptr<const std::vector<InputChunk>>;  // sorted; an input counts as often as it is listed

// Bounds the memory and the time: values can double with each operation.
constexpr std::uint64_t kMaxListed = 1U << 27U;

}  // namespace

Result<model::Collective> demanding_what_is_made(const Trace& trace) {
  const model::Collective& collective = trace.collective;
  const SlotMap slots(trace.extents);
  std::vector<Value> values(slots.size());
  const auto place = [&](std::uint32_t rank, model::Buffer buffer, std::uint32_t index) {
    const model::Place p = collective.canonical(rank, {buffer, index});
    return slots.slot({rank, p.index, static_cast<BufferIndex>(p.buffer)});
  };
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    for (std::uint32_t i = 0; i < collective.input_chunks(r); ++i) {
      values[place(r, model::Buffer::input, i)] = std::make_shared<const std::vector<InputChunk>>(1, InputChunk{r, i});
    }
  }
  std::uint64_t listed = 0;
  const auto too_many = [] {
    return Diagnostic(ErrorCode::ProgramTooLarge, "its results are reduced from too many inputs to be listed");
  };
  Breath breathe;
  for (const ChunkOp& op : trace.ops) {
    breathe();
    const std::uint64_t from = slots.slot(op.src);
    const std::uint64_t to = slots.slot(op.dst);
    for (std::uint32_t i = 0; i < op.count; ++i) {
      if (op.kind == OpKind::copy) {
        values[to + i] = values[from + i];
        continue;
      }
      std::vector<InputChunk> sum;
      const auto& a = *values[to + i];
      const auto& b = *values[from + i];
      listed += a.size() + b.size();
      if (listed > kMaxListed) return too_many().at(trace.location(op.where));
      sum.reserve(a.size() + b.size());
      std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(sum));
      values[to + i] = std::make_shared<const std::vector<InputChunk>>(std::move(sum));
    }
  }
  model::CustomCollective data = *collective.custom_data();
  data.begin.assign(1, 0);
  data.terms.clear();
  for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
    for (std::uint32_t i = 0; i < collective.output_chunks(r); ++i) {
      if (const Value& value = values[place(r, model::Buffer::output, i)]) {
        if (data.terms.size() + value->size() > kMaxListed) return too_many();
        data.terms.insert(data.terms.end(), value->begin(), value->end());
      }
      data.begin.push_back(data.terms.size());
    }
  }
  return model::Collective::custom(std::move(data), collective.ranks(), collective.chunks(), collective.in_place());
}

}  // namespace gc3::compiler
