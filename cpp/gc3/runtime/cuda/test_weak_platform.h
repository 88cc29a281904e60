// The functions of device/cuda_platform.h over weak memory, for tests. The unchanged device code is executed by warps
// that take turns on one host thread. A seed chooses the next warp, the order of the lanes in a warp, and the store
// that a load returns, so failures can be repeated.
//
// Lanes take turns at each statement that the device code wraps in `each`; the first lane executes other statements.
// Shared memory is host memory; ThreadSanitizer with device/test_platform.h finds its races. Data that a launch only
// reads (the program) and data that only one threadblock uses (its Progress) are in host memory as well.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gc3/runtime/core/waiting/test_weak_memory.h"
#include "gc3/runtime/cuda/device/shared.h"
#include "gc3/runtime/cuda/device/test_platform.h"

namespace gc3::cuda::weak {

using namespace gc3::weak;

// The parts of the device code, or of the machine below it, that are left out.
struct Mutation {
  bool releases = true;   // of flags and semaphores
  bool acquires = true;   // likewise
  bool barriers = true;   // of a block: without them, warps wait for each other, but accesses are not ordered
  bool converges = true;  // before LL128 stores its lines
};

// The warps of all ranks.
class Machine {
 public:
  static constexpr std::uint32_t kWarps = 2;  // of a threadblock

  struct Meeting {  // of some warps
    std::uint32_t arrived = 0;
    bool votes = false;
    bool result = false;
  };
  struct Block {
    Shared shared{};
    Meeting meeting;
  };
  struct Piece {  // of a line, stored in an `each` that has not ended
    std::uint32_t lane;
    std::uint8_t* at;
    Vec value;
  };
  struct Warp {
    std::uint32_t index = 0;  // of all
    std::uint32_t lane = 0;
    bool lanes_take_turns = false;
    bool converged = false;
    std::vector<Piece> pieces;
    enum { ready, spinning, waiting, ended } state = ready;
    std::unique_ptr<char[]> stack;
    ucontext_t context{};
    std::uint32_t thread() const { return index * kLanes + lane; }
  };

  Machine(std::uint64_t seed, const Assumptions& assumed, const Mutation& mutated)
      : assumptions(assumed),
        mutation(mutated),
        random(seed),
        memory(random, assumptions, 32U << random.below(3)),
        restlessness_(1U << random.below(6)) {}

  // Executes `body(block)` with all warps of all blocks. Sets `stop` when all remaining warps wait for ever.
  void run(std::uint32_t blocks, std::uint32_t& stop, std::function<void(std::uint32_t)> body) {
    body_ = std::move(body);
    stop_ = &stop;
    blocks_.assign(blocks, {});
    warps_.resize(blocks * kWarps);
    idle_ = 0;
    running = this;
    memory.begin(blocks * kWarps);
    for (std::uint32_t w = 0; w < warps_.size(); ++w) {
      Warp& warp = warps_[w];
      warp.index = w;
      warp.state = Warp::ready;
      if (warp.stack == nullptr) warp.stack.reset(new char[kStackBytes]);
      getcontext(&warp.context);
      warp.context.uc_stack.ss_sp = warp.stack.get();
      warp.context.uc_stack.ss_size = kStackBytes;
      makecontext(&warp.context, &Machine::enter, 0);
    }
    current = &warps_[random.below(static_cast<std::uint32_t>(warps_.size()))];
    swapcontext(&outside_, &current->context);
    memory.end();
  }

  Block& block() { return blocks_[current->index / kWarps]; }

