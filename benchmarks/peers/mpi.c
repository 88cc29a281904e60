/* Times one MPI collective over a range of sizes, as gc3 is timed: a barrier before each call, the slowest rank counts.
   usage: mpi COLLECTIVE WARMUP ITERATIONS SIZE...   float32, sum; prints "SIZE MEDIAN_US MIN_US" per size.
   SIZE is the largest buffer of a rank, as nccl-tests defines it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void call(const char* name, float* in, float* out, int count, int ranks) {
  if (strcmp(name, "allreduce") == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(name, "allgather") == 0)
    MPI_Allgather(in, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
  if (strcmp(name, "reducescatter") == 0)
    MPI_Reduce_scatter_block(in, out, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(name, "alltoall") == 0)
    MPI_Alltoall(in, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
  if (strcmp(name, "broadcast") == 0) MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const char* name = argv[1];
  const int warmup = atoi(argv[2]), iterations = atoi(argv[3]);
  double* times = malloc((size_t)iterations * sizeof *times);
  double* slowest = malloc((size_t)iterations * sizeof *slowest);
  for (int s = 4; s < argc; ++s) {
    const size_t size = strtoull(argv[s], NULL, 10);
    float* in = malloc(size);
    float* out = malloc(size);
    memset(in, 0, size);
    memset(out, 0, size);
    for (int i = 0; i < warmup + iterations; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      call(name, in, out, (int)(size / sizeof *in), ranks);
      if (i >= warmup) times[i - warmup] = MPI_Wtime() - start;
    }
    MPI_Reduce(times, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      qsort(slowest, (size_t)iterations, sizeof *slowest, ascending);
      printf("%zu %.3f %.3f\n", size, 1e6 * slowest[iterations / 2], 1e6 * slowest[0]);
      fflush(stdout);
    }
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
