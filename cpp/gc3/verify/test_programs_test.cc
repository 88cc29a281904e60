#include "gc3/verify/test_programs.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "gc3/base/errors/verifier.h"
#include "gc3/verify/test_oracle.h"
#include "gc3/verify/verify.h"

namespace gc3::verify::test {

using model::Collective;
using model::CollectiveKind;

Collective collective(CollectiveKind kind, std::uint32_t ranks, std::uint32_t chunks, bool in_place,
                      std::uint32_t root) {
  return Collective::builtin(kind, ranks, chunks, root, in_place).value();
}

namespace {
std::string variant(const std::string& name, bool in_place) { return name + (in_place ? " in place" : ""); }
}  // namespace

ir::Program ring_allreduce(std::uint32_t ranks, std::uint32_t channels, bool in_place, bool fused) {
  const std::uint32_t n = ranks;
  Weaver w(variant(fused ? "ring allreduce" : "unfused ring allreduce", in_place),
           collective(CollectiveKind::allreduce, n, n * channels, in_place));
  if (n == 1) w.copy(0, w.tb(0, kNobody, kNobody), in(0), out(0), channels);
  for (std::uint32_t step = 0; n > 1 && step <= 2 * n - 2; ++step) {
    for (std::uint32_t ch = 0; ch < channels; ++ch) {
      // Each rank receives in this step the data that its predecessor sent in the step before.
      for (std::uint32_t r = 0; r < n; ++r) {
        const std::uint32_t next = (r + 1) % n;
        const std::uint32_t previous = (r + n - 1) % n;
        const std::uint32_t c = ch * n + (r + 2 * n - step) % n;
        const std::uint32_t sender = w.tb(r, next, fused ? previous : kNobody, ch);
        const std::uint32_t receiver = fused ? sender : w.tb(r, kNobody, previous, ch);
        if (step == 0) {
          w.send(r, sender, in(c));
        } else if (step == 2 * n - 2) {
          w.recv(r, receiver, out(c));
        } else if (!fused) {
          if (step < n) w.rrc(r, receiver, in(c), out(c));
          if (step >= n) w.recv(r, receiver, out(c));
          w.send(r, sender, out(c));
        } else if (step < n - 1) {
          w.rrs(r, sender, in(c));
        } else if (step == n - 1) {
          w.rrcs(r, sender, in(c), out(c));
        } else {
          w.rcs(r, sender, out(c));
        }
      }
    }
  }
  return w.finish(2);
}

ir::Program allpairs_allreduce(std::uint32_t ranks, std::uint32_t chunks, bool in_place, std::uint32_t together) {
  Weaver w(variant("all pairs allreduce", in_place),
           collective(CollectiveKind::allreduce, ranks, ranks * chunks, in_place));
  for (std::uint32_t r = 0; r < ranks; ++r) w.scratch(r, ranks * chunks);
  const auto peer_tb = [&](std::uint32_t r, std::uint32_t peer) { return w.tb(r, peer, peer); };
  // Calls move(rank, the k-th rank after it, first chunk of a piece) for all pieces of all pairs.
  const auto all_pairs = [&](const auto& move) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      for (std::uint32_t k = 1; k < ranks; ++k) {
        for (std::uint32_t c = 0; c < chunks; c += together) move(r, (r + k) % ranks, c);
      }
    }
  };
  all_pairs([&](std::uint32_t r, std::uint32_t to, std::uint32_t c) {
    w.send(r, peer_tb(r, to), in(to * chunks + c), together);
  });
  for (std::uint32_t r = 0; r < ranks; ++r) {
    w.copy(r, w.tb(r, kNobody, kNobody), in(r * chunks), out(r * chunks), chunks);
  }
  all_pairs([&](std::uint32_t r, std::uint32_t from, std::uint32_t c) {
    w.recv(r, peer_tb(r, from), sc(from * chunks + c), together);
    w.reduce(r, w.tb(r, kNobody, kNobody), sc(from * chunks + c), out(r * chunks + c), together);
  });
  all_pairs([&](std::uint32_t r, std::uint32_t to, std::uint32_t c) {
    w.send(r, peer_tb(r, to), out(r * chunks + c), together);
  });
  all_pairs([&](std::uint32_t r, std::uint32_t from, std::uint32_t c) {
    w.recv(r, peer_tb(r, from), out(from * chunks + c), together);
  });
  return w.finish(chunks / together);
}

