// Correct programs with random damage: the verifier must reject exactly the mutants that the oracle rejects.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/verifier.h"
#include "gc3/ir/text.h"
#include "gc3/verify/test_oracle.h"
#include "gc3/verify/test_programs.h"
#include "gc3/verify/verify.h"

namespace gc3::verify::test {
namespace {

// Under a sanitizer a share: the oracle, which is slow there, is right if it is right without.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

using ir::Dependency;
using ir::Instruction;
using ir::Opcode;
using ir::Program;

// A program being damaged. A mutation returns false if the program has nothing that it applies to.
class Mutant {
 public:
  Mutant(Program program, std::mt19937_64& random) : p_(std::move(program)), random_(random) {}
  const Program& program() const { return p_; }

  bool drop_dependency() {
    Instruction* i = pick([](const Instruction& x) { return x.dep_count > 0; });
    if (i == nullptr) return false;
    std::swap(p_.dependencies[i->dep_begin + below(i->dep_count)], p_.dependencies[i->dep_begin + i->dep_count - 1]);
    --i->dep_count;
    return true;
  }
  bool move_dependency() {
    Instruction* i = pick([](const Instruction& x) { return x.dep_count > 0; });
    if (i == nullptr) return false;
    const ir::RankProgram& rank = p_.ranks[rank_of(*i)];
    Dependency& d = p_.dependencies[i->dep_begin + below(i->dep_count)];
    if (below(4) == 0) d.tb = below(rank.tb_count);
    const ir::Threadblock& tb = p_.threadblocks[rank.first_tb + d.tb];
    d.step = below(std::max(1U, tb.instruction_count));
    if (d.step < tb.instruction_count) p_.instructions[tb.first_instruction + d.step].has_dependents = 1;
    return true;
  }
  bool add_dependency() {
    Instruction* i = pick([](const Instruction&) { return true; });
    const ir::RankProgram& rank = p_.ranks[rank_of(*i)];
    const std::uint32_t t = below(rank.tb_count);
    const ir::Threadblock& tb = p_.threadblocks[rank.first_tb + t];
    if (tb.instruction_count == 0) return false;
    const Dependency d{t, below(tb.instruction_count)};
    p_.instructions[tb.first_instruction + d.step].has_dependents = 1;
    // The dependencies of a step are consecutive, so the table is rebuilt.
    std::vector<Dependency> table;
    for (Instruction& x : p_.instructions) {
      const auto old = p_.deps(x);
      const auto begin = static_cast<std::uint32_t>(table.size());
      table.insert(table.end(), old.begin(), old.end());
      if (&x == i) table.push_back(d);
      x.dep_begin = begin;
      x.dep_count = static_cast<std::uint32_t>(table.size()) - begin;
    }
    p_.dependencies = std::move(table);
    return true;
  }
  bool unmark_dependents() {
    Instruction* i = pick([](const Instruction& x) { return x.has_dependents != 0; });
    if (i == nullptr) return false;
    i->has_dependents = 0;
    return true;
  }
  bool mark_dependents() {
    Instruction* i = pick([](const Instruction& x) { return x.has_dependents == 0; });
    if (i == nullptr) return false;
    i->has_dependents = 1;
    return true;
  }
  bool swap_neighbours() { return swap_steps(1); }
  bool swap_distant() { return swap_steps(2 + below(4)); }
  bool redirect_peer() {
    ir::Threadblock& tb = p_.threadblocks[below(static_cast<std::uint32_t>(p_.threadblocks.size()))];
    std::uint32_t& peer = below(2) == 0 ? tb.send_peer : tb.recv_peer;
    peer = below(static_cast<std::uint32_t>(p_.ranks.size()));
    return true;
  }
  // Two threadblocks of a rank exchange their receive (send) peers, or all that they are connected to.
  bool exchange_peers() {
    const ir::RankProgram& rank = p_.ranks[below(static_cast<std::uint32_t>(p_.ranks.size()))];
    if (rank.tb_count < 2) return false;
    ir::Threadblock& a = p_.threadblocks[rank.first_tb + below(rank.tb_count)];
    ir::Threadblock& b = p_.threadblocks[rank.first_tb + below(rank.tb_count)];
    const std::uint32_t what = below(3);
    if (what != 0) std::swap(a.send_peer, b.send_peer);
    if (what != 1) std::swap(a.recv_peer, b.recv_peer);
    if (what == 2) std::swap(a.channel, b.channel);
    return true;
  }
  bool change_channel() {
    p_.threadblocks[below(static_cast<std::uint32_t>(p_.threadblocks.size()))].channel = below(3);
    return true;
  }
  bool change_source() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).reads_local; });
    if (i == nullptr) return false;
    i->src_chunk = near(i->src_chunk);
    return true;
  }
  bool change_destination() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).writes_local; });
    if (i == nullptr) return false;
    i->dst_chunk = near(i->dst_chunk);
    return true;
  }
  bool change_buffer() {
    Instruction* i = pick([](const Instruction& x) { return x.opcode != Opcode::nop; });
    if (i == nullptr) return false;
    const ir::OpcodeInfo& op = ir::info(i->opcode);
    const bool source = op.reads_local && (!op.writes_local || below(2) == 0);
    (source ? i->src_buffer : i->dst_buffer) = static_cast<Buffer>(below(3));
    return true;
  }
  bool change_count() {
    Instruction* i = pick([](const Instruction& x) { return x.opcode != Opcode::nop; });
    if (i == nullptr) return false;
    i->count = below(2) == 0 ? i->count + 1 : i->count - 1;
    return true;
  }
  // The same change at both ends of a message, so that it still matches.
  bool change_message_count() {
    const auto [send, recv] = pick_message();
    if (send == nullptr) return false;
    const std::uint32_t count = send->count == 1 || below(2) == 0 ? send->count + 1 : send->count - 1;
    send->count = count;
    recv->count = count;
    return true;
  }
  bool drop_send() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).sends; });
    if (i == nullptr) return false;
    without_send(*i);
    return true;
  }
  bool drop_receive() {
    Instruction* i = pick([](const Instruction& x) { return ir::info(x.opcode).receives; });
    if (i == nullptr) return false;
    without_receive(*i);
    return true;
  }
  bool drop_message() {
    const auto [send, recv] = pick_message();
    if (send == nullptr) return false;
    without_send(*send);
    without_receive(*recv);
    return true;
  }
  bool drop_step() {
    Instruction* i =
        pick([](const Instruction& x) { return !ir::info(x.opcode).sends && !ir::info(x.opcode).receives; });
    if (i == nullptr) return false;
    to_nop(*i);
    return true;
  }
  bool change_opcode() {
    Instruction* i = pick([](const Instruction&) { return true; });
    i->opcode = static_cast<Opcode>(below(static_cast<std::uint32_t>(ir::kOpcodeCount)));
    return true;
  }
  // Changes the step to an opcode with the same receives and sends.
  bool change_to_kin() {
    Instruction* i = pick([](const Instruction& x) { return x.opcode != Opcode::nop && x.opcode != Opcode::send; });
    if (i == nullptr) return false;
    const ir::OpcodeInfo& old = ir::info(i->opcode);
    while (true) {
      const auto opcode = static_cast<Opcode>(1 + below(static_cast<std::uint32_t>(ir::kOpcodeCount) - 1));
      const ir::OpcodeInfo& op = ir::info(opcode);
      if (opcode == i->opcode || op.receives != old.receives || op.sends != old.sends) continue;
      i->opcode = opcode;
      return true;
    }
  }
  bool lower_slots() {
    if (p_.slots == 0) return false;
    p_.slots = p_.slots > 1 ? 1 + below(p_.slots - 1) : 0;
    return true;
  }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::uint32_t near(std::uint32_t chunk) {
    return below(3) == 0 ? below(8) : below(2) == 0 || chunk == 0 ? chunk + 1 : chunk - 1;
  }

  template <class Wanted>
  Instruction* pick(Wanted wanted) {
    std::vector<Instruction*> all;
    for (Instruction& i : p_.instructions) {
      if (wanted(i)) all.push_back(&i);
    }
    return all.empty() ? nullptr : all[below(static_cast<std::uint32_t>(all.size()))];
  }
  std::uint32_t tb_of(const Instruction& i) const {
    const auto id = static_cast<std::uint32_t>(&i - p_.instructions.data());
    std::uint32_t t = 0;
    while (id < p_.threadblocks[t].first_instruction ||
           id >= p_.threadblocks[t].first_instruction + p_.threadblocks[t].instruction_count) {
      ++t;
    }
    return t;
  }
  std::uint32_t rank_of(const Instruction& i) const {
    const std::uint32_t t = tb_of(i);
    std::uint32_t r = 0;
    while (t < p_.ranks[r].first_tb || t >= p_.ranks[r].first_tb + p_.ranks[r].tb_count) ++r;
    return r;
  }

  // Removes a send and its receive.
  std::pair<Instruction*, Instruction*> pick_message() {
    Instruction* send = pick([](const Instruction& x) { return ir::info(x.opcode).sends; });
    if (send == nullptr) return {nullptr, nullptr};
    const std::uint32_t rank = rank_of(*send);
    const ir::Threadblock& from = p_.threadblocks[tb_of(*send)];
    std::uint32_t skip = 0;
    for (const Instruction* x = &p_.instructions[from.first_instruction]; x != send; ++x) {
      if (ir::info(x->opcode).sends) ++skip;
    }
    if (from.send_peer >= p_.ranks.size()) return {nullptr, nullptr};
    for (const ir::Threadblock& to : p_.tbs(from.send_peer)) {
      if (to.recv_peer != rank || to.channel != from.channel) continue;
      for (std::uint32_t k = 0; k < to.instruction_count; ++k) {
        Instruction& x = p_.instructions[to.first_instruction + k];
        if (ir::info(x.opcode).receives && skip-- == 0) return {send, &x};
      }
    }
    return {nullptr, nullptr};
  }

  static void to_nop(Instruction& i) {
    i.opcode = Opcode::nop;
    i.count = 0;
  }
  // The rest of a step without its send or receive. If it stored no data, it now stores it at its operand.
  static void without_send(Instruction& i) {
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    if (!op.receives) return to_nop(i);
    if (!op.writes_local) {
      i.dst_buffer = i.src_buffer;
      i.dst_chunk = i.src_chunk;
    }
    i.opcode = op.reduces ? Opcode::recv_reduce_copy : Opcode::recv;
  }
  static void without_receive(Instruction& i) {
    const ir::OpcodeInfo& op = ir::info(i.opcode);
    if (!op.reads_local && !op.sends) return to_nop(i);
    if (!op.reads_local) {
      i.src_buffer = i.dst_buffer;
      i.src_chunk = i.dst_chunk;
    }
    i.opcode = op.sends ? Opcode::send : Opcode::copy;
  }

  // Exchanges operands and dependencies; dependents of either step wait for the step that is now there.
  bool swap_steps(std::uint32_t apart) {
    const ir::Threadblock& tb = p_.threadblocks[below(static_cast<std::uint32_t>(p_.threadblocks.size()))];
    if (tb.instruction_count <= apart) return false;
    Instruction& a = p_.instructions[tb.first_instruction + below(tb.instruction_count - apart)];
    Instruction& b = *(&a + apart);
    std::swap(a, b);
    std::swap(a.has_dependents, b.has_dependents);
    return true;
  }

  Program p_;
  std::mt19937_64& random_;
};

