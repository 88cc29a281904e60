// The functions of NCCL's API that are taken over, and those of gc3_nccl.h. nccl.h is not included: its enumerations
// are integers here, and its handles addresses.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/ir/forms.h"
#include "gc3/nccl/graveyard.h"
#include "gc3/nccl/group.h"
#include "gc3/nccl/overlay.h"
#include "gc3/nccl/report.h"
#include "gc3/verify/verify.h"

using gc3::nccl::answer_to;
using gc3::nccl::ask;
using gc3::nccl::Call;
using gc3::nccl::Comm;
using gc3::nccl::Communicator;
using gc3::nccl::Function;
using gc3::nccl::Overlay;
using gc3::nccl::Real;
using gc3::nccl::run_program;
using gc3::nccl::Stream;
using gc3::nccl::submit;

#define GC3_EXPORT extern "C" __attribute__((visibility("default"))) int

GC3_EXPORT ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, Comm comm, Stream stream) {
  return submit({Function::all_reduce, send, recv, count, type, op, 0, comm, stream});
}
GC3_EXPORT ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root, Comm comm,
                         Stream stream) {
  return submit({Function::broadcast, send, recv, count, type, 0, root, comm, stream});
}
GC3_EXPORT ncclBcast(void* buffer, std::size_t count, int type, int root, Comm comm, Stream stream) {
  return submit({Function::bcast, buffer, buffer, count, type, 0, root, comm, stream});
}
GC3_EXPORT ncclReduce(const void* send, void* recv, std::size_t count, int type, int op, int root, Comm comm,
                      Stream stream) {
  return submit({Function::reduce, send, recv, count, type, op, root, comm, stream});
}
GC3_EXPORT ncclAllGather(const void* send, void* recv, std::size_t count, int type, Comm comm, Stream stream) {
  return submit({Function::all_gather, send, recv, count, type, 0, 0, comm, stream});
}
GC3_EXPORT ncclReduceScatter(const void* send, void* recv, std::size_t count, int type, int op, Comm comm,
                             Stream stream) {
  return submit({Function::reduce_scatter, send, recv, count, type, op, 0, comm, stream});
}
GC3_EXPORT ncclAlltoAll(const void* send, void* recv, std::size_t count, int type, Comm comm, Stream stream) {
  return submit({Function::all_to_all, send, recv, count, type, 0, 0, comm, stream});
}
GC3_EXPORT ncclGather(const void* send, void* recv, std::size_t count, int type, int root, Comm comm, Stream stream) {
  return submit({Function::gather, send, recv, count, type, 0, root, comm, stream});
}
GC3_EXPORT ncclScatter(const void* send, void* recv, std::size_t count, int type, int root, Comm comm, Stream stream) {
  return submit({Function::scatter, send, recv, count, type, 0, root, comm, stream});
}
GC3_EXPORT ncclSend(const void* send, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return submit({Function::send, send, nullptr, count, type, 0, peer, comm, stream});
}
GC3_EXPORT ncclRecv(void* recv, std::size_t count, int type, int peer, Comm comm, Stream stream) {
  return submit({Function::recv, nullptr, recv, count, type, 0, peer, comm, stream});
}

GC3_EXPORT ncclGroupStart() { return gc3::nccl::group_start(); }
GC3_EXPORT ncclGroupEnd() { return gc3::nccl::group_end(); }
GC3_EXPORT ncclGroupSimulateEnd(void* info) { return gc3::nccl::group_simulate_end(info); }
GC3_EXPORT ncclRedOpDestroy(int op, Comm comm) { return gc3::nccl::destroy_op(op, comm); }

// A program that runs is not of NCCL's own operations, so NCCL's functions do not end it. Another thread may abort
// while this one waits for its end, so the communicator can be found until then. Whichever forgets it calls NCCL: that
// thread has freed NCCL's handle otherwise.
static int end(const char* symbol, int (*function)(Comm), Comm comm) {
  if (const auto communicator = Overlay::get().find(comm)) {
    communicator->leave();
    if (Overlay::get().forget(comm, communicator) == nullptr) {
      return answer_to({gc3::ErrorCode::Aborted, std::string(symbol) + ": another thread has ended the communicator"});
    }
  }
  return ask(symbol, function, comm);
}
GC3_EXPORT ncclCommFinalize(Comm comm) {
  if (const auto communicator = Overlay::get().find(comm)) {
    const gc3::Status ready = communicator->progress()->ready();
    if (!ready.ok()) return answer_to(ready.error());
  }
  return end("ncclCommFinalize", Real::get().finalize, comm);
}
GC3_EXPORT ncclCommDestroy(Comm comm) { return end("ncclCommDestroy", Real::get().destroy, comm); }
GC3_EXPORT ncclCommAbort(Comm comm) {
  const auto communicator = Overlay::get().forget(comm);
  if (communicator == nullptr) return ask("ncclCommAbort", Real::get().abort, comm);
  communicator->abort();
  const int answer = ask("ncclCommAbort", Real::get().abort, comm);
  communicator->leave();
  return answer;
}
GC3_EXPORT ncclCommRevoke(Comm comm, int flags) {
  if (const auto communicator = Overlay::get().find(comm)) communicator->abort();
  return ask("ncclCommRevoke", Real::get().revoke, comm, flags);
}
GC3_EXPORT ncclCommShrink(Comm comm, int* excluded, int count, Comm* made, void* config, int flags) {
  const auto communicator = Overlay::get().find(comm);
  if (communicator != nullptr && (flags & gc3::nccl::kShrinkAbort) != 0) communicator->abort();
  return ask("ncclCommShrink", Real::get().shrink, comm, excluded, count, made, config, flags);
}