  // Between two accesses: may switch to another warp.
  void pause() {
    if (random.chance(restlessness_)) pass_on();
  }
  // After a poll without success.
  void spin() {
    current->state = Warp::spinning;
    if (++idle_ > kIdlePolls * warps_.size()) *stop_ = static_cast<std::uint32_t>(Stop::deadline);
    pass_on();
  }
  void progress() {
    idle_ = 0;
    current->state = Warp::ready;
  }
  // The barrier of the current warp's threadblock.
  bool barrier(bool vote) {
    return meet(block().meeting, current->index / kWarps * kWarps, kWarps, vote, mutation.barriers);
  }
  // These warps wait for each other. With `order`, all of their threads then know what any of them knows.
  bool meet(Meeting& meeting, std::uint32_t first, std::uint32_t count, bool vote, bool order) {
    meeting.votes = meeting.votes || vote;
    progress();
    if (++meeting.arrived < count) {
      current->state = Warp::waiting;
      pass_on();
      return meeting.result;
    }
    if (order) memory.join(first * kLanes, count * kLanes);
    for (std::uint32_t w = first; w < first + count; ++w) warps_[w].state = Warp::ready;
    meeting.arrived = 0;
    meeting.result = meeting.votes;
    meeting.votes = false;
    return meeting.result;
  }

  static inline Machine* running = nullptr;
  Assumptions assumptions;
  Mutation mutation;
  Random random;
  Memory memory;
  Warp* current = nullptr;

 private:
  static constexpr std::size_t kStackBytes = 96 * 1024;
  static constexpr std::uint32_t kIdlePolls = 500;  // polls of each warp without any store in between

  static void enter() {
    Machine& machine = *running;
    machine.body_(machine.current->index / kWarps);
    machine.current->state = Warp::ended;
    machine.pass_on();
  }
  // Switches to another warp. Spinning warps are chosen rarely, unless there are no others.
  void pass_on() {
    Warp* const from = current;
    choices_.clear();
    const bool any = random.chance(16);
    for (const bool with_spinning : {any, true}) {
      for (Warp& w : warps_) {
        if (w.state == Warp::ready || (with_spinning && w.state == Warp::spinning)) choices_.push_back(&w);
      }
      if (!choices_.empty()) break;
    }
    if (choices_.empty()) setcontext(&outside_);  // all have ended
    current = choices_[random.below(static_cast<std::uint32_t>(choices_.size()))];
    if (current != from) swapcontext(&from->context, &current->context);
  }

  std::uint32_t restlessness_;  // of 256
  std::function<void(std::uint32_t)> body_;
  std::uint32_t* stop_ = nullptr;
  std::vector<Block> blocks_;
  std::vector<Warp> warps_;
  std::vector<Warp*> choices_;
  ucontext_t outside_{};
  std::size_t idle_ = 0;
};

class WeakPlatform {
 public:
  static constexpr std::uint32_t kLanes = weak::kLanes;
  template <class T>
  using PerLane = HostPlatform::PerLane<T>;

  static std::uint32_t thread() { return warp(); }
  static std::uint32_t threads() { return warps(); }
  static std::uint32_t warp() { return self().index % Machine::kWarps; }
  static std::uint32_t warps() { return Machine::kWarps; }
  static Shared& shared() { return machine().block().shared; }

  static void sync() { machine().barrier(false); }
  static bool sync_or(bool mine) { return machine().barrier(mine); }
  template <class F>
  static void each(F f) {
    Machine::Warp& warp = self();
    warp.lanes_take_turns = true;
    const std::uint32_t first = machine().random.below(kLanes);
    const std::uint32_t step = 1 + 2 * machine().random.below(kLanes / 2);
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      warp.lane = (first + i * step) % kLanes;
      f(warp.lane);
    }
    warp.lane = 0;
    warp.lanes_take_turns = false;
    store_lines(warp);
    warp.converged = false;
  }
  static bool all(const PerLane<bool>& mine) {
    machine().memory.vote(self().index);
    return HostPlatform::all(mine);
  }
  static bool first(bool mine) { return mine; }
  static void converge() {
    if (!machine().mutation.converges) return;
    machine().memory.join(self().index * kLanes, kLanes);
    self().converged = true;
  }
  static bool leads() { return true; }