struct Mutation {
  const char* name;
  bool (Mutant::*apply)();
};
constexpr Mutation kMutations[] = {
    {"drop a dependency", &Mutant::drop_dependency},
    {"move a dependency", &Mutant::move_dependency},
    {"add a dependency", &Mutant::add_dependency},
    {"unmark an awaited step", &Mutant::unmark_dependents},
    {"mark a step nobody awaits", &Mutant::mark_dependents},
    {"swap neighbouring steps", &Mutant::swap_neighbours},
    {"swap distant steps", &Mutant::swap_distant},
    {"redirect a peer", &Mutant::redirect_peer},
    {"exchange peers", &Mutant::exchange_peers},
    {"change a channel", &Mutant::change_channel},
    {"change a source chunk", &Mutant::change_source},
    {"change a destination chunk", &Mutant::change_destination},
    {"change a buffer", &Mutant::change_buffer},
    {"change a count", &Mutant::change_count},
    {"change a message's count", &Mutant::change_message_count},
    {"drop a send", &Mutant::drop_send},
    {"drop a receive", &Mutant::drop_receive},
    {"drop a message", &Mutant::drop_message},
    {"drop a local step", &Mutant::drop_step},
    {"change an opcode", &Mutant::change_opcode},
    {"change to a similar opcode", &Mutant::change_to_kin},
    {"lower the slots", &Mutant::lower_slots},
};

