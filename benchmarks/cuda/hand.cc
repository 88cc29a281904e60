// Compares the interpreter with kernels written by hand (hand.h), and measures the copy rate of the device. Prints
// JSON.
//
//   gc3_cuda_benchmark FOLDER SCHEDULE PROTOCOL CHANNELS COUNT...    8 ranks, float32, COUNT per rank: a line for each
//   gc3_cuda_benchmark --check FOLDER                                checks the results of all schedules, without times
//   gc3_cuda_benchmark --copy                                        the copy rate of the device
// FOLDER is that of the repository, with the kernels' sources; GC3_CUDA_DRIVER and GC3_NVRTC name the libraries.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "gc3/base/knobs.h"
#include "gc3/runtime/cuda/engine.h"
#include "gc3/runtime/interp/test_programs.h"

namespace {

using gc3::model::Protocol;

constexpr std::uint32_t kRanks = 8;
constexpr std::uint64_t kMostChecked = std::uint64_t{1} << 20U;  // elements of a rank's result

template <class T>
T must(gc3::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().str().c_str());
  std::exit(1);
}

std::string read(const std::string& name) {
  std::ifstream file(name);
  if (!file) {
    std::fprintf(stderr, "'%s' cannot be read\n", name.c_str());
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

gc3::ir::Program program_of(const std::string& schedule, Protocol protocol, std::uint32_t channels) {
  if (schedule == "ring") return gc3::testing::ring_allreduce(kRanks, true, protocol, channels);
  if (schedule == "allpairs") return gc3::testing::allpairs_allreduce(kRanks, true, protocol);
  if (schedule == "alltoall") return gc3::testing::direct_alltoall(kRanks, 1, protocol);
  std::fprintf(stderr, "there is no schedule '%s'\n", schedule.c_str());
  std::exit(2);
}

// The element of rank r at place i before a run.
float value(std::uint32_t r, std::uint64_t i) { return static_cast<float>((i * 7 + r * 13) % 101); }

// Buffers of `count` elements for each rank: one in place for AllReduce, an input and an output for AllToAll.
struct Buffers {
  Buffers(bool in_place, std::uint64_t count) {
    memory.resize(kRanks);
    results.resize(kRanks);
    std::vector<std::thread> writers;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      writers.emplace_back([this, in_place, count, r] {
        memory[r].resize(count);
        for (std::uint64_t i = 0; i < count; ++i) memory[r][i] = value(r, i);
        results[r].resize(in_place ? 0 : count);
      });
    }
    for (std::thread& writer : writers) writer.join();
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      inputs.push_back(memory[r].data());
      outputs.push_back(in_place ? memory[r].data() : results[r].data());
    }
  }
  const std::vector<std::vector<float>>& result() const { return results[0].empty() ? memory : results; }
  std::vector<std::vector<float>> memory;
  std::vector<std::vector<float>> results;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

struct Contest {
  std::unique_ptr<gc3::cuda::Engine> interpreted;
  std::unique_ptr<gc3::cuda::Engine> by_hand;
  bool in_place;
};

Contest make(const std::string& folder, const std::string& schedule, Protocol protocol, std::uint32_t channels,
             std::uint64_t slot_bytes) {
  const gc3::Knobs knobs = must(gc3::read_knobs());
  const std::vector<std::string> compilers =
      knobs.nvrtc.empty() ? std::vector<std::string>{"libnvrtc.so.13", "libnvrtc.so.12"} : std::vector{knobs.nvrtc};
  gc3::cuda::OtherKernels others;
  for (const char* name : {"benchmarks/cuda/hand.cu", "benchmarks/cuda/hand.h"}) {
    others.files.emplace_back(name, read(folder + "/" + name));
  }
  others.options = {"-DGC3_HAND=" + schedule};
  const gc3::ir::Program program = program_of(schedule, protocol, channels);
  const auto engine = [&](gc3::cuda::OtherKernels kernels) {
    const auto runtime = must(gc3::cuda::Runtime::open(knobs.cuda_driver, compilers, std::move(kernels)));
    return must(gc3::cuda::Engine::create(runtime, program, {0}, {0, slot_bytes, 30}));
  };
  return {engine({}), engine(std::move(others)), schedule != "alltoall"};
}

// The elements of a block of a call.
std::uint64_t block(bool in_place, std::uint64_t count) { return in_place ? count : count / kRanks; }

std::vector<double> run(gc3::cuda::Engine& engine, Buffers& buffers, std::uint64_t count, std::uint32_t iterations,
                        bool graph) {
  const gc3::interp::Call call = {buffers.inputs, buffers.outputs, count, gc3::model::DataType::float32,
                                  gc3::model::ReduceOp::sum};
  return must(graph ? engine.time_graph(call, 2, iterations) : engine.time(call, 0, iterations));
}

// Whether both results are right. In a large result only every n-th place is checked; n is odd, so that all places
// within lines and chunks are covered.
bool check(const Contest& contest, std::uint64_t count) {
  for (gc3::cuda::Engine* engine : {contest.interpreted.get(), contest.by_hand.get()}) {
    Buffers buffers(contest.in_place, count);
    run(*engine, buffers, block(contest.in_place, count), 1, false);
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      for (std::uint64_t i = 0; i < count; i += count / kMostChecked | 1U) {
        float wanted = 0;
        const std::uint64_t part = count / kRanks;
        if (contest.in_place) {
          for (std::uint32_t s = 0; s < kRanks; ++s) wanted += value(s, i);
        } else {
          wanted = value(static_cast<std::uint32_t>(i / part), r * part + i % part);
        }
        if (buffers.result()[r][i] != wanted) return false;
      }
    }
  }
  return true;
}