ir::Program direct_alltoall(std::uint32_t ranks, std::uint32_t chunks, bool in_place) {
  Weaver w(variant("direct alltoall", in_place), collective(CollectiveKind::alltoall, ranks, chunks, in_place));
  // In place, received data would overwrite data that has not been sent yet, so it waits in scratch.
  for (std::uint32_t r = 0; in_place && r < ranks; ++r) w.scratch(r, ranks * chunks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    w.copy(r, w.tb(r, kNobody, kNobody), in(r * chunks), out(r * chunks), chunks);
    for (std::uint32_t k = 1; k < ranks; ++k) {
      const std::uint32_t to = (r + k) % ranks;
      w.send(r, w.tb(r, to, kNobody), in(to * chunks), chunks);
    }
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t k = 1; k < ranks; ++k) {
      const std::uint32_t from = (r + k) % ranks;
      const std::uint32_t tb = w.tb(r, kNobody, from);
      if (in_place) {
        w.recv(r, tb, sc(from * chunks), chunks);
        w.copy(r, w.tb(r, kNobody, kNobody), sc(from * chunks), out(from * chunks), chunks);
      } else {
        w.recv(r, tb, out(from * chunks), chunks);
      }
    }
  }
  return w.finish(1);
}

ir::Program two_step_alltoall(std::uint32_t nodes, std::uint32_t gpus) {
  const std::uint32_t ranks = nodes * gpus;
  Weaver w("two-step alltoall", collective(CollectiveKind::alltoall, ranks, 1, false));
  const auto id = [&](std::uint32_t node, std::uint32_t gpu) { return node * gpus + gpu; };
  for (std::uint32_t r = 0; r < ranks; ++r) w.scratch(r, ranks);
  const auto move = [&](std::uint32_t src, Place from, std::uint32_t dst, Place to, std::uint32_t count) {
    if (src == dst) {
      w.copy(src, w.tb(src, kNobody, kNobody), from, to, count);
    } else {
      w.send(src, w.tb(src, dst, kNobody), from, count);
      w.recv(dst, w.tb(dst, kNobody, src), to, count);
    }
  };
  // Within a node, what gpu i has for gpu g of the other nodes goes to gpu g, which sends it on in one piece per node.
  for (std::uint32_t m = 0; m < nodes; ++m) {
    for (std::uint32_t n = 0; n < nodes; ++n) {
      for (std::uint32_t g = 0; g < gpus; ++g) {
        for (std::uint32_t i = 0; i < gpus; ++i) {
          const Place to = m == n ? out(id(n, i)) : sc(id(m, i));
          move(id(n, i), in(id(m, g)), id(n, g), to, 1);
        }
        if (m != n) move(id(n, g), sc(id(m, 0)), id(m, g), out(id(n, 0)), gpus);
      }
    }
  }
  return w.finish(1);
}

ir::Program chain_broadcast(std::uint32_t ranks, std::uint32_t chunks, std::uint32_t channels, bool in_place) {
  Weaver w(variant("chain broadcast", in_place), collective(CollectiveKind::broadcast, ranks, chunks, in_place));
  for (std::uint32_t c = 0; c < chunks; ++c) {
    const std::uint32_t ch = c % channels;
    w.copy(0, w.tb(0, kNobody, kNobody), in(c), out(c));
    for (std::uint32_t r = 0; r < ranks && ranks > 1; ++r) {
      const std::uint32_t tb = w.tb(r, r + 1 < ranks ? r + 1 : kNobody, r > 0 ? r - 1 : kNobody, ch);
      if (r == 0) {
        w.send(r, tb, in(c));
      } else if (r + 1 < ranks) {
        w.rcs(r, tb, out(c));
      } else {
        w.recv(r, tb, out(c));
      }
    }
  }
  return w.finish(1);
}

