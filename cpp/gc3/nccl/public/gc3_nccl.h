/* What GC3's library in front of NCCL offers beyond NCCL's own functions. Include nccl.h before this header.
 *
 * A program that is started without that library does not have these functions: look them up with dlsym, or link
 * against libgc3_nccl.so. All return an ncclResult_t; ncclGetLastError has the text of an error. */
#ifndef GC3_NCCL_H
#define GC3_NCCL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A program that the caller chooses itself, of a collective of NCCL's or of a custom one. */
typedef struct gc3Program* gc3Program_t;

/* Reads and proves a program, in any form that `gc3 verify` reads. */
ncclResult_t gc3ProgramLoad(const char* file, gc3Program_t* program);
ncclResult_t gc3ProgramFree(gc3Program_t program);

/* Runs a program on a communicator with as many ranks. `count`: elements of a block of its collective, as described in
 * docs/cpp.md. A buffer that the rank does not have is not used. All ranks make the call; there is no other algorithm
 * that would serve it, so it fails if a rank cannot run the program. Its first call may not be captured into a graph.
 */
ncclResult_t gc3CollRun(gc3Program_t program, const void* sendbuff, void* recvbuff, size_t count,
                        ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* The programs of a folder of `gc3 table export`, or one program, for the calls of a communicator; they are tried
 * before those that it has. All ranks make the call, between the same two calls of the communicator. */
ncclResult_t gc3CommLoad(ncclComm_t comm, const char* path);

/* The same for all communicators that are used for the first time afterwards. All ranks make the call before. */
ncclResult_t gc3NcclLoad(const char* path);

#ifdef __cplusplus
}
#endif
#endif