int check_all(const std::string& folder) {
  int wrong = 0;
  for (const Protocol protocol : {Protocol::Simple, Protocol::LL, Protocol::LL128}) {
    for (const std::string schedule : {"ring", "allpairs", "alltoall"}) {
      const Contest contest = make(folder, schedule, protocol, 1, 4096);
      for (const std::uint64_t count : {256U, 20480U}) {
        const bool right = check(contest, count);
        if (!right)
          std::printf("%s %s %d: wrong\n", schedule.c_str(), gc3::model::name_of(protocol).data(), int(count));
        wrong += right ? 0 : 1;
      }
    }
  }
  std::printf("%d wrong results\n", wrong);
  return wrong == 0 ? 0 : 1;
}

// Measures the bytes that copies of 256 MiB read and write per second.
int copy_rate() {
  constexpr std::size_t kBytes = std::size_t{256} << 20U;
  constexpr int kCopies = 20;
  const auto runtime = must(gc3::cuda::Runtime::open(must(gc3::read_knobs()).cuda_driver, {}));
  const auto device = must(runtime->device(0));
  const auto source = must(gc3::cuda::Memory::on(device, kBytes, "a copy"));
  const auto target = must(gc3::cuda::Memory::on(device, kBytes, "a copy"));
  const auto stream = must(gc3::cuda::Stream::create(device));
  const auto before = must(gc3::cuda::Event::create(device, true));
  const auto after = must(gc3::cuda::Event::create(device, true));
  const gc3::cuda::Current current(*device);
  const gc3::cuda::Driver& driver = device->driver();
  const auto copy = [&] {
    return driver->device_to_device(gc3::cuda::address(target.data()), gc3::cuda::address(source.data()), kBytes,
                                    stream.get());
  };
  int status = copy();
  if (status == 0) status = driver->record_event(before.get(), stream.get());
  for (int i = 0; i < kCopies && status == 0; ++i) status = copy();
  if (status == 0) status = driver->record_event(after.get(), stream.get());
  if (status == 0) status = driver->synchronize_stream(stream.get());
  float ms = 0;
  if (status == 0) status = driver->elapsed_ms(&ms, before.get(), after.get());
  const gc3::Status checked = driver.check(status, "a copy");
  if (!checked.ok()) {
    std::fprintf(stderr, "%s\n", checked.error().str().c_str());
    return 1;
  }
  std::printf("{\"bytes\": %zu, \"bytes_per_second\": %.6g}\n", kBytes, 2.0 * kBytes * kCopies / (ms * 1e-3));
  return 0;
}

double least(std::vector<double> values) { return *std::min_element(values.begin(), values.end()); }

// Times a point and prints a line. False if the results are wrong.
bool time_point(const Contest& contest, const char* about, std::uint64_t count) {
  const bool right = check(contest, count);
  const std::uint64_t elements = block(contest.in_place, count);
  const std::uint64_t bytes = count * sizeof(float);
  const std::uint32_t iterations = bytes <= (1U << 20U) ? 200 : bytes <= (1U << 24U) ? 20 : 5;
  const int rounds =
      bytes <= (1U << 24U) ? 3 : 1;  // one of large ones, because most of their time is copies from the host
  double seconds[2] = {1e9, 1e9};
  for (int round = 0; round < rounds; ++round) {  // in turn, so that changes of the device affect both
    Buffers buffers(contest.in_place, count);
    seconds[0] = std::min(seconds[0], least(run(*contest.interpreted, buffers, elements, iterations, true)));
    seconds[1] = std::min(seconds[1], least(run(*contest.by_hand, buffers, elements, iterations, true)));
  }
  std::printf(
      "{%s, \"bytes_per_rank\": %llu, \"iterations\": %u, \"correct\": %s, \"interpreted_us\": %.3f, "
      "\"by_hand_us\": %.3f}\n",
      about, static_cast<unsigned long long>(bytes), iterations, right ? "true" : "false", seconds[0] * 1e6,
      seconds[1] * 1e6);
  std::fflush(stdout);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--check") return check_all(argv[2]);
  if (argc == 2 && std::string(argv[1]) == "--copy") return copy_rate();
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s FOLDER SCHEDULE PROTOCOL CHANNELS COUNT... | --check FOLDER | --copy\n", argv[0]);
    return 2;
  }
  const auto protocol = gc3::model::parse_protocol(argv[3]);
  const auto channels = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  std::vector<std::uint64_t> counts;
  bool sensible = protocol && channels != 0;
  for (int i = 5; i < argc; ++i) {
    counts.push_back(std::strtoull(argv[i], nullptr, 10));
    sensible = sensible && counts.back() != 0 && counts.back() % (kRanks * channels * 4) == 0;
  }
  if (!sensible) {
    std::fprintf(stderr, "expected a protocol, and counts that make chunks of whole vectors\n");
    return 2;
  }
  const Contest contest = make(argv[1], argv[2], *protocol, channels, 0);
  const std::string about = std::string("\"schedule\": \"") + argv[2] + "\", \"protocol\": \"" + argv[3] +
                            "\", \"channels\": " + std::to_string(channels);
  bool right = true;
  for (const std::uint64_t count : counts) right = time_point(contest, about.c_str(), count) && right;
  return right ? 0 : 1;
}
