// The cost of the interpreter: nanoseconds per instruction on 8-byte chunks, and an AllReduce of 64 MiB on two ranks
// compared with a hand-written loop that does the same copies and additions.
//
//   gc3_interpreter_benchmark [rounds]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gc3/runtime/cpu/idle.h"
#include "gc3/runtime/cpu/threads_engine.h"
#include "gc3/runtime/interp/test_programs.h"

namespace {

using gc3::cpu::Call;
using gc3::cpu::EngineOptions;
using gc3::cpu::ThreadsEngine;
using gc3::model::DataType;
using gc3::model::Protocol;
using gc3::testing::in;
using gc3::testing::out;

template <class T>
T must(gc3::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().str().c_str());
  std::exit(1);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The buffers of all ranks, and the pointers of a call to them.
struct Buffers {
  Buffers(std::size_t ranks, std::size_t in_bytes, std::size_t out_bytes) {
    for (std::size_t r = 0; r < ranks; ++r) {
      memory.emplace_back(in_bytes, '\1');
      inputs.push_back(memory.back().data());
      memory.emplace_back(out_bytes, '\0');
      outputs.push_back(memory.back().data());
    }
  }
  std::vector<std::vector<char>> memory;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// --- cost of an instruction ------------------------------------------------------------------------------------------

// Both ranks have one worker, so that the time does not include the communication between two cores.
void instruction_cost(const char* name, const gc3::ir::Program& program, DataType type, std::size_t count,
                      std::size_t bytes) {
  EngineOptions options;
  options.workers = 1;
  const auto engine = must(ThreadsEngine::create(program, options));
  Buffers b(program.ranks.size(), bytes, bytes);
  const Call call{b.inputs, b.outputs, count, type, gc3::model::ReduceOp::sum};
  const auto instructions = static_cast<double>(program.instructions.size());
  std::vector<double> plain;
  std::vector<double> recorded;
  for (int i = 0; i < 220; ++i) {  // in turn, because the speed of the machine changes
    const double seconds = must(engine->time(call, 0, 1))[0];
    const gc3::cpu::Recording run = must(engine->record(call, program.instructions.size()));
    if (i < 20) continue;
    plain.push_back(seconds);
    recorded.push_back(static_cast<double>(run.end - run.begin) * 1e-9);
  }
  std::printf("  %-28s %-7s %6.1f ns, recorded %6.1f ns\n", name, std::string(name_of(program.protocol)).c_str(),
              median(plain) / instructions * 1e9, median(recorded) / instructions * 1e9);
}

gc3::ir::Program stream(Protocol protocol, std::uint32_t messages) {
  gc3::testing::ProgramBuilder b(gc3::model::CollectiveKind::alltonext, 2, messages, false, protocol);
  b.tb(0, 1);
  for (std::uint32_t i = 0; i < messages; ++i) b.send(in(i));
  b.tb(1, gc3::ir::kNoRank, 0);
  for (std::uint32_t i = 0; i < messages; ++i) b.recv(out(i));
  return b.build();
}

// Two threadblocks of a rank that wait for each other at each step.
gc3::ir::Program handshake(std::uint32_t steps) {
  gc3::testing::ProgramBuilder b(gc3::model::CollectiveKind::allreduce, 1, steps, false, Protocol::Simple);
  b.tb(0);
  for (std::uint32_t i = 0; i < steps; ++i) {
    b.step(gc3::ir::Opcode::copy, in(i), out(i), 1,
           i == 0 ? std::vector<gc3::ir::Dependency>{} : std::vector<gc3::ir::Dependency>{{1, i - 1}});
  }
  b.tb(0);
  for (std::uint32_t i = 0; i < steps; ++i) b.step(gc3::ir::Opcode::copy, in(i), out(i), 1, {{0, i}});
  return b.build();
}

// --- the hand-written loop -------------------------------------------------------------------------------------------

constexpr std::size_t kBytes = std::size_t{64} << 20U;
constexpr std::size_t kHalf = kBytes / 2 / sizeof(float);

// The ring AllReduce of two ranks, written by hand. Each rank copies a tile of one half into the other rank's slot. It
// adds the received tile of the other half to its own, into the output and a slot. It copies the result of the first
// half, which comes back, to its output.
class HandWritten {
 public:
  HandWritten(std::size_t slot_bytes, std::size_t slots) : tile_(slot_bytes / sizeof(float)), slots_(slots) {
    for (auto& ring : rings_) ring.resize(slots_ * tile_, 1.0F);
  }

