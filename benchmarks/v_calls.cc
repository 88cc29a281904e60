// What a call that gives every block a length costs beside one of equal blocks: the same program, the same data, in
// turn.
//
//   gc3_v_calls_benchmark [RANKS]
//
// Prints the medians of both, per protocol and bytes of a block, and their ratio. The lengths are equal in one column
// and differ by one element in the other, so that nothing can treat them as a call of equal blocks.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/interp/test_programs.h"

namespace {

using namespace gc3;

constexpr int kRounds = 31;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

[[noreturn]] void fail(const Diagnostic& problem) {
  std::fprintf(stderr, "%s\n", problem.str().c_str());
  std::_Exit(1);
}

// One rank's part of the measurement at one size.
struct Buffers {
  Buffers(std::uint32_t ranks, std::uint32_t rank, std::uint64_t count, bool differ)
      : counts(ranks * ranks, count), input((count + 1) * ranks), output((count + 1) * ranks) {
    for (std::uint32_t i = 0; differ && i < counts.size(); ++i) counts[i] += i % 2;
    auto* from = input.data();
    auto* to = output.data();
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      inputs.push_back(reinterpret_cast<std::uint8_t*>(from));
      outputs.push_back(reinterpret_cast<std::uint8_t*>(to));
      from += counts[rank * ranks + peer];
      to += counts[peer * ranks + rank];
    }
  }
  std::vector<std::uint64_t> counts;
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> output;
  std::vector<std::uint8_t*> inputs;
  std::vector<std::uint8_t*> outputs;
};

void measure(cpu::Communicator& comm, cpu::ProcessProgram& program, const char* name, std::uint64_t count,
             std::vector<double>& ratios) {
  const std::uint32_t ranks = comm.size();
  Buffers plain(ranks, comm.rank(), count, false);
  Buffers uneven(ranks, comm.rank(), count, true);
  const int calls = std::max(4, static_cast<int>(400'000 / (count + 1000)));
  const auto time = [&](auto call) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      Status status = call();
      if (!status.ok()) fail(status.error());
    }
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
  };
  const auto uniform = [&] {
    return program.run({plain.input.data(), plain.output.data(), count, model::DataType::int32, {}, {}});
  };
  const auto varied = [&](Buffers& b) {
    return program.run_v({b.counts, b.inputs, b.outputs, model::DataType::int32, {}});
  };
  std::vector<double> times[3];
  for (int round = 0; round <= kRounds; ++round) {
    const double a = time(uniform);
    const double b = time([&] { return varied(plain); });
    const double c = time([&] { return varied(uneven); });
    if (round == 0) continue;  // to warm up
    times[0].push_back(a);
    times[1].push_back(b);
    times[2].push_back(c);
  }
  const double base = median(times[0]);
  const double ratio = median(times[1]) / base;
  ratios.push_back(ratio);
  if (comm.rank() != 0) return;
  std::printf("%-7s %9lu B: %9.2f us of equal blocks, %9.2f by counts (%.3f), %9.2f of unequal ones (%.3f)\n", name,
              static_cast<unsigned long>(count * 4), base, median(times[1]), ratio, median(times[2]),
              median(times[2]) / base);
  std::fflush(stdout);
}

int run(const std::string& job, std::uint32_t rank, std::uint32_t ranks) {
  core::Meeting meeting;
  meeting.rank = rank;
  meeting.size = ranks;
  meeting.job = "v_calls " + job;
  meeting.timeout_s = 20;
  auto made = cpu::Communicator::init(meeting, {});
  if (!made.ok()) fail(made.error());
  cpu::Communicator& comm = *made.value();
  std::vector<double> ratios;
  const std::pair<const char*, model::Protocol> protocols[] = {
      {"Simple", model::Protocol::Simple}, {"LL", model::Protocol::LL}, {"LL128", model::Protocol::LL128}};
  for (const auto& [name, protocol] : protocols) {
    auto program = comm.prepare(testing::direct_alltoall(ranks, 1, protocol), 0, 0);
    if (!program.ok()) fail(program.error());
    for (std::uint64_t count = 16; count <= (protocol == model::Protocol::Simple ? 1U << 18U : 1U << 14U); count *= 8) {
      measure(comm, *program.value(), name, count, ratios);
    }
  }
  double sum = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  if (rank == 0) std::printf("geometric mean %.3f\n", std::exp(sum / static_cast<double>(ratios.size())));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto ranks = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2);
  const std::string job = std::to_string(getpid());
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    if (fork() == 0) _exit(run(job, rank, ranks));
  }
  const int status = run(job, 0, ranks);
  while (wait(nullptr) > 0) {
  }
  return status;
}