bool writes_read_only(const Program& p) {
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    for (const ir::Threadblock& tb : p.tbs(r)) {
      for (const Instruction& i : p.steps(tb)) {
        const bool writes = ir::info(i.opcode).writes_local && i.count > 0;
        if (writes && !p.collective.writable(r, {i.dst_buffer, i.dst_chunk})) return true;
      }
    }
  }
  return false;
}

// The codes that the first finding may have; none if the program is correct. Exact, not sampled: without races and
// deadlocks all schedules compute the same.
std::vector<ErrorId> verdict(const Program& p, std::mt19937_64& random) {
  if (!broken_rule(p).empty()) {
    return {ErrorCode::BadStructure, ErrorCode::SharedConnection, ErrorCode::UnmatchedTransfer,
            ErrorCode::InputOverwritten};
  }
  if (writes_read_only(p)) return {ErrorCode::InputOverwritten};
  if (simulate(p, static_cast<std::uint32_t>(p.instructions.size()) + 1, random).deadlock) {
    return {ErrorCode::OrderDeadlock};
  }
  if (simulate(p, p.slots, random).deadlock) return {ErrorCode::SlotDeadlock};
  if (has_race(p)) return {ErrorCode::DataRace};
  if (!simulate(p, p.slots, random).wrong.empty()) return {ErrorCode::UninitializedRead, ErrorCode::WrongResult};
  return {};
}