ir::Program chain_reduce(std::uint32_t ranks, std::uint32_t chunks, std::uint32_t channels, bool in_place) {
  Weaver w(variant("chain reduce", in_place), collective(CollectiveKind::reduce, ranks, chunks, in_place));
  for (std::uint32_t c = 0; c < chunks; ++c) {
    for (std::uint32_t r = ranks; r-- > 0;) {
      const std::uint32_t tb = w.tb(r, r > 0 ? r - 1 : kNobody, r + 1 < ranks ? r + 1 : kNobody, c % channels);
      if (ranks == 1) {
        w.copy(r, tb, in(c), out(c));
      } else if (r + 1 == ranks) {
        w.send(r, tb, in(c));
      } else if (r > 0) {
        w.rrs(r, tb, in(c));
      } else {
        w.rrc(r, tb, in(c), out(c));
      }
    }
  }
  return w.finish(1);
}

ir::Program round_trip_allreduce(std::uint32_t ranks, std::uint32_t chunks) {
  Weaver w("round trip allreduce in place", collective(CollectiveKind::allreduce, ranks, chunks, true));
  const std::uint32_t last = ranks - 1;
  for (std::uint32_t c = 0; c < chunks; ++c) {
    w.synchronise(false);
    w.send(0, w.tb(0, 1, kNobody), in(c));
    for (std::uint32_t r = 1; r < last; ++r) w.rrs(r, w.tb(r, r + 1, r - 1), in(c));
    w.synchronise(true);  // where the chunk turns back
    w.rrc(last, w.tb(last, kNobody, last - 1), in(c), out(c));
    w.send(last, w.tb(last, 0, kNobody, 1), out(c));
    w.synchronise(false);
    w.rcs(0, w.tb(0, 1, last, 1), out(c));
    for (std::uint32_t r = 1; r + 1 < last; ++r) w.rcs(r, w.tb(r, r + 1, r - 1, 1), out(c));
    if (last > 1) w.recv(last - 1, w.tb(last - 1, kNobody, last - 2, 1), out(c));
  }
  return w.finish(1);
}

ir::Program there_and_back(std::uint32_t shift, bool waits) {
  Weaver w("there and back", collective(CollectiveKind::alltonext, 2, 2, false));
  w.scratch(0, 3);
  w.scratch(1, 2);
  w.send(0, w.tb(0, 1, kNobody, 1), in(0), 2);
  w.recv(1, w.tb(1, kNobody, 0, 1), out(0), 2);
  w.copy(0, w.tb(0, 1, kNobody), in(0), sc(0), 2);
  w.send(0, w.tb(0, 1, kNobody), sc(0), 2);
  w.rcs(1, w.tb(1, 0, 0), sc(0), 2);
  w.synchronise(waits);
  w.recv(0, w.tb(0, kNobody, 1), sc(shift), 2);
  return w.finish(1);
}

ir::Program burst_alltoall(std::uint32_t chunks) {
  Weaver w("burst alltoall", collective(CollectiveKind::alltoall, 2, chunks, false));
  for (std::uint32_t r = 0; r < 2; ++r) {
    w.copy(r, w.tb(r, kNobody, kNobody), in(r * chunks), out(r * chunks), chunks);
    for (std::uint32_t c = 0; c < chunks; ++c) w.send(r, w.tb(r, 1 - r, 1 - r), in((1 - r) * chunks + c));
  }
  for (std::uint32_t r = 0; r < 2; ++r) {
    for (std::uint32_t c = 0; c < chunks; ++c) w.recv(r, w.tb(r, 1 - r, 1 - r), out((1 - r) * chunks + c));
  }
  return w.finish(chunks);
}

namespace {

// The collective with `computed` as its postcondition, out of place.
Collective collective_of(std::uint32_t ranks, std::uint32_t chunks,
                         const std::vector<std::vector<Multiset>>& computed) {
  model::CustomCollective data;
  data.name = "random";
  data.input_chunks.assign(ranks, chunks);
  data.output_chunks.assign(ranks, chunks);
  data.alias.resize(ranks);
  data.begin.push_back(0);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t i = 0; i < chunks; ++i) {
      if (!computed.empty()) {
        for (const auto& [chunk, times] : computed[r][i]) data.terms.insert(data.terms.end(), times, chunk);
      }
      data.begin.push_back(data.terms.size());
    }
  }
  return Collective::custom(std::move(data), ranks, 1, false).value();
}

