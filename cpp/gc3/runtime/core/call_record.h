// A rank's record of a call before the call begins: other ranks compare it, and explain a difference.
#pragma once

#include <cstdint>
#include <string>

#include "gc3/model/collective.h"
#include "gc3/model/types.h"

namespace gc3::core {

// v_form: a collective of blocks that differ in length; counts: the exchange of their lengths before it. many: several
// calls of a collective in one; learn: the exchange of the times of earlier calls. named, refused: no calls, but what a
// rank says, see Group::note; named with a root: of the elements that its next call moves as bytes.
enum class CallKind : std::uint8_t { collective, barrier, load, split, counts, v_form, many, learn, named, refused };

struct CallRecord {
  CallKind kind = CallKind::collective;
  model::CollectiveKind collective = model::CollectiveKind::allreduce;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  bool in_place = false;
  std::uint32_t root = 0;
  std::uint64_t count = 0;    // v_form, many: a hash of all counts; named: of the text; refused: the error's code
  std::uint64_t program = 0;  // its fingerprint, see cpu/process_program.h

  // All of the above in two words and `program`.
  std::uint64_t packed() const {
    return static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(collective) << 8U |
           static_cast<std::uint64_t>(type) << 16U | static_cast<std::uint64_t>(op) << 24U |
           static_cast<std::uint64_t>(in_place) << 31U | static_cast<std::uint64_t>(root) << 32U;
  }
  static CallRecord unpack(std::uint64_t packed, std::uint64_t count, std::uint64_t program);
  // "allreduce of 256 float32 (sum)".
  std::string describe() const;
};

}  // namespace gc3::core
