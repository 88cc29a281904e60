/* A rank of an MPI world that gc3.peers compares with: waits for commands, as gc3.peers.rank does for other libraries.
   usage: mpi FOLDER   reads lines from the FIFO FOLDER/command.RANK, asleep in between so that other worlds can work;
   rank 0 answers into the FIFO FOLDER/answer. A line is
     COLLECTIVE BYTES WARMUP ITERATIONS CHECK
   on float32 with sum, BYTES being the largest buffer of a rank. Every timed call follows a barrier, and the slowest
   rank counts. The answer is WRONG elements found by CHECK, then the seconds of each iteration. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static float *in, *out;
static size_t held;

static void call(const char* name, int count) {
  const int part = count / ranks;
  if (strcmp(name, "allreduce") == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(name, "allgather") == 0) MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (strcmp(name, "reducescatter") == 0)
    MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(name, "alltoall") == 0) MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (strcmp(name, "broadcast") == 0) MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

/* Every element of rank r's input is r + 1, so what every element of the output must be is known. */
static void fill(const char* name, int count) {
  const int in_place = strcmp(name, "broadcast") == 0;
  for (int i = 0; i < count; ++i) {
    in[i] = (float)(rank + 1);
    out[i] = in_place ? (float)(rank + 1) : -1;
  }
}

static long wrong(const char* name, int count) {
  const int reduces = strcmp(name, "allreduce") == 0 || strcmp(name, "reducescatter") == 0;
  const int blocks = strcmp(name, "allgather") == 0 || strcmp(name, "alltoall") == 0;
  const int length = strcmp(name, "reducescatter") == 0 || blocks ? count / ranks : count;
  long found = 0;
  for (int b = 0; b < (blocks ? ranks : 1); ++b) {
    const float expected = reduces ? (float)(ranks * (ranks + 1) / 2) : (float)(blocks ? b + 1 : 1);
    for (int i = 0; i < length; ++i) found += out[(size_t)b * (size_t)length + (size_t)i] != expected;
  }
  return found;
}

static int serve(const char* line, FILE* answers) {
  char name[32];
  size_t bytes;
  int warmup, iterations, check;
  if (sscanf(line, "%31s %zu %d %d %d", name, &bytes, &warmup, &iterations, &check) != 5) return 1;
  const int count = (int)(bytes / sizeof *in);
  if (held != bytes) {
    free(in);
    free(out);
    in = malloc(bytes);
    out = malloc(bytes);
    if (in == NULL || out == NULL) return 1;
    held = bytes;
    fill(name, count);
  }
  double* times = malloc((size_t)iterations * sizeof *times);
  double* slowest = malloc((size_t)iterations * sizeof *slowest);
  for (int i = 0; i < warmup + iterations; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    call(name, count);
    if (i >= warmup) times[i - warmup] = MPI_Wtime() - start;
  }
  MPI_Reduce(times, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  long found = 0, all = 0;
  if (check) {
    fill(name, count);
    call(name, count);
    found = wrong(name, count);
    MPI_Reduce(&found, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  }
  if (answers != NULL) {
    fprintf(answers, "%ld", all);
    for (int i = 0; i < iterations; ++i) fprintf(answers, " %.9g", slowest[i]);
    fprintf(answers, "\n");
    fflush(answers);
  }
  free(times);
  free(slowest);
  return 0;
}

int main(int argc, char** argv) {
  char path[4096], line[256];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  snprintf(path, sizeof path, "%s/command.%d", argv[1], rank);
  /* Without waiting for the other ends, which would last for ever if whoever asks has ended meanwhile. */
  const int file = open(path, O_RDONLY | O_NONBLOCK);
  FILE* commands = file < 0 || fcntl(file, F_SETFL, 0) < 0 ? NULL : fdopen(file, "r");
  snprintf(path, sizeof path, "%s/answer", argv[1]);
  FILE* answers = rank == 0 ? fopen(path, "r+") : NULL;
  int status = commands == NULL || (rank == 0 && answers == NULL);
  while (status == 0 && fgets(line, sizeof line, commands) != NULL) status = serve(line, answers);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return 0;
}
