// What mpi.c needs of MPI, over the C++ interface of gc3: the same loop times both. It is compiled as C++. The programs
// of the selection table are in FOLDER/programs.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gc3/gc3.h"

using MPI_Datatype = gc3::DataType;
using MPI_Op = gc3::ReduceOp;
using MPI_Request = std::optional<gc3::Transfer>;
enum MPI_Comm { MPI_COMM_WORLD };
enum MPI_Status { MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE };

inline constexpr MPI_Datatype MPI_FLOAT = gc3::DataType::float32;
inline constexpr MPI_Datatype MPI_DOUBLE = gc3::DataType::float64;
inline constexpr MPI_Datatype MPI_LONG = gc3::DataType::int64;
inline constexpr MPI_Op MPI_SUM = gc3::ReduceOp::sum;
inline constexpr MPI_Op MPI_MAX = gc3::ReduceOp::max;

inline std::unique_ptr<gc3::Communicator> world;

inline void check(const gc3::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error().str().c_str());
  std::exit(1);
}
template <class Value>
Value checked(gc3::Result<Value> made) {
  if (!made.ok()) check(made.error());
  return std::move(made.value());
}

inline void MPI_Init(int*, char*** arguments) {
  const std::string folder = (*arguments)[1];
  gc3::Options options;
  options.programs = folder + "/programs";
  world = std::make_unique<gc3::Communicator>(checked(gc3::init(options)));
}
inline void MPI_Finalize() { world.reset(); }
inline void MPI_Abort(MPI_Comm, int) { world->abort(); }
inline void MPI_Comm_rank(MPI_Comm, int* rank) { *rank = static_cast<int>(world->rank()); }
inline void MPI_Comm_size(MPI_Comm, int* ranks) { *ranks = static_cast<int>(world->size()); }
inline void MPI_Barrier(MPI_Comm) { check(world->barrier()); }
inline void MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm) {
  check(world->all_reduce(in, out, static_cast<std::size_t>(count), type, op));
}
inline void MPI_Allgather(const void* in, int part, MPI_Datatype type, void* out, int, MPI_Datatype, MPI_Comm) {
  check(world->all_gather(in, out, static_cast<std::size_t>(part), type));
}
inline void MPI_Reduce_scatter_block(const void* in, void* out, int part, MPI_Datatype type, MPI_Op op, MPI_Comm) {
  check(world->reduce_scatter(in, out, static_cast<std::size_t>(part), type, op));
}
inline void MPI_Alltoall(const void* in, int part, MPI_Datatype type, void* out, int, MPI_Datatype, MPI_Comm) {
  check(world->all_to_all(in, out, static_cast<std::size_t>(part), type));
}
inline void MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm) {
  check(world->broadcast(data, static_cast<std::size_t>(count), type, static_cast<std::uint32_t>(root)));
}
inline void MPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm) {
  check(world->reduce(in, out, static_cast<std::size_t>(count), type, op, static_cast<std::uint32_t>(root)));
}
inline void MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm) {
  check(world->send(data, static_cast<std::size_t>(count), type, static_cast<std::uint32_t>(to), tag));
}
inline void MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm, MPI_Status) {
  checked(world->recv(data, static_cast<std::size_t>(count), type, static_cast<std::uint32_t>(from), tag));
}
inline void MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm, MPI_Request* request) {
  request->emplace(
      checked(world->isend(data, static_cast<std::size_t>(count), type, static_cast<std::uint32_t>(to), tag)));
}
inline void MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm, MPI_Request* request) {
  request->emplace(
      checked(world->irecv(data, static_cast<std::size_t>(count), type, static_cast<std::uint32_t>(from), tag)));
}
inline void MPI_Waitall(int count, MPI_Request* requests, MPI_Status) {
  for (int i = 0; i < count; ++i) {
    checked(requests[i]->wait());
    requests[i].reset();
  }
}
