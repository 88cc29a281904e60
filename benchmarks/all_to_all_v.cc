// Blocks of different lengths, gc3 and MPI in turn in the same processes: an all-to-all in which what a rank sends to
// each is distributed by Zipf's law, the same counts for both.
//
//   gc3 table export -o programs
//   mpicxx -std=c++20 -O2 -I cpp benchmarks/all_to_all_v.cc -o all_to_all_v \
//     -Wl,--start-group build/release/libgc3*.a -Wl,--end-group -lpthread -ldl
//   mpirun -n 8 --oversubscribe ./all_to_all_v programs
//
// benchmarks/in_turn.py runs it in all settings of Open MPI and MPICH.
//
// Each line has, for the mean number of bytes that a rank sends, the median of the rounds of the slowest rank.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "gc3/gc3.h"

namespace {

constexpr int kRounds = 11;
constexpr double kExponent = 1.2;

double seconds_of(const std::function<void()>& work, int times) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  double own = took.count() / times;
  double slowest = 0;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

// For each rank a random order of the others' shares, 1, 2^-a, 3^-a, ... of what it sends.
std::vector<std::uint64_t> zipf(std::uint32_t ranks, std::uint64_t each) {
  std::mt19937 random(7);
  std::vector<std::uint64_t> counts;
  double all = 0;
  for (std::uint32_t k = 1; k <= ranks; ++k) all += std::pow(k, -kExponent);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    std::vector<std::uint64_t> own;
    for (std::uint32_t k = 1; k <= ranks; ++k) {
      own.push_back(static_cast<std::uint64_t>(static_cast<double>(each) * std::pow(k, -kExponent) / all));
    }
    std::ranges::shuffle(own, random);
    counts.insert(counts.end(), own.begin(), own.end());
  }
  return counts;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  gc3::Options options;
  if (argc > 1) options.programs = argv[1];
  gc3::Result<gc3::Communicator> made = gc3::init(options);
  if (!made.ok()) std::fprintf(stderr, "%s\n", made.error().str().c_str()), std::abort();
  gc3::Communicator& comm = made.value();
  const auto size = static_cast<std::uint32_t>(ranks);
  if (rank == 0) std::printf("%10s %12s %12s %8s\n", "bytes", "gc3 us", "MPI us", "MPI/gc3");
  double gain = 0;
  int sizes = 0;
  for (std::uint64_t bytes = 1024; bytes <= std::uint64_t{16} << 20U; bytes *= 4, ++sizes) {
    const std::vector<std::uint64_t> counts = zipf(size, bytes);
    std::vector<int> sent, sent_at, got, got_at;
    int all_sent = 0;
    int all_got = 0;
    for (std::uint32_t r = 0; r < size; ++r) {
      const auto own = static_cast<std::uint32_t>(rank);
      sent_at.push_back(all_sent);
      got_at.push_back(all_got);
      all_sent += sent.emplace_back(static_cast<int>(counts[own * size + r]));
      all_got += got.emplace_back(static_cast<int>(counts[r * size + own]));
    }
    std::vector<char> in(static_cast<std::size_t>(all_sent), static_cast<char>(rank));
    std::vector<char> out(static_cast<std::size_t>(all_got));
    std::vector<char> wanted(out.size());
    const auto ours = [&] {
      const gc3::Status status = comm.all_to_all_v(in.data(), out.data(), counts, gc3::DataType::uint8);
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().str().c_str()), std::abort();
    };
    const auto theirs = [&] {
      MPI_Alltoallv(in.data(), sent.data(), sent_at.data(), MPI_BYTE, wanted.data(), got.data(), got_at.data(),
                    MPI_BYTE, MPI_COMM_WORLD);
    };
    ours();
    theirs();
    if (out != wanted) std::fprintf(stderr, "the results differ\n"), std::abort();
    const int times = bytes <= 16'384 ? 20 : bytes <= 1'048'576 ? 5 : 1;
    std::vector<double> took[2];
    for (int round = 0; round < kRounds; ++round) {
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (turn + round) % 2;
        took[which].push_back(which == 0 ? seconds_of(ours, times) : seconds_of(theirs, times));
      }
    }
    for (std::vector<double>& t : took) std::ranges::sort(t);
    const double a = took[0][kRounds / 2];
    const double b = took[1][kRounds / 2];
    gain += std::log(b / a);
    if (rank == 0) {
      std::printf("%10llu %12.2f %12.2f %8.2f\n", static_cast<unsigned long long>(bytes), a * 1e6, b * 1e6, b / a);
    }
  }
  if (rank == 0) std::printf("geometric mean: %.2f\n", std::exp(gain / sizes));
  MPI_Finalize();
}
