#include "gc3/ir/test_programs.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace {

std::atomic<std::size_t> largest{0};

void* allocate_or_null(std::size_t size) {
  std::size_t seen = largest.load(std::memory_order_relaxed);
  while (size > seen && !largest.compare_exchange_weak(seen, size, std::memory_order_relaxed)) {
  }
  return std::malloc(size == 0 ? 1 : size);
}

void* allocate(std::size_t size) {
  if (void* p = allocate_or_null(size)) return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
// The standard library takes its temporary buffers (stable_sort) from these operators, so they must match.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate_or_null(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate_or_null(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace gc3::ir::testing {
namespace {

model::Collective random_custom(Random& random, std::uint32_t ranks, bool in_place) {
  model::CustomCollective data;
  data.name = "a \"custom\" one";
  const std::uint32_t chunks = 1 + random.below(2);
  data.begin = {0};
  for (std::uint32_t r = 0; r < ranks; ++r) {
    data.input_chunks.push_back(2 * chunks);
    data.output_chunks.push_back(chunks * (1 + random.below(3)));
    const bool aliased = in_place && random.below(2) == 0;
    const std::int64_t offset = data.output_chunks[r] <= data.input_chunks[r] ? 0 : -1;
    data.alias.push_back(aliased ? std::optional(offset) : std::nullopt);
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint32_t i = 0; i < data.output_chunks[r]; ++i) {
      for (std::uint32_t t = random.below(3); t > 0; --t) {
        data.terms.push_back({random.below(ranks), chunks * random.below(2) + i % chunks});
      }
      data.begin.push_back(data.terms.size());
    }
  }
  auto made = model::Collective::custom(std::move(data), ranks, chunks, in_place);
  REQUIRE(made.ok());
  return std::move(made).value();
}

model::Collective random_collective(Random& random, std::uint32_t ranks) {
  const auto kind = static_cast<model::CollectiveKind>(random.below(model::kCollectiveNames.size()));
  const bool in_place = random.below(2) == 0;
  const std::uint32_t split = 1 + random.below(3);
  if (kind == model::CollectiveKind::custom) return random_custom(random, ranks, in_place).split_chunks(split);
  auto made = model::Collective::builtin(kind, ranks, 1 + random.below(4), random.below(ranks), in_place);
  REQUIRE(made.ok());
  return made.value().split_chunks(split);
}

Instruction random_step(Random& random) {
  Instruction step;
  step.opcode = static_cast<Opcode>(random.below(kOpcodeCount - 1));  // apply, the last one, needs tensors
  const OpcodeInfo& op = info(step.opcode);
  step.has_dependents = static_cast<std::uint8_t>(random.below(2));
  if (op.reads_local) {
    step.src_buffer = static_cast<model::Buffer>(random.below(3));
    step.src_chunk = random.below(5);
  }
  if (op.writes_local) {
    step.dst_buffer = static_cast<model::Buffer>(random.below(3));
    step.dst_chunk = random.below(0xffffffffU);
  }
  step.count = random.below(3);
  return step;
}

}  // namespace

Program two_ranks() {
  constexpr auto kOut = model::Buffer::output;
  Builder b;
  for (std::uint32_t r = 0; r < 2; ++r) {
    b.rank(1);
    b.threadblock(1 - r, 1 - r, 0);
    b.step({.opcode = Opcode::send, .src_buffer = kOut, .src_chunk = r, .count = 1});
    b.step({.opcode = Opcode::recv, .dst_buffer = model::Buffer::scratch, .has_dependents = 1, .count = 2});
    b.threadblock(kNoRank, kNoRank, 0);
    const std::vector<Dependency> deps = {{0, 1}};
    b.step({.opcode = Opcode::reduce,
            .src_buffer = model::Buffer::scratch,
            .dst_buffer = kOut,
            .dst_chunk = 1,
            .count = 1},
           deps);
  }
  Program p = std::move(b.program());
  p.name = "ring";
  p.collective = model::Collective::builtin(model::CollectiveKind::allreduce, 2, 2, 0, true).value();
  return p;
}

Program random_program(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t ranks = 1 + random.below(5);
  Builder b;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.rank(random.below(3));
    for (std::uint32_t t = random.below(4); t > 0; --t) {
      b.threadblock(random.below(3) == 0 ? kNoRank : random.below(ranks), random.below(3) == 0 ? kNoRank : r,
                    random.below(3));
      for (std::uint32_t s = random.below(6); s > 0; --s) {
        std::vector<Dependency> deps(random.below(3));
        for (Dependency& d : deps) d = {random.below(4), random.below(7)};
        b.step(random_step(random), deps);
      }
    }
  }
  Program p = std::move(b.program());
  const std::vector<std::string> names = {"",          "plain", "two words", "q\"uo\\te", std::string("\n\0\x7f", 3),
                                          "# \xc3\xa9"};
  p.name = names[random.below(names.size())];
  p.collective = random_collective(random, ranks);
  p.protocol = static_cast<model::Protocol>(random.below(3));
  p.instances = random.below(9);
  p.slots = random.below(9);
  return p;
}

Program random_coherent(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t ranks = 2 + random.below(3);
  Builder b;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    b.rank(4);
    const std::uint32_t tbs = 1 + random.below(3);
    std::vector<std::uint32_t> steps(tbs);
    for (auto& s : steps) s = random.below(5);
    for (std::uint32_t t = 0; t < tbs; ++t) {
      b.threadblock((r + 1) % ranks, (r + ranks - 1) % ranks, t);
      for (std::uint32_t s = 0; s < steps[t]; ++s) {
        Instruction i;
        i.opcode = static_cast<Opcode>(1 + random.below(kOpcodeCount - 2));
        i.count = 1 + random.below(2);
        if (info(i.opcode).reads_local) i.src_buffer = model::Buffer::scratch;
        if (info(i.opcode).reads_local) i.src_chunk = random.below(3);
        if (info(i.opcode).writes_local) i.dst_buffer = model::Buffer::scratch;
        if (info(i.opcode).writes_local) i.dst_chunk = random.below(3);
        std::vector<Dependency> deps;
        for (std::uint32_t d = random.below(4); d > 0; --d) {
          const std::uint32_t on = random.below(tbs);
          if (steps[on] != 0) deps.push_back({on, random.below(steps[on])});
        }
        b.step(i, deps);
      }
    }
  }
  Program p = std::move(b.program());
  for (const RankProgram& r : p.ranks) {
    for (std::uint32_t t = r.first_tb; t < r.first_tb + r.tb_count; ++t) {
      for (const Instruction& i : p.steps(p.threadblocks[t])) {
        for (const Dependency& d : p.deps(i)) {
          p.instructions[p.threadblocks[r.first_tb + d.tb].first_instruction + d.step].has_dependents = 1;
        }
      }
    }
  }
  p.name = random.below(2) == 0 ? "plain" : "<\"&'\n\t\xc3\xa9>";
  const auto kind = static_cast<model::CollectiveKind>(random.below(8));  // all names that both dialects have
  p.collective = model::Collective::builtin(kind, ranks, 1 + random.below(3), random.below(ranks), random.below(2) == 0)
                     .value()
                     .split_chunks(1 + random.below(2));
  p.protocol = static_cast<model::Protocol>(random.below(3));
  p.instances = 1 + random.below(3);
  p.slots = 1 + random.below(9);
  return p;
}

void reset_largest_allocation() { largest.store(0, std::memory_order_relaxed); }
std::size_t largest_allocation() { return largest.load(std::memory_order_relaxed); }

}  // namespace gc3::ir::testing
