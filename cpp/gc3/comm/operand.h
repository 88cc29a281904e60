// The arguments of a call as its door has read them: nothing behind it looks at the caller's arrays again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gc3/base/result.h"
#include "gc3/comm/call.h"
#include "gc3/model/collective.h"
#include "gc3/model/types.h"
#include "gc3/runtime/cpu/process_program.h"

namespace gc3::comm {

inline constexpr int kHost = -1;

// Contiguous memory. Elements of a type that the runtime does not know are moved as bytes.
struct Operand {
  std::uint8_t* address = nullptr;
  std::size_t elements = 0;                         // of a list: of all its arrays
  model::DataType type = model::DataType::float32;  // of what is moved
  std::size_t units = 1;                            // of `type`, in an element
  bool known = true;                                // whether `type` is the type of the elements
  std::uint32_t number = 0;                         // of another type, as in messages
  bool writable = false;
  int device = kHost;

  std::size_t bytes() const { return elements * units * model::size_of(type); }
};

// Whether their memory overlaps.
bool overlap(const Operand& a, const Operand& b);

// Completes a call from its operands, null where this rank has none and one of which there is: elements, type and
// addresses. True: the input has to be copied first. It overlaps the output, and the call cannot be in place because
// only the root would know that.
Result<bool> complete(Call& call, const Signature& asks, const Operand* given, const Operand* result);

// Elements per block of an input that a program can read as it is; none: it cannot, or this rank has no input or no
// output in it.
std::optional<std::size_t> plain_count(const model::Collective& collective, std::uint32_t rank, const Operand& given);
// A run of a program on operands that it can use as they are, maybe after a copy of the input to its place in the
// output, `copy_to`; none: the caller has to do more first.
struct PlainRun {
  cpu::RankCall call;
  std::uint8_t* copy_to = nullptr;
};
std::optional<PlainRun> plain_run(const model::Collective& collective, std::uint32_t rank, const Operand& given,
                                  const Operand& result, model::ReduceOp op);

}  // namespace gc3::comm