  double run(const Buffers& buffers) {
    for (auto& f : tails_) f.value = 0;
    for (auto& f : heads_) f.value = 0;
    std::atomic<int> arrived{0};
    double start[2];
    double stop[2];
    const auto body = [&](std::size_t rank) {
      arrived.fetch_add(1);
      while (arrived.load() != 2) gc3::cpu::relax();
      start[rank] = now();
      all_reduce(rank, static_cast<const float*>(buffers.inputs[rank]), static_cast<float*>(buffers.outputs[rank]));
      stop[rank] = now();
    };
    std::thread other([&] { body(1); });
    body(0);
    other.join();
    return std::max(stop[0], stop[1]) - std::min(start[0], start[1]);
  }

 private:
  struct alignas(128) Flag {
    std::atomic<std::size_t> value{0};
  };
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static void wait(const Flag& flag, std::size_t value) {
    // Waits as the engine does, because on a busy machine a loop that only spins would be slowed down by other
    // programs.
    gc3::cpu::Backoff backoff(gc3::cpu::spins_for(2));
    while (flag.value.load(std::memory_order_acquire) < value) backoff.rest();
  }

  void all_reduce(std::size_t rank, const float* input, float* output) {
    const std::size_t peer = 1 - rank;
    const std::size_t own = rank * kHalf;
    const std::size_t theirs = peer * kHalf;
    std::size_t sent = 0;
    std::size_t received = 0;
    const auto out_slot = [&] {
      wait(heads_[rank], sent + 1 > slots_ ? sent + 1 - slots_ : 0);
      return rings_[peer].data() + sent % slots_ * tile_;
    };
    const auto in_slot = [&] {
      wait(tails_[rank], received + 1);
      return rings_[rank].data() + received % slots_ * tile_;
    };
    const auto post = [&] { tails_[peer].value.store(++sent, std::memory_order_release); };
    const auto release = [&] { heads_[peer].value.store(++received, std::memory_order_release); };
    for (std::size_t at = 0; at < kHalf; at += tile_) {
      const std::size_t n = std::min(tile_, kHalf - at);
      std::memcpy(out_slot(), input + own + at, n * sizeof(float));
      post();
      const float* from = in_slot();
      float* forward = out_slot();
      for (std::size_t i = 0; i < n; ++i) forward[i] = output[theirs + at + i] = from[i] + input[theirs + at + i];
      post();
      release();
      std::memcpy(output + own + at, in_slot(), n * sizeof(float));
      release();
    }
  }

  std::size_t tile_;
  std::size_t slots_;
  std::vector<float> rings_[2];  // of the receiver
  Flag tails_[2];                // arrived at the receiver
  Flag heads_[2];                // credits of the sender
};

void large_allreduce(int rounds, Protocol protocol, std::uint64_t slot_bytes) {
  const gc3::ir::Program program = gc3::testing::ring_allreduce(2, false, protocol);
  EngineOptions options;
  options.slot_bytes = slot_bytes;
  const auto engine = must(ThreadsEngine::create(program, options));
  HandWritten by_hand(std::size_t{128} << 10U, 8);
  Buffers b(2, kBytes, kBytes);
  const Call call{b.inputs, b.outputs, kBytes / sizeof(float), DataType::float32, gc3::model::ReduceOp::sum};
  std::vector<double> ours;
  std::vector<double> hand;
  // Interleaved, because the speed of the machine changes, and must be the same for both.
  for (int i = 0; i < rounds + 2; ++i) {
    const double a = must(engine->time(call, 0, 1))[0];
    const double h = by_hand.run(b);
    if (i < 2) continue;  // the first rounds include page faults
    ours.push_back(a);
    hand.push_back(h);
  }
  std::printf("  %-7s slots of %7llu B: engine %7.2f ms, by hand %7.2f ms, ratio of medians %.2f\n",
              std::string(name_of(protocol)).c_str(), static_cast<unsigned long long>(engine->slot_bytes()),
              median(ours) * 1e3, median(hand) * 1e3, median(ours) / median(hand));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 25;
  std::printf("instruction, 8-byte chunks, one worker, kernels %s\n", gc3::cpu::best_kernels().name);
  for (const Protocol p : {Protocol::Simple, Protocol::LL, Protocol::LL128}) {
    instruction_cost("send/recv stream", stream(p, 4096), DataType::float32, 2 * 4096, 8 * 4096);
    instruction_cost("ring allreduce, 8 ranks", gc3::testing::ring_allreduce(8, false, p, 16), DataType::float32,
                     2 * 8 * 16, 8 * 8 * 16);
  }
  instruction_cost("copy + dependency", handshake(2048), DataType::float32, 2 * 2048, 8 * 2048);
  std::printf("AllReduce, 2 ranks, 64 MiB float32, %d rounds\n", rounds);
  for (const Protocol p : {Protocol::Simple, Protocol::LL, Protocol::LL128}) large_allreduce(rounds, p, 0);
  return 0;
}
