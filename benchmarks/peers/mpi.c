/* A rank of an MPI world, or of gc3 (own/mpi.h): waits for commands and answers them as rank.py does for libraries with
   a Python interface.
   usage: mpi FOLDER   reads lines from the FIFO FOLDER/command.RANK, asleep in between so that other worlds can work;
   rank 0 answers into the FIFO FOLDER/answer. A line is
     COLLECTIVE BYTES WARMUP ITERATIONS CHECK LANGUAGE PATTERN PAIRS
   on float32 with sum, BYTES being the largest buffer of a rank. rank.py says what the patterns are. "oneway" and
   "window" are messages between two ranks: there and back, and many under way from rank 0 to rank 1. The answer is
   WRONG elements found by CHECK, then the seconds of each iteration on the slowest rank, and for "waits" the processor
   time of all ranks for a call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROW = 16 };                 /* calls of an iteration of "rows", as in rank.py */
enum { ROUNDS = 16, WINDOW = 64 }; /* round trips of an iteration of "oneway", messages of one of "window" */
enum { MOST_HELD = 64 << 20 }; /* bytes of the buffers of a window: fewer messages are under way if they are large */

static int rank, ranks;
static float *own_in, *own_out; /* a pair of buffers */
static float* ring;             /* many pairs */
static size_t held, held_ring, turn;

