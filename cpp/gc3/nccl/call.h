// A call of NCCL's API that the overlay may take over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gc3/model/collective.h"
#include "gc3/model/types.h"
#include "gc3/nccl/real.h"

namespace gc3::nccl {

enum class Function : std::uint8_t {
  all_reduce,
  broadcast,
  bcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  recv,
  custom  // gc3CollRun
};
inline constexpr std::array<std::string_view, 12> kFunctionNames = {
    "ncclAllReduce", "ncclBroadcast", "ncclBcast",   "ncclReduce", "ncclAllGather", "ncclReduceScatter",
    "ncclAlltoAll",  "ncclGather",    "ncclScatter", "ncclSend",   "ncclRecv",      "gc3CollRun"};
constexpr std::string_view name_of(Function f) { return kFunctionNames[static_cast<std::size_t>(f)]; }
constexpr bool is_point_to_point(Function f) { return f == Function::send || f == Function::recv; }

struct Call {
  Function function;
  const void* send;
  void* recv;
  std::size_t count;  // as the function takes it: elements per block of its collective
  int type;           // numbers of nccl.h
  int op;             // of functions without one: sum
  int root;           // of functions without one: 0; of send and recv: the peer
  Comm comm;
  Stream stream;
};

// The types and reductions of nccl.h by number; none: the number is not known here.
std::optional<model::DataType> type_of(const Call& call);
std::optional<model::ReduceOp> op_of(const Call& call);
// The collective of a function; none: it is point-to-point.
std::optional<model::CollectiveKind> kind_of(Function function);

// Gives the call to the NCCL below.
int pass_on(const Call& call);

}  // namespace gc3::nccl
