/* What a setting of an MPI library does. Prints for each rank how often it has read the memory of another process since
   MPI_Init, how often it has given its core away, and how many cores it may use. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static long reads, yields;

/* The library's calls come here, because the program's own symbols are found first. */
ssize_t process_vm_readv(pid_t pid, const struct iovec* to, unsigned long n, const struct iovec* from, unsigned long m,
                         unsigned long flags) {
  ++reads;
  return syscall(SYS_process_vm_readv, pid, to, n, from, m, flags);
}

int sched_yield(void) {
  ++yields;
  return (int)syscall(SYS_sched_yield);
}

int main(int argc, char** argv) {
  const size_t count = 1 << 20;
  int rank, ranks;
  cpu_set_t cores;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* out = calloc(count, 1);
  char* in = calloc(count * (size_t)ranks, 1);
  reads = yields = 0;
  for (int i = 0; i < 3; ++i) {
    if (rank == 0) usleep(20000); /* so that the others wait */
    MPI_Allgather(out, (int)count, MPI_CHAR, in, (int)count, MPI_CHAR, MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  sched_getaffinity(0, sizeof cores, &cores);
  printf("%d: %ld reads %ld yields %d cores\n", rank, reads, yields, CPU_COUNT(&cores));
  MPI_Finalize();
  return 0;
}