static void send_and_receive(int count, const float* in, float* out) {
  for (int i = 0; i < ROUNDS; ++i) {
    if (rank == 0) MPI_Send(in, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(out, count, MPI_FLOAT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(in, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }
}

/* The messages of a window, each with a buffer of its own. */
static size_t buffers_of(const char* name, size_t bytes) {
  if (strcmp(name, "window") != 0) return 1;
  const size_t fit = MOST_HELD / bytes;
  return fit == 0 ? 1 : fit < WINDOW ? fit : WINDOW;
}

static void send_many(int count, const float* in, float* out) {
  static MPI_Request requests[WINDOW];
  const size_t messages = buffers_of("window", (size_t)count * sizeof *in);
  for (size_t i = 0; i < messages; ++i) {
    const size_t at = i * (size_t)count;
    if (rank == 0)
      MPI_Isend(in + at, count, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, &requests[i]);
    else
      MPI_Irecv(out + at, count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall((int)messages, requests, MPI_STATUSES_IGNORE);
  if (rank == 0)
    MPI_Recv(out, 1, MPI_FLOAT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else
    MPI_Send(in, 1, MPI_FLOAT, 0, 1, MPI_COMM_WORLD);
}

static void call(const char* name, int count, const float* in, float* out) {
  const int part = count / ranks;
  if (strcmp(name, "oneway") == 0) send_and_receive(count, in, out);
  if (strcmp(name, "window") == 0) send_many(count, in, out);
  if (strcmp(name, "allreduce") == 0) MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(name, "allgather") == 0) MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (strcmp(name, "reducescatter") == 0) MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (strcmp(name, "alltoall") == 0) MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  if (strcmp(name, "broadcast") == 0) MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

/* Every element of rank r's input is r + 1, so what every element of the output must be is known. */
static void fill(const char* name, int count) {
  const int in_place = strcmp(name, "broadcast") == 0;
  for (int i = 0; i < count; ++i) {
    own_in[i] = (float)(rank + 1);
    own_out[i] = in_place ? (float)(rank + 1) : -1;
  }
}

static long wrong(const char* name, int count) {
  const int reduces = strcmp(name, "allreduce") == 0 || strcmp(name, "reducescatter") == 0;
  const int blocks = strcmp(name, "allgather") == 0 || strcmp(name, "alltoall") == 0;
  const int length = strcmp(name, "reducescatter") == 0 || blocks ? count / ranks : count;
  long found = 0;
  if (strcmp(name, "window") == 0 && rank == 0) return 0;
  for (int b = 0; b < (blocks ? ranks : 1); ++b) {
    const int sent = strcmp(name, "oneway") == 0 ? 2 - rank : 1;
    const float expected = reduces ? (float)(ranks * (ranks + 1) / 2) : (float)(blocks ? b + 1 : sent);
    for (int i = 0; i < length; ++i) found += own_out[(size_t)b * (size_t)length + (size_t)i] != expected;
  }
  return found;
}

/* Makes the buffers unless the last request had them; every page is written to. */
static int allocate(const char* name, size_t bytes, size_t pairs) {
  const size_t count = bytes / sizeof *ring;
  if (held != bytes) {
    free(own_in);
    free(own_out);
    free(ring);
    own_in = (float*)malloc(bytes);
    own_out = (float*)malloc(bytes);
    ring = NULL;
    held = bytes;
    held_ring = 0;
    if (own_in == NULL || own_out == NULL) return 1;
    fill(name, (int)count);
  }
  if (held_ring != pairs && pairs != 0) {
    free(ring);
    ring = (float*)malloc(2 * count * pairs * sizeof *ring);
    held_ring = pairs;
    if (ring == NULL) return 1;
    for (size_t i = 0; i < 2 * count * pairs; ++i) ring[i] = (float)(rank + 1);
  }
  return 0;
}

/* The same numbers as in rank.py: nanoseconds, at most a millisecond. */
static void pause_once(unsigned long long* state) {
  *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
  const struct timespec length = {0, (long)((double)(*state >> 33) / 2147483648.0 * 1e6)};
  nanosleep(&length, NULL);
}

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int serve(const char* line, FILE* answers) {
  char name[32], pattern[16];
  size_t bytes, pairs;
  int warmup, iterations, check;
  if (sscanf(line, "%31s %zu %d %d %d %*s %15s %zu", name, &bytes, &warmup, &iterations, &check, pattern, &pairs) != 7)
    return 1;
  const int count = (int)(bytes / sizeof *ring);
  const int rotated = strcmp(pattern, "rotated") == 0, waits = strcmp(pattern, "waits") == 0;
  const int rows = strcmp(pattern, "rows") == 0, calls = rows ? ROW : 1;
  const size_t buffers = buffers_of(name, bytes);
  const int messages = strcmp(name, "oneway") == 0 ? 2 * ROUNDS : (int)buffers;
  if (allocate(name, bytes * buffers, rotated ? pairs : 0) != 0) return 1;
  double* starts = (double*)malloc((size_t)(warmup + iterations) * sizeof *starts);
  double* ends = (double*)malloc((size_t)(warmup + iterations) * sizeof *ends);
  double* most = (double*)malloc(2 * (size_t)iterations * sizeof *most);
  if (starts == NULL || ends == NULL || most == NULL) return 1;
  unsigned long long state = (unsigned long long)rank + 1;
  double used = 0, all_used = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < warmup + iterations; ++i) {
    const float* in = own_in;
    float* out = own_out;
    if (rotated) {
      turn = (turn + 1) % pairs;
      in = ring + 2 * (size_t)count * turn;
      out = ring + 2 * (size_t)count * turn + count;
    }
    if (waits)
      pause_once(&state);
    else if (!rows)
      MPI_Barrier(MPI_COMM_WORLD);
    const double before = waits ? now(CLOCK_PROCESS_CPUTIME_ID) : 0;
    starts[i] = rows && i > 0 ? ends[i - 1] : now(CLOCK_MONOTONIC);
    for (int c = 0; c < calls; ++c) call(name, count, in, out);
    ends[i] = now(CLOCK_MONOTONIC);
    if (waits && i >= warmup) used += now(CLOCK_PROCESS_CPUTIME_ID) - before;
    if (!waits && !rows) { /* a rank's own time counts, not a common one */
      ends[i] -= starts[i];
      starts[i] = 0;
    }
  }
  MPI_Reduce(starts + warmup, most, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(ends + warmup, most + iterations, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&used, &all_used, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  long found = 0, all = 0;
  if (check) {
    fill(name, count);
    call(name, count, own_in, own_out);
    found = wrong(name, count);
    MPI_Reduce(&found, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  }
  if (answers != NULL) {
    fprintf(answers, "%ld", all);
    for (int i = 0; i < iterations; ++i)
      fprintf(answers, " %.9g", (most[iterations + i] - most[i]) / (calls * messages));
    if (waits) fprintf(answers, " %.9g", all_used / iterations);
    fprintf(answers, "\n");
    fflush(answers);
  }
  free(starts);
  free(ends);
  free(most);
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