  static std::uint64_t load_acquire(const std::uint64_t* at, bool) {
    if (!machine().mutation.acquires) return load_word(at);
    machine().pause();
    return machine().memory.load_acquire(self().thread(), at);
  }
  static void store_release(std::uint64_t* at, std::uint64_t value, bool system) {
    if (!machine().mutation.releases) return store_read(at, value, system);
    machine().pause();
    machine().progress();
    machine().memory.store_release(self().thread(), at, value);
  }
  static std::uint64_t add(std::uint64_t* at, std::uint64_t value, bool) {
    machine().pause();
    machine().progress();
    return machine().memory.add(self().thread(), at, value, machine().mutation.acquires, machine().mutation.releases);
  }
  static bool exchange(std::uint64_t* at, std::uint64_t expected, std::uint64_t value, bool) {
    machine().pause();
    machine().progress();
    return machine().memory.exchange(self().thread(), at, expected, value, machine().mutation.acquires);
  }
  static void store_read(std::uint64_t* at, std::uint64_t value, bool) { store_word(at, value); }
  static void fence(bool) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) machine().memory.fence(self().index * kLanes + lane);
  }

  static Vec load_line(const std::uint8_t* at) { return get<Vec>(Access::strong, at); }
  static void store_line(std::uint8_t* at, const Vec& v) {
    Machine::Warp& warp = self();
    warp.pieces.push_back({warp.lane, at, v});
    if (!warp.lanes_take_turns) store_lines(warp);
  }
  static std::uint64_t load_word(const std::uint64_t* at) { return get<std::uint64_t>(Access::strong, at); }
  static void store_word(std::uint64_t* at, std::uint64_t value) { put(Access::strong, at, value); }

  static constexpr bool kHasSwitch = false;
  static void fence_aliases() {}
  static Vec load(const std::uint8_t* at) { return get<Vec>(Access::plain, at); }
  static void store(std::uint8_t* at, const Vec& v) { put(Access::plain, at, v); }
  template <class T>
  static T load_element(const std::uint8_t* at) {
    return get<T>(Access::plain, at);
  }
  template <class T>
  static void store_element(std::uint8_t* at, T x) {
    put(Access::plain, at, x);
  }

  // The stop words in host memory, see WaitLimit. Here a wait ends when no warp makes progress, not after a time.
  static std::uint32_t load_stop(const std::uint32_t* at) { return *at; }
  static void store_stop(std::uint32_t* at, std::uint32_t value) { *at = value; }
  static std::uint64_t nanoseconds() { return 1; }
  static void relax() { machine().spin(); }

 private:
  static Machine& machine() { return *Machine::running; }
  static Machine::Warp& self() { return *machine().current; }

  template <class T>
  static T get(Access access, const void* at) {
    static_assert(sizeof(T) % 4 == 0);
    machine().pause();
    T value;
    machine().memory.load(self().thread(), access, at, &value, sizeof value);
    return value;
  }
  template <class T>
  static void put(Access access, void* at, const T& value) {
    static_assert(sizeof(T) % 4 == 0);
    machine().pause();
    machine().progress();
    machine().memory.store(self().thread(), access, at, &value, sizeof value);
  }

  // Stores the lines that the lanes have written in an `each`: as whole lines if the warp is converged, else in pieces.
  static void store_lines(Machine::Warp& warp) {
    std::vector<Machine::Piece> pieces;
    pieces.swap(warp.pieces);
    constexpr std::size_t kPieces = kLineBytes / sizeof(Vec);
    if (!warp.converged || !machine().assumptions.whole_lines) {
      for (const Machine::Piece& piece : pieces) {
        warp.lane = piece.lane;
        put(Access::strong, piece.at, piece.value);
      }
    } else {
      std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
      for (std::size_t i = 0; i < pieces.size(); i += kPieces) {
        std::uint32_t words[kLineBytes / 4];
        for (std::size_t k = 0; k < kPieces; ++k) std::memcpy(words + 4 * k, &pieces[i + k].value, sizeof(Vec));
        machine().pause();
        machine().progress();
        machine().memory.store_line(warp.index * kLanes + pieces[i].lane, pieces[i].at, words);
      }
    }
    warp.lane = 0;
  }
};

}  // namespace gc3::cuda::weak