GC3_EXPORT ncclCommGetAsyncError(Comm comm, int* error) {
  const auto communicator = Overlay::get().find(comm);
  if (communicator != nullptr && error != nullptr && communicator->progress()->deferred()) {
    *error = gc3::nccl::kInProgress;
    return gc3::nccl::kSuccess;
  }
  const int answer = ask("ncclCommGetAsyncError", Real::get().async_error, comm, error);
  if (answer != gc3::nccl::kSuccess || error == nullptr || *error != gc3::nccl::kSuccess) return answer;
  if (communicator != nullptr) {
    *error = communicator->progress()->answer();
    if (const gc3::Status status = communicator->check(); !status.ok()) *error = answer_to(status.error());
  }
  return answer;
}
extern "C" __attribute__((visibility("default"))) const char* ncclGetLastError(Comm comm) {
  return gc3::nccl::last_problem(comm);
}

// gc3_nccl.h

struct gc3Program {
  gc3::ir::Program program;
  std::shared_ptr<const gc3::select::Recipe> recipe;
};

static gc3::Diagnostic null_given(const char* function, const char* what) {
  return {gc3::ErrorCode::BadOption, std::string(function) + ": the " + what + " is null"};
}

static gc3::Result<std::unique_ptr<gc3Program>> load_program(const char* file) {
  if (file == nullptr) return null_given("gc3ProgramLoad", "file");
  GC3_ASSIGN(gc3::ir::ProgramFile found, gc3::ir::load_any(file));
  const gc3::verify::Report report = gc3::verify::verify(found.program);
  if (!report.ok()) return report.diagnostics.front();
  auto made = std::make_unique<gc3Program>(gc3Program{std::move(found.program), nullptr});
  made->recipe = gc3::select::recipe_of(gc3::ir::as_read(made->program), file);
  return made;
}

GC3_EXPORT gc3ProgramLoad(const char* file, gc3Program** program) {
  if (program == nullptr) return answer_to(null_given("gc3ProgramLoad", "place for the program"));
  auto made = load_program(file);
  if (!made.ok()) return answer_to(made.error());
  *program = std::move(made).value().release();
  return gc3::nccl::kSuccess;
}
GC3_EXPORT gc3ProgramFree(gc3Program* program) {
  delete program;
  return gc3::nccl::kSuccess;
}

// A communicator that NCCL serves has an empty table at first.
static gc3::Result<std::shared_ptr<Communicator>> communicator_of(Comm comm, const char* function) {
  if (comm == nullptr) return null_given(function, "communicator");
  GC3_ASSIGN(auto known, Overlay::get().communicator(comm));
  if (known != nullptr) return known;
  return Overlay::get().made(comm, std::make_shared<const gc3::nccl::Table>());
}

GC3_EXPORT gc3CollRun(gc3Program* program, const void* send, void* recv, std::size_t count, int type, int op, Comm comm,
                      Stream stream) {
  if (program == nullptr) return answer_to(null_given("gc3CollRun", "program"));
  const auto communicator = communicator_of(comm, "gc3CollRun");
  if (!communicator.ok()) return answer_to(communicator.error());
  if (const gc3::Status ready = communicator.value()->progress()->ready(); !ready.ok()) return answer_to(ready.error());
  const Call call{Function::custom, send, recv, count, type, op, 0, comm, stream};
  if (!type_of(call) || !op_of(call)) {
    return answer_to({gc3::ErrorCode::BadOption, "gc3CollRun: a data type or a reduction that programs do not have"});
  }
  return run_program(call, communicator.value(), *communicator.value()->own_program(program->recipe, program->program));
}

static gc3::Status load_for(Comm comm, const char* path) {
  if (path == nullptr) return null_given("gc3CommLoad", "path");
  GC3_ASSIGN(const std::shared_ptr<Communicator> communicator, communicator_of(comm, "gc3CommLoad"));
  GC3_CHECK(communicator->progress()->ready());
  auto read = gc3::nccl::load_table(path, communicator->table().get());
  // Without a new one, too: other ranks may have theirs, and at their next call they wait for this one.
  communicator->replace(read.ok() ? std::move(read).value() : communicator->table());
  return read.ok() ? gc3::Status() : gc3::Status(read.error());
}
GC3_EXPORT gc3CommLoad(Comm comm, const char* path) {
  const gc3::Status status = load_for(comm, path);
  return status.ok() ? gc3::nccl::kSuccess : answer_to(status.error());
}
GC3_EXPORT gc3NcclLoad(const char* path) {
  const gc3::Status status = path == nullptr ? null_given("gc3NcclLoad", "path") : Overlay::get().load(path);
  return status.ok() ? gc3::nccl::kSuccess : answer_to(status.error());
}
