#include "gc3/comm/operand.h"

#include <functional>
#include <string>

#include "gc3/base/errors/common.h"

namespace gc3::comm {

bool overlap(const Operand& a, const Operand& b) {
  const std::less<> before;  // of pointers into different buffers, too
  return a.bytes() != 0 && b.bytes() != 0 && before(a.address, b.address + b.bytes()) &&
         before(b.address, a.address + a.bytes());
}

Result<bool> complete(Call& call, const Signature& asks, const Operand* given, const Operand* result) {
  const Operand& known = given != nullptr ? *given : *result;
  const std::size_t count = known.elements / (given != nullptr ? asks.input_blocks : asks.output_blocks);
  call.type = known.type;
  call.count = count * known.units;
  call.input = given == nullptr ? nullptr : given->address;
  call.output = result == nullptr ? nullptr : result->address;
  if (given == nullptr || result == nullptr) return false;
  if (given->device != result->device) {
    return Diagnostic(ErrorCode::BadBuffer, given->device == kHost || result->device == kHost
                                                ? std::string("the input is on a device and out is not, or the reverse")
                                                : "one array is on device " + std::to_string(given->device) +
                                                      ", another on " + std::to_string(result->device));
  }
  if (result->elements != count * asks.output_blocks) {
    return Diagnostic(ErrorCode::BadBuffer, "out has " + std::to_string(result->elements) + " elements, not " +
                                                std::to_string(count * asks.output_blocks));
  }
  if (asks.alias || given->device != kHost || call.has_lists()) return false;
  const bool is_one = call.kind == CollectiveKind::reduce && given->address == result->address;
  return !is_one && overlap(*given, *result);
}

std::optional<std::size_t> plain_count(const model::Collective& collective, std::uint32_t rank, const Operand& given) {
  const std::size_t reads = collective.input_blocks(rank);
  if (reads == 0 || collective.output_blocks(rank) == 0) return {};
  const bool is_whole = given.known && given.device == kHost && given.elements % reads == 0;
  return is_whole ? std::optional(given.elements / reads) : std::nullopt;
}

std::optional<PlainRun> plain_run(const model::Collective& collective, std::uint32_t rank, const Operand& given,
                                  const Operand& result, model::ReduceOp op) {
  const std::size_t count = given.elements / collective.input_blocks(rank);
  const bool is_like = result.known && result.device == kHost && result.type == given.type &&
                       result.elements == count * collective.output_blocks(rank);
  const std::optional<model::Collective::Alias> alias = collective.alias(rank);
  if (!is_like || (alias && alias->inner != model::Buffer::input)) return {};
  std::uint8_t* input = given.address;
  if (alias) input = result.address + alias->offset / collective.chunks() * count * model::size_of(given.type);
  const bool is_in_place = alias && input == given.address;
  if (!is_in_place && overlap(given, result)) return {};
  return PlainRun{{input, result.address, count, given.type, op}, input == given.address ? nullptr : input};
}

}  // namespace gc3::comm