struct Tally {
  int mutants = 0;
  int accepted = 0;
  std::map<ErrorId, int> rejected;
};

void print(const std::map<std::string, Tally>& by_mutation) {
  constexpr ErrorId kShown[] = {ErrorCode::BadStructure,     ErrorCode::UnmatchedTransfer, ErrorCode::SharedConnection,
                                ErrorCode::InputOverwritten, ErrorCode::OrderDeadlock,     ErrorCode::SlotDeadlock,
                                ErrorCode::DataRace,         ErrorCode::UninitializedRead, ErrorCode::WrongResult};
  std::printf("%-28s %8s %9s", "mutation", "mutants", "accepted");
  for (const ErrorId code : kShown) std::printf(" %s", error_info(code).code.data());
  std::printf("\n");
  Tally all;
  const auto line = [&](const std::string& name, const Tally& t) {
    std::printf("%-28s %8d %9d", name.c_str(), t.mutants, t.accepted);
    for (const ErrorId code : kShown) std::printf(" %8d", t.rejected.contains(code) ? t.rejected.at(code) : 0);
    std::printf("\n");
  };
  for (const auto& [name, t] : by_mutation) {
    line(name, t);
    all.mutants += t.mutants;
    all.accepted += t.accepted;
    for (const auto& [code, n] : t.rejected) all.rejected[code] += n;
  }
  line("all", all);
}

// Compares the verifier's answer with the oracle's.
void judge(const Program& mutant, Tally& tally, std::mt19937_64& random) {
  constexpr int kSchedules = kSanitized ? 2 : 16;
  const Report report = verify(mutant);
  ++tally.mutants;
  if (report.ok()) {
    ++tally.accepted;
    REQUIRE(broken_rule(mutant) == "");
    CHECK_FALSE(has_race(mutant));
    for (int k = 0; k < kSchedules; ++k) {
      const Outcome outcome = simulate(mutant, mutant.slots, random);
      CHECK_FALSE(outcome.deadlock);
      CHECK(outcome.wrong == "");
    }
    CHECK(verdict(mutant, random).empty());
    return;
  }
  const Diagnostic& first = report.diagnostics.front();
  ++tally.rejected[first.code];
  CAPTURE(first.str());
  const std::vector<ErrorId> allowed = verdict(mutant, random);
  CHECK_MESSAGE(!allowed.empty(), "a correct mutant is rejected");
  CHECK_MESSAGE(std::ranges::find(allowed, first.code) != allowed.end(), "rejected for another reason than the oracle");
}

// The compiled programs of the library's algorithms, in text form: golden files of the Python tests.
std::vector<Program> library_programs() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(GC3_LIBRARY_PROGRAMS)) files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Program> programs;
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    Result<Program> program = ir::parse_text(text, file.string());
    REQUIRE_MESSAGE(program.ok(), program.error().str());
    programs.push_back(std::move(program).value());
  }
  return programs;
}

// Damages every program in every way, `times` times, and in two ways at once. No undamaged program may be rejected.
void check_mutants(const std::vector<Program>& programs, int times, std::uint64_t seed) {
  std::map<std::string, Tally> tallies;
  std::mt19937_64 random(seed);
  for (const Program& program : programs) {
    CAPTURE(program.name);
    const Report report = verify(program);
    REQUIRE_MESSAGE(report.ok(), report.diagnostics.front().str());
    if (program.instructions.empty()) continue;  // one rank in place
    for (const Mutation& mutation : kMutations) {
      const std::string name = mutation.name;
      CAPTURE(name);
      for (int n = 0; n < times; ++n) {
        Mutant mutant(program, random);
        if ((mutant.*mutation.apply)()) judge(mutant.program(), tallies[mutation.name], random);
      }
    }
    for (int n = 0; n < 5 * times; ++n) {
      Mutant mutant(program, random);
      const Mutation& first = kMutations[random() % std::size(kMutations)];
      const Mutation& second = kMutations[random() % std::size(kMutations)];
      if ((mutant.*first.apply)() && (mutant.*second.apply)()) judge(mutant.program(), tallies["two of these"], random);
    }
  }
  print(tallies);
  int mutants = 0;
  std::map<ErrorId, int> rejected;
  for (const auto& [name, t] : tallies) {
    mutants += t.mutants;
    for (const auto& [code, n] : t.rejected) rejected[code] += n;
  }
  CHECK(mutants >= (kSanitized ? 800 : 2000));
  CHECK(rejected.size() == 9);  // every class of defect occurs
}

}  // namespace

TEST_CASE("mutants are rejected if and only if the oracle rejects them") {
  check_mutants(small_programs(), kSanitized ? 1 : 4, 42);
}

TEST_CASE("so are mutants of the library's programs") { check_mutants(library_programs(), kSanitized ? 4 : 10, 7); }

}  // namespace gc3::verify::test
