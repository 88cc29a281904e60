#include "gc3/nccl/call.h"

namespace gc3::nccl {

std::optional<model::DataType> type_of(const Call& call) {
  using model::DataType;
  constexpr std::array kTypes = {DataType::int8,    DataType::uint8,    DataType::int32,         DataType::uint32,
                                 DataType::int64,   DataType::uint64,   DataType::float16,       DataType::float32,
                                 DataType::float64, DataType::bfloat16, DataType::float8_e4m3fn, DataType::float8_e5m2};
  static_assert(
      kTypes.size() + 5 == model::kDataTypes.size(),
      "a new type gets its place in NCCL's numbers here, or is counted with booleans, 16-bit and complex ones");
  if (call.type < 0 || static_cast<std::size_t>(call.type) >= kTypes.size()) return std::nullopt;
  return kTypes[static_cast<std::size_t>(call.type)];
}

std::optional<model::ReduceOp> op_of(const Call& call) {
  using model::ReduceOp;
  constexpr std::array kOps = {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
  if (call.op < 0 || static_cast<std::size_t>(call.op) >= kOps.size()) return std::nullopt;
  return kOps[static_cast<std::size_t>(call.op)];
}

std::optional<model::CollectiveKind> kind_of(Function function) {
  using model::CollectiveKind;
  switch (function) {
    case Function::all_reduce:
      return CollectiveKind::allreduce;
    case Function::broadcast:
    case Function::bcast:
      return CollectiveKind::broadcast;
    case Function::reduce:
      return CollectiveKind::reduce;
    case Function::all_gather:
      return CollectiveKind::allgather;
    case Function::reduce_scatter:
      return CollectiveKind::reducescatter;
    case Function::all_to_all:
      return CollectiveKind::alltoall;
    case Function::gather:
      return CollectiveKind::gather;
    case Function::scatter:
      return CollectiveKind::scatter;
    case Function::send:
    case Function::recv:
    case Function::custom:
      break;
  }
  return std::nullopt;
}

int pass_on(const Call& c) {
  const Real& real = Real::get();
  switch (c.function) {
    case Function::all_reduce:
      return ask("ncclAllReduce", real.all_reduce, c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream);
    case Function::broadcast:
      return ask("ncclBroadcast", real.broadcast, c.send, c.recv, c.count, c.type, c.root, c.comm, c.stream);
    case Function::bcast:
      return ask("ncclBcast", real.bcast, c.recv, c.count, c.type, c.root, c.comm, c.stream);
    case Function::reduce:
      return ask("ncclReduce", real.reduce, c.send, c.recv, c.count, c.type, c.op, c.root, c.comm, c.stream);
    case Function::all_gather:
      return ask("ncclAllGather", real.all_gather, c.send, c.recv, c.count, c.type, c.comm, c.stream);
    case Function::reduce_scatter:
      return ask("ncclReduceScatter", real.reduce_scatter, c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream);
    case Function::all_to_all:
      return ask("ncclAlltoAll", real.all_to_all, c.send, c.recv, c.count, c.type, c.comm, c.stream);
    case Function::gather:
      return ask("ncclGather", real.gather, c.send, c.recv, c.count, c.type, c.root, c.comm, c.stream);
    case Function::scatter:
      return ask("ncclScatter", real.scatter, c.send, c.recv, c.count, c.type, c.root, c.comm, c.stream);
    case Function::send:
      return ask("ncclSend", real.send, c.send, c.count, c.type, c.root, c.comm, c.stream);
    case Function::recv:
      return ask("ncclRecv", real.recv, c.recv, c.count, c.type, c.root, c.comm, c.stream);
    case Function::custom:
      break;
  }
  return kInvalidUsage;
}

}  // namespace gc3::nccl
