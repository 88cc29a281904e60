// The device code over weak memory: results are right whatever loads return, and wrong if any ordering is left out.
#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <utility>

#include "gc3/runtime/cuda/test_weak_run.h"
#include "gc3/runtime/interp/test_programs.h"

namespace gc3::cuda {
namespace weak {

// Mutations of the code. The credit of a slot is given back before the slot is read:
template <class Protocol>
struct EarlyCredit : Protocol {
  template <class Block>
  static bool input_ready(Block& block, const interp::Run& run, const interp::RecvEnd& end) {
    if (!Protocol::input_ready(block, run, end)) return false;
    block.give_back(end.head, end.step + 1);
    return true;
  }
};
// Lines of LL128 are used as they were loaded before all flags were seen:
struct OneLook : interp::LL128 {};

}  // namespace weak

template <class Protocol, std::uint32_t kVecsPerLane>
struct Lines<weak::EarlyCredit<Protocol>, kVecsPerLane> : Lines<Protocol, kVecsPerLane> {};

template <std::uint32_t kVecsPerLane>
struct Lines<weak::OneLook, kVecsPerLane> : Lines<interp::LL128, kVecsPerLane> {
  using Of = Lines<interp::LL128, kVecsPerLane>;
  template <class Platform, class Has, class Vecs>
  static bool get(Platform& platform, const Launch& launch, const In& in, std::uint32_t base, const Has&, Vecs& out) {
    typename Platform::template PerLane<bool> arrived;
    WaitLimit limit;
    for (;;) {
      platform.each([&](std::uint32_t lane) {
        const Vec first = platform.load_line(in.slot + Of::offset(base, lane));
        const Vec second = platform.load_line(in.slot + Of::offset(base, lane) + Of::kRowBytes);
        arrived[lane] = !Of::has_flag(lane) || (first.high == in.flag && second.high == in.flag);
        out[0][lane] = Of::has_flag(lane) ? Vec{first.low, second.low} : first;
        out[1][lane] = second;
      });
      if (platform.all(arrived)) return true;
      if (platform.first(platform.leads() && limit.over(platform, launch))) return false;
    }
  }
};

namespace weak {
namespace {

using model::Protocol;
using testing::allpairs_allreduce;
using testing::direct_alltoall;
using testing::ring_allreduce;

#if defined(__SANITIZE_THREAD__)
constexpr bool kSkipped = true;  // there is only one thread, and the sanitizer cannot follow switches of stacks
#else
constexpr bool kSkipped = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kFewer = 8;  // divides the number of seeds
#else
constexpr std::uint64_t kFewer = 1;
#endif

// Rank 0 copies its own chunk to scratch, and another of its threadblocks copies it out. That threadblock knows that
// the chunk is there by a message that was sent after the first copy and has come back. Rank 1 receives and sends on
// that message in one step or in two.
ir::Program relay(Protocol protocol, bool fused) {
  using testing::in;
  using testing::out;
  using testing::scratch;
  testing::ProgramBuilder b(model::CollectiveKind::alltoall, 2, 1, false, protocol);
  b.scratch_chunks(0, 2);
  b.tb(0, 1, ir::kNoRank);
  b.step(ir::Opcode::copy, in(0), scratch(0));
  b.send(in(1));
  b.tb(0, ir::kNoRank, 1);
  b.recv(scratch(1));
  b.step(ir::Opcode::copy, scratch(0), out(0));
  b.recv(out(1));
  b.tb(1, 0, 0);
  if (fused) {
    b.step(ir::Opcode::recv_copy_send, in(0), out(0));
  } else {
    b.recv(out(0));
    b.send(out(0));
  }
  b.send(in(0));
  b.step(ir::Opcode::copy, in(1), out(1));
  return b.build();
}

// The error of the first seed with an error, or nothing.
template <class P>
std::optional<std::string> first_wrong(const ir::Program& program, const Setting& setting, std::uint64_t seeds) {
  Ranks ranks(program, setting);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto wrong = ranks.run<P>(seed);
    if (wrong.has_value()) return "seed " + std::to_string(seed) + ": " + *wrong;
  }
  return std::nullopt;
}
std::optional<std::string> first_wrong(const ir::Program& program, const Setting& setting, std::uint64_t seeds) {
  switch (program.protocol) {
    case Protocol::Simple:
    case Protocol::Pull:
    case Protocol::Copy:
      return first_wrong<interp::Simple>(program, setting, seeds);
    case Protocol::LL:
      return first_wrong<interp::LL>(program, setting, seeds);
    case Protocol::LL128:
      return first_wrong<interp::LL128>(program, setting, seeds);
  }
  return std::nullopt;
}

// The guarantees of PTX only. Simple and LL need no more.
constexpr Assumptions kPtx{8, false, false};
Assumptions needed_by(Protocol protocol) { return protocol == Protocol::LL128 ? Assumptions{} : kPtx; }

void check_exact(const ir::Program& program, std::uint32_t slots, std::uint64_t slot_bytes, std::size_t count,
                 std::uint64_t seeds, std::uint64_t first_step = 0) {
  Setting setting;
  setting.slots = slots;
  setting.slot_bytes = slot_bytes;
  setting.count = count;
  setting.assumptions = needed_by(program.protocol);
  setting.first_step = first_step;
  const auto wrong = first_wrong(program, setting, (seeds + kFewer - 1) / kFewer);
  CHECK_MESSAGE(!wrong.has_value(), program.collective.ranks(), " ranks, ", slots, " slots of ", slot_bytes, ", ",
                count, " elements, ", model::name_of(program.protocol), ", ", wrong.value_or(""));
}

// Litmus tests: one thread in each of two threadblocks, two words that are initially zero, and the values that the
// threads have loaded, over many seeds.
struct Words {
  alignas(16) std::uint64_t x = 0;
  std::uint64_t y = 0;
};
using Outcome = std::pair<std::uint64_t, std::uint64_t>;
using Body = std::function<void(Words&, Outcome&)>;
std::set<Outcome> outcomes(const Body& first, const Body& second) {
  std::set<Outcome> all;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Words words;
    Outcome seen;
    Machine machine(seed, kPtx, {});
    machine.memory.add(&words, sizeof words, false);
    std::uint32_t stop = 0;
    machine.run(2, stop, [&](std::uint32_t block) {
      if (WeakPlatform::warp() == 0) (block == 0 ? first : second)(words, seen);
    });
    CHECK(machine.memory.report().empty());
    all.insert(seen);
  }
  return all;
}
const std::set<Outcome> kAll = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
const std::set<Outcome> kInOrder = {{0, 0}, {0, 1}, {1, 1}};

TEST_CASE("weak memory allows exactly the outcomes that PTX allows" * doctest::skip(kSkipped)) {
  using P = WeakPlatform;
  const Body store_both = [](Words& w, Outcome&) {
    P::store_word(&w.x, 1);
    P::store_word(&w.y, 1);
  };
  const Body store_and_release = [](Words& w, Outcome&) {
    P::store_word(&w.x, 1);
    P::store_release(&w.y, 1, true);
  };
  const Body store_fence_store = [](Words& w, Outcome&) {
    P::store_word(&w.x, 1);
    P::fence(true);
    P::store_word(&w.y, 1);
  };
  const Body load_both = [](Words& w, Outcome& seen) {
    seen.first = P::load_word(&w.y);
    seen.second = P::load_word(&w.x);
  };
  const Body acquire_and_load = [](Words& w, Outcome& seen) {
    seen.first = P::load_acquire(&w.y, true);
    seen.second = P::load_word(&w.x);
  };
  const Body load_fence_load = [](Words& w, Outcome& seen) {
    seen.first = P::load_word(&w.y);
    P::fence(true);
    seen.second = P::load_word(&w.x);
  };
  // Message passing needs release and acquire.
  CHECK(outcomes(store_both, load_both) == kAll);
  CHECK(outcomes(store_both, acquire_and_load) == kAll);
  CHECK(outcomes(store_and_release, load_both) == kAll);
  CHECK(outcomes(store_fence_store, load_both) == kAll);
  for (const Body& releases : {store_and_release, store_fence_store}) {
    for (const Body& acquires : {acquire_and_load, load_fence_load}) CHECK(outcomes(releases, acquires) == kInOrder);
  }
  // One word never goes back to an older value, and is never seen in halves. Two words of a vector are independent.
  CHECK(outcomes([](Words& w, Outcome&) { P::store_word(&w.x, 1); },
                 [](Words& w, Outcome& seen) {
                   seen.first = P::load_word(&w.x);
                   seen.second = P::load_word(&w.x);
                 }) == kInOrder);
  CHECK(outcomes([](Words& w, Outcome&) { P::store_word(&w.x, (std::uint64_t{1} << 32U) + 1); },
                 [](Words& w, Outcome& seen) {
                   const std::uint64_t both = P::load_word(&w.x);
                   seen = {both & 0xffffffffU, both >> 32U};
                 }) == std::set<Outcome>{{0, 0}, {1, 1}});
  CHECK(outcomes([](Words& w, Outcome&) { P::store_line(reinterpret_cast<std::uint8_t*>(&w), {1, 1}); },
                 [](Words& w, Outcome& seen) {
                   const Vec both = P::load_line(reinterpret_cast<const std::uint8_t*>(&w));
                   seen = {both.low, both.high};
                 }) == kAll);
  // Store buffering; and load buffering, for which PTX also allows {1, 1}, which this model cannot show.
  CHECK(outcomes(
            [](Words& w, Outcome& seen) {
              P::store_word(&w.x, 1);
              seen.first = P::load_word(&w.y);
            },
            [](Words& w, Outcome& seen) {
              P::store_word(&w.y, 1);
              seen.second = P::load_word(&w.x);
            }) == kAll);
  CHECK(outcomes(
            [](Words& w, Outcome& seen) {
              seen.first = P::load_word(&w.x);
              P::store_read(&w.y, 1, true);
            },
            [](Words& w, Outcome& seen) {
              seen.second = P::load_word(&w.y);
              P::store_read(&w.x, 1, true);
            }) == std::set<Outcome>{{0, 0}, {0, 1}, {1, 0}});
}

TEST_CASE("programs give exact results for all values that loads may return" * doctest::skip(kSkipped)) {
  for (const Protocol protocol : testing::kAllProtocols) {
    // Moved element by element: short chunks, and unaligned ones.
    for (const bool in_place : {false, true}) {
      check_exact(ring_allreduce(2, in_place, protocol), 2, 4096, 7, 200);
      check_exact(ring_allreduce(3, in_place, protocol), 2, 4096, 61, 100);
      check_exact(allpairs_allreduce(2, in_place, protocol), 1, 4096, 61, 100);
      check_exact(allpairs_allreduce(3, in_place, protocol), 2, 4096, 8, 50);
    }
    check_exact(ring_allreduce(4, true, protocol), 2, 4096, 90, 100);
    check_exact(direct_alltoall(2, 3, protocol), 1, 4096, 50, 200);
    check_exact(direct_alltoall(3, 1, protocol), 2, 4096, 33, 50);
    // Whole trips of one warp or both, with a rest, and several tiles.
    check_exact(ring_allreduce(2, false, protocol), 2, 4096, 1288, 50);
    check_exact(ring_allreduce(3, true, protocol), 2, 2048, 2412, 10);
    check_exact(allpairs_allreduce(2, false, protocol), 1, 2048, 1288, 20);
    check_exact(direct_alltoall(2, 2, protocol), 1, 2048, 1288, 20);
    // Programs in which messages order memory.
    for (const bool fused : {false, true}) {
      check_exact(relay(protocol, fused), 1, 4096, 61, 100);
      check_exact(relay(protocol, fused), 2, 2048, 644, 25);
    }
  }
  // Slots in the sender's memory.
  check_exact(ring_allreduce(3, true, Protocol::Pull), 2, 4096, 61, 100);
  check_exact(direct_alltoall(2, 2, Protocol::Pull), 1, 2048, 1288, 20);
  check_exact(relay(Protocol::Pull, true), 1, 4096, 61, 100);
}

TEST_CASE("the flags of LL wrap around" * doctest::skip(kSkipped)) {
  check_exact(ring_allreduce(2, false, Protocol::LL), 2, 2048, 61, 50, (1U << 15U) - 3);
  check_exact(direct_alltoall(2, 2, Protocol::LL), 1, 2048, 700, 20, (1U << 15U) - 2);
}

// Several tiles through one slot.
Setting tight(Protocol protocol) {
  Setting setting;
  setting.slots = 1;
  setting.slot_bytes = 2048;
  setting.count = 700;
  setting.assumptions = needed_by(protocol);
  return setting;
}
constexpr std::uint64_t kMostSeeds = 500;  // one of them must detect the part that is left out

// With `leave_out` there must be an error, and without it, for the same seeds, none.
void check_seen(const std::string& what, const ir::Program& program, const std::function<void(Setting&)>& leave_out) {
  CAPTURE(what);
  CAPTURE(model::name_of(program.protocol));
  Setting setting = tight(program.protocol);
  const auto sound = first_wrong(program, setting, 10);
  CHECK_MESSAGE(!sound.has_value(), sound.value_or(""));
  leave_out(setting);
  CHECK(first_wrong(program, setting, kMostSeeds).has_value());
}
template <class P>
void check_text_seen(const std::string& what, Protocol protocol) {
  CAPTURE(what);
  CAPTURE(model::name_of(protocol));
  CHECK(first_wrong<P>(direct_alltoall(2, 2, protocol), tight(protocol), kMostSeeds).has_value());
}

TEST_CASE("leaving out any ordering is detected" * doctest::skip(kSkipped)) {
  const auto releases = [](Setting& s) { s.mutation.releases = false; };
  const auto acquires = [](Setting& s) { s.mutation.acquires = false; };
  const auto barriers = [](Setting& s) { s.mutation.barriers = false; };
  check_seen("flags without release", direct_alltoall(2, 2, Protocol::Simple), releases);
  check_seen("flags without acquire", direct_alltoall(2, 2, Protocol::Simple), acquires);
  check_seen("flags without the barrier before", direct_alltoall(2, 2, Protocol::Simple), barriers);
  for (const Protocol protocol : testing::kAllProtocols) {
    check_seen("semaphores without release", allpairs_allreduce(2, false, protocol), releases);
    check_seen("semaphores without acquire", allpairs_allreduce(2, false, protocol), acquires);
    check_seen("semaphores without the barrier before", allpairs_allreduce(2, false, protocol), barriers);
  }
  check_text_seen<EarlyCredit<interp::Simple>>("a credit before the slot is read", Protocol::Simple);
  check_text_seen<EarlyCredit<interp::LL>>("a credit before the slot is read", Protocol::LL);
  check_text_seen<EarlyCredit<interp::LL128>>("a credit before the slot is read", Protocol::LL128);
  for (const Protocol protocol : {Protocol::LL, Protocol::LL128}) {
    for (const bool fused : {false, true}) {
      check_seen("messages that order memory without fences", relay(protocol, fused),
                 [](Setting& s) { s.fences = false; });
    }
  }
  check_seen("words of 8 bytes that are torn", direct_alltoall(2, 2, Protocol::LL),
             [](Setting& s) { s.assumptions.word = 4; });
  check_seen("lines of 128 bytes that are torn", direct_alltoall(2, 2, Protocol::LL128),
             [](Setting& s) { s.assumptions.whole_lines = false; });
  check_seen("votes that order no loads", direct_alltoall(2, 2, Protocol::LL128),
             [](Setting& s) { s.assumptions.ordering_votes = false; });
  check_seen("lines that lanes store one by one", direct_alltoall(2, 2, Protocol::LL128),
             [](Setting& s) { s.mutation.converges = false; });
  check_text_seen<OneLook>("no second look after the vote", Protocol::LL128);
}

}  // namespace
}  // namespace weak
}  // namespace gc3::cuda
