// Latency and bandwidth between two ranks, gc3 and MPI in turn in the same processes, by the patterns of osu_latency (a
// message there and back, blocking) and osu_bw (64 messages started, then all waited for, then an answer).
//
//   mpicxx -std=c++20 -O2 -I cpp benchmarks/point_to_point.cc -o point_to_point \
//     -Wl,--start-group build/release/libgc3*.a -Wl,--end-group -lpthread -ldl
//   mpirun -n 2 --bind-to core ./point_to_point
//
// Each line has the median of the rounds, the two libraries taking turns.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "gc3/gc3.h"

namespace {

constexpr std::size_t kWindow = 64;
constexpr int kRounds = 15;

template <class T>
T must(gc3::Result<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.error().str().c_str()), std::abort();
  return std::move(result).value();
}
void must(const gc3::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().str().c_str()), std::abort();
}

struct Library {
  std::function<void(void* data, std::size_t bytes)> send, receive;
  std::function<void(std::vector<std::vector<char>>& data, std::size_t bytes, bool sends)> window;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  gc3::Communicator comm = must(gc3::init());
  const auto other = static_cast<std::uint32_t>(1 - rank);
  constexpr auto kByte = gc3::DataType::uint8;

  Library ours;
  ours.send = [&](void* data, std::size_t bytes) { must(comm.send(data, bytes, kByte, other)); };
  ours.receive = [&](void* data, std::size_t bytes) { must(comm.recv(data, bytes, kByte, other, 0)); };
  ours.window = [&](std::vector<std::vector<char>>& data, std::size_t bytes, bool sends) {
    std::vector<gc3::Transfer> all;
    all.reserve(data.size());
    for (std::vector<char>& d : data) {
      all.push_back(
          must(sends ? comm.isend(d.data(), bytes, kByte, other) : comm.irecv(d.data(), bytes, kByte, other, 0)));
    }
    for (const gc3::Transfer& t : all) must(t.wait());
  };
  Library mpi;
  mpi.send = [&](void* data, std::size_t bytes) {
    MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(other), 0, MPI_COMM_WORLD);
  };
  mpi.receive = [&](void* data, std::size_t bytes) {
    MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, static_cast<int>(other), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  };
  mpi.window = [&](std::vector<std::vector<char>>& data, std::size_t bytes, bool sends) {
    std::vector<MPI_Request> all(data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto start = sends ? MPI_Isend : nullptr;
      if (start != nullptr) {
        start(data[i].data(), static_cast<int>(bytes), MPI_BYTE, static_cast<int>(other), 0, MPI_COMM_WORLD, &all[i]);
      } else {
        MPI_Irecv(data[i].data(), static_cast<int>(bytes), MPI_BYTE, static_cast<int>(other), 0, MPI_COMM_WORLD,
                  &all[i]);
      }
    }
    MPI_Waitall(static_cast<int>(all.size()), all.data(), MPI_STATUSES_IGNORE);
  };

  if (rank == 0)
    std::printf("%10s %12s %12s %7s   %12s %12s %7s\n", "bytes", "gc3 us", "MPI us", "MPI/gc3", "gc3 MB/s", "MPI MB/s",
                "gc3/MPI");
  double latency_gain = 0;
  double rate_gain = 0;
  int sizes = 0;
  for (std::size_t bytes = 8; bytes <= (std::size_t{4} << 20U); bytes *= 2, ++sizes) {
    std::vector<std::vector<char>> data(kWindow, std::vector<char>(bytes, static_cast<char>(rank)));
    char answer = 0;
    const int pings = bytes <= 8192 ? 1000 : bytes <= 262'144 ? 200 : 40;
    const int windows = bytes <= 8192 ? 20 : bytes <= 262'144 ? 6 : 2;
    std::vector<double> times[2];
    std::vector<double> rates[2];
    for (int round = 0; round < kRounds + 2; ++round) {
      for (int turn = 0; turn < 2; ++turn) {
        const int which = (turn + round) % 2;
        const Library& library = which == 0 ? ours : mpi;
        MPI_Barrier(MPI_COMM_WORLD);
        const double there_and_back = seconds_of([&] {
          for (int i = 0; i < pings; ++i) {
            if (rank == 0) library.send(data[0].data(), bytes);
            library.receive(data[1].data(), bytes);
            if (rank == 1) library.send(data[0].data(), bytes);
          }
        });
        MPI_Barrier(MPI_COMM_WORLD);
        const double windows_s = seconds_of([&] {
          for (int i = 0; i < windows; ++i) {
            library.window(data, bytes, rank == 0);
            if (rank == 0) library.receive(&answer, 1);
            if (rank == 1) library.send(&answer, 1);
          }
        });
        if (round < 2) continue;
        times[which].push_back(there_and_back / pings / 2);
        rates[which].push_back(static_cast<double>(windows * kWindow * bytes) / windows_s);
      }
    }
    const auto median = [](std::vector<double>& of) {
      std::ranges::sort(of);
      return of[of.size() / 2];
    };
    const double t[2] = {median(times[0]), median(times[1])};
    const double b[2] = {median(rates[0]), median(rates[1])};
    latency_gain += std::log(t[1] / t[0]);
    rate_gain += std::log(b[0] / b[1]);
    if (rank == 0) {
      std::printf("%10zu %12.3f %12.3f %7.2f   %12.0f %12.0f %7.2f\n", bytes, t[0] * 1e6, t[1] * 1e6, t[1] / t[0],
                  b[0] / 1e6, b[1] / 1e6, b[0] / b[1]);
    }
  }
  if (rank == 0) {
    std::printf("geometric means: latency %.2f, bandwidth %.2f\n", std::exp(latency_gain / sizes),
                std::exp(rate_gain / sizes));
  }
  MPI_Finalize();
}