// Chooses operands for random_program: reads only written chunks, and does not write the input.
class RandomPlaces {
 public:
  RandomPlaces(std::uint32_t ranks, std::uint32_t chunks, std::mt19937_64& random)
      : chunks_(chunks), random_(random), written_(ranks, std::vector<bool>(std::size_t{3} * chunks)) {
    for (auto& row : written_) std::fill_n(row.begin(), chunks, true);
  }
  Place source(std::uint32_t rank, std::uint32_t count) {
    while (true) {
      const Place p{static_cast<Buffer>(random_() % 3), start(count)};
      const auto first = written_[rank].begin() + slot(p);
      if (std::all_of(first, first + count, [](bool w) { return w; })) return p;
    }
  }
  Place target(std::uint32_t rank, std::uint32_t count) {
    const Place p{random_() % 2 == 0 ? Buffer::output : Buffer::scratch, start(count)};
    mark(rank, p, count);
    return p;
  }
  void mark(std::uint32_t rank, Place p, std::uint32_t count) {
    std::fill_n(written_[rank].begin() + slot(p), count, true);
  }

 private:
  std::uint32_t start(std::uint32_t count) { return static_cast<std::uint32_t>(random_() % (chunks_ - count + 1)); }
  std::ptrdiff_t slot(Place p) const { return static_cast<std::ptrdiff_t>(p.buffer) * chunks_ + p.index; }

  std::uint32_t chunks_;
  std::mt19937_64& random_;
  std::vector<std::vector<bool>> written_;
};

// Equal ranges do not conflict: each chunk is read before it is written.
bool clash(Place a, Place b, std::uint32_t count) {
  return a.buffer == b.buffer && a.index != b.index && a.index < b.index + count && b.index < a.index + count;
}

}  // namespace

ir::Program random_program(std::mt19937_64& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::uint32_t ranks = 2 + below(3);
  const std::uint32_t chunks = 2 + below(3);
  Weaver w("random program", collective_of(ranks, chunks, {}));
  for (std::uint32_t r = 0; r < ranks; ++r) w.scratch(r, chunks);
  RandomPlaces places(ranks, chunks, random);
  const std::uint32_t moves = 8 + below(10);
  for (std::uint32_t k = 0; k < moves; ++k) {
    const std::uint32_t count = 1 + below(2);
    const std::uint32_t first = below(ranks);
    const Place from = places.source(first, count);
    const std::uint32_t hops = below(3);
    if (hops == 0) {
      const std::uint32_t local = w.tb(first, kNobody, kNobody, 0, below(2));
      const Place other = places.source(first, count);
      if (from == other || clash(from, other, count)) continue;
      if (below(2) == 0 && other.buffer != Buffer::input) {
        w.reduce(first, local, from, other, count);
      } else if (from.buffer != Buffer::output) {
        const Place to{Buffer::output, other.index};
        places.mark(first, to, count);
        w.copy(first, local, from, to, count);
      }
      continue;
    }
    const std::uint32_t second = (first + 1 + below(ranks - 1)) % ranks;
    if (hops == 1) {
      const std::uint32_t channel = below(2);
      w.send(first, w.tb(first, second, kNobody, channel), from, count);
      const std::uint32_t end = w.tb(second, kNobody, first, channel);
      const Place operand = places.source(second, count);
      const Place to = places.target(second, count);
      if (below(2) == 0 || clash(operand, to, count)) {
        w.recv(second, end, to, count);
      } else {
        w.rrc(second, end, operand, to, count);
      }
      continue;
    }
    const std::uint32_t third = (second + 1 + below(ranks - 1)) % ranks;
    // A channel for each pair of first and last rank, so that every connection has one threadblock at each end.
    const std::uint32_t channel = 2 + first * ranks + third;
    const std::uint32_t middle = w.tb(second, third, first, channel);
    w.send(first, w.tb(first, second, kNobody, channel), from, count);
    const Place operand = places.source(second, count);
    const std::uint32_t kind = below(3);
    if (kind == 0) {
      w.rrs(second, middle, operand, count);
    } else if (const Place to = places.target(second, count); kind == 1 || clash(operand, to, count)) {
      w.rcs(second, middle, to, count);
    } else {
      w.rrcs(second, middle, operand, to, count);
    }
    w.recv(third, w.tb(third, kNobody, second, channel), places.target(third, count), count);
  }
  ir::Program program = w.finish(1);
  program.collective = collective_of(ranks, chunks, computed(program));
  return program;
}

