// Calls of a communicator as a table of C functions, for code that is compiled apart from gc3's core, such as the
// backend of PyTorch. The core exports it in a capsule of Python, so both use one engine, in one process.
//
// All functions may be called without the GIL, from any thread. Whoever changes this file counts up GC3_CALLS_VERSION:
// the name of the capsule has it, so a library that was compiled against another version does not find the table.
#pragma once

#include <stdint.h>

#define GC3_CALLS_VERSION "5"
#define GC3_CALLS_NAME "gc3.calls." GC3_CALLS_VERSION

#ifdef __cplusplus
extern "C" {
#endif

// Receives the whole text of an error, before the function that fails returns.
typedef struct gc3_errors {
  void* to;
  void (*take)(void* to, const char* text, uint64_t bytes);
} gc3_errors;

typedef enum gc3_outcome {
  gc3_done = 0,
  gc3_failed = 1,       // with a text
  gc3_interrupted = 2,  // a signal handler of Python has raised an exception, which is set in this thread
} gc3_outcome;

// `collective`, `type` and `op` are numbers that `number_of` gives.
typedef struct gc3_kind {
  int32_t collective;
  int32_t type;
  int32_t op;
  uint32_t root;
} gc3_kind;

// A call with equal blocks, as Communicator of gc3.h takes it. Of a broadcast both buffers are given on the root, and
// the output alone elsewhere. An average of floating-point or complex numbers multiplies before it adds, as NCCL's
// does.
typedef struct gc3_call {
  gc3_kind kind;
  const void* input;
  void* output;
  uint64_t count;  // elements of a block
} gc3_call;

// A call whose blocks have lengths of their own. An average divides the sum.
typedef struct gc3_v_call {
  gc3_kind kind;
  const uint64_t* counts;  // of all blocks, in elements
  uint64_t counts_size;
  void* const* input;  // where each block of this rank begins
  uint64_t input_size;
  void* const* output;
  uint64_t output_size;
} gc3_v_call;

// What this rank knows of the counts of such a call, in rows.
typedef struct gc3_v_known {
  gc3_kind kind;
  uint64_t row;           // elements of a row
  const uint64_t* input;  // of each block of its input
  uint64_t input_size;
  const uint64_t* output;  // and of its output
  uint64_t output_size;
} gc3_v_known;

// What a message was, once it is done.
typedef struct gc3_got {
  uint32_t peer;
  int32_t tag;
  uint64_t bytes;
} gc3_got;

typedef struct gc3_message gc3_message;

// `waits_here`: the caller's thread is one of Python's, so Ctrl-C should end the call.
typedef struct gc3_calls {
  // The number of a name; `of` is "collective", "type" or "op". -1: there is no such name.
  int32_t (*number_of)(const char* of, const char* name);
  // Several calls, of which none uses what another writes, are made at once.
  gc3_outcome (*run)(void* comm, const gc3_call* calls, uint64_t size, int waits_here, const gc3_errors* errors);
  gc3_outcome (*run_v)(void* comm, const gc3_v_call* call, int waits_here, const gc3_errors* errors);
  // Writes all counts of an all-to-all, rank by rank: as many as there are ranks, squared.
  gc3_outcome (*agree)(void* comm, const gc3_v_known* known, uint64_t* counts, int waits_here,
                       const gc3_errors* errors);
  gc3_outcome (*barrier)(void* comm, int waits_here, const gc3_errors* errors);
  // Starts to send to a rank, or to receive from it; peer and tag -1 of a receive: any. `type`: the number of that
  // of the elements; for one that the engine does not have, a negative number that is its own. Null: it failed. The
  // buffer belongs to the message until it is done.
  gc3_message* (*start)(void* comm, int sends, void* data, uint64_t bytes, int32_t type, int64_t peer, int32_t tag,
                        const gc3_errors* errors);
  int (*test)(void* comm, gc3_message* message);  // whether it is done, successfully or not
  // `timeout_s` < 0: that of the communicator.
  gc3_outcome (*wait)(void* comm, gc3_message* message, double timeout_s, int waits_here, gc3_got* got,
                      const gc3_errors* errors);
  void (*drop)(gc3_message* message);
  // Makes the calls of all ranks fail, including running ones.
  void (*abort)(void* comm);
  // How many seconds between two looks of a wait count for its limit: in the others this process was stopped.
  double (*counted)(double seconds);
} gc3_calls;

// What the capsule points to, as long as it exists.
typedef struct gc3_caller {
  const gc3_calls* calls;
  void* comm;
} gc3_caller;

#ifdef __cplusplus
}
#endif