std::vector<ir::Program> small_programs() {
  std::vector<ir::Program> all;
  for (const bool in_place : {false, true}) {
    for (const bool fused : {false, true}) {
      all.push_back(ring_allreduce(1, 1, in_place, fused));
      all.push_back(ring_allreduce(2, 2, in_place, fused));
      all.push_back(ring_allreduce(3, 2, in_place, fused));
      all.push_back(ring_allreduce(4, 1, in_place, fused));
    }
    all.push_back(allpairs_allreduce(2, 1, in_place, 1));
    all.push_back(allpairs_allreduce(3, 2, in_place, 2));
    all.push_back(allpairs_allreduce(3, 2, in_place, 1));
    all.push_back(allpairs_allreduce(4, 1, in_place, 1));
    all.push_back(direct_alltoall(3, 1, in_place));
    all.push_back(direct_alltoall(4, 2, in_place));
    all.push_back(chain_broadcast(4, 5, 2, in_place));
    all.push_back(chain_reduce(4, 4, 2, in_place));
  }
  all.push_back(two_step_alltoall(2, 2));
  all.push_back(two_step_alltoall(2, 3));
  all.push_back(two_step_alltoall(3, 2));
  all.push_back(round_trip_allreduce(3, 2));
  all.push_back(round_trip_allreduce(4, 3));
  all.push_back(there_and_back(0, false));
  all.push_back(there_and_back(1, true));
  all.push_back(burst_alltoall(4));
  all.push_back(burst_alltoall(7));
  std::mt19937_64 random(20240607);
  for (int k = 0; k < 24; ++k) all.push_back(random_program(random));
  for (ir::Program& p : all) p.slots = smallest_slots(p);
  return all;
}

TEST_CASE("correct programs are accepted for every number of slots from the smallest on") {
  std::mt19937_64 random(3);
  for (const ir::Program& p : small_programs()) {
    CAPTURE(p.name);
    REQUIRE(p.slots > 0);
    CHECK(broken_rule(p) == "");
    CHECK_FALSE(has_race(p));
    for (std::uint32_t slots = 1; slots <= 8; ++slots) {
      CAPTURE(slots);
      const Report report = verify(p, {.slots = slots});
      CHECK(report.slots == slots);
      if (slots >= p.slots) {
        CHECK_MESSAGE(report.ok(), (report.ok() ? "" : report.diagnostics[0].str()));
        const Outcome outcome = simulate(p, slots, random);
        CHECK_FALSE(outcome.deadlock);
        CHECK(outcome.wrong == "");
      } else {
        REQUIRE(report.diagnostics.size() == 1);
        CHECK(report.diagnostics[0].code == ErrorCode::SlotDeadlock);
        CHECK(report.diagnostics[0].notes.back().text ==
              "the smallest number that works is " + std::to_string(p.slots));
      }
    }
  }
}

TEST_CASE("correct programs of many sizes are accepted") {
  for (std::uint32_t n = 1; n <= 17; n += n < 9 ? 1 : 8) {
    CAPTURE(n);
    for (const bool in_place : {false, true}) {
      CAPTURE(in_place);
      CHECK(verify(ring_allreduce(n, 3, in_place, true), {.slots = 4}).ok());
      CHECK(verify(ring_allreduce(n, 3, in_place, false), {.slots = 4}).ok());
      CHECK(verify(allpairs_allreduce(n, 3, in_place, 3)).ok());
      CHECK(verify(direct_alltoall(n, 3, in_place)).ok());
      CHECK(verify(chain_broadcast(n, 7, 3, in_place)).ok());
      CHECK(verify(chain_reduce(n, 7, 3, in_place)).ok());
    }
    CHECK(verify(two_step_alltoall(n, 2)).ok());
    CHECK(verify(two_step_alltoall(2, n)).ok());
  }
}

}  // namespace gc3::verify::test
