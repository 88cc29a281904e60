// Ranks that are alike on a machine, found in its description; one of each class takes the times of all.
#include "gc3/sim/classes.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/sim/test_machines.h"

namespace gc3::sim {
namespace {

constexpr std::uint32_t kNodes = 4;
constexpr std::uint32_t kRanks = 2 * kNodes;

// Nodes of two ranks that are joined by a link each way and share a NIC.
MachineData nodes_of_two() {
  MachineData data;
  data.classes = {{1e-6, 0, 0, false}, {3e-6, 0, 0, false}};
  Fabric& network = data.fabrics.emplace_back(Fabric{1, true, {}});
  const auto resource = [&](double rate) {
    data.resources.push_back({rate, 0});
    return static_cast<std::uint32_t>(data.resources.size() - 1);
  };
  for (std::uint32_t n = 0; n < kNodes; ++n) {
    const std::uint32_t out = resource(5e8);
    const std::uint32_t into = resource(5e8);
    for (std::uint32_t r = 2 * n; r < 2 * n + 2; ++r) {
      data.node_of.push_back(n);
      data.links.push_back({r, r ^ 1U, 0, {resource(1e9)}});
      network.ports.push_back({r, {out}, {into}});
    }
  }
  return data;
}

Machine made(MachineData data) { return std::move(Machine::create(std::move(data)).value()); }

// Each rank sends to those of the same place on all other nodes, then to its neighbour.
ir::ClassProgram to_nodes() {
  ir::Builder b;
  b.rank(kChunks);
  for (std::uint32_t n = 1; n < kNodes; ++n) {
    b.threadblock(2 * n, kRanks - 2 * n, 0);
    for (int m = 0; m < 3; ++m) b.step(step(Opcode::send)), b.step(step(Opcode::recv));
  }
  b.threadblock(1, 1, 0);
  const ir::Dependency after[] = {{0, 5}, {2, 5}};
  b.step(step(Opcode::send), after);
  b.step(step(Opcode::recv));
  ir::ClassProgram out;
  out.representative = std::move(b.program());
  out.representative.instructions[5].has_dependents = out.representative.instructions[17].has_dependents = 1;
  out.representative.collective =
      model::Collective::builtin(model::CollectiveKind::allreduce, kRanks, 1, 0, false).value();
  out.symmetry = model::Symmetry::of({kNodes, 2}).value();
  for (const auto buffer : {model::Buffer::input, model::Buffer::output, model::Buffer::scratch})
    out.regions.push_back({buffer, 0, {}});
  return out;
}

// Simulates it by classes and as a whole.
void check_same(const Machine& machine, std::size_t ranks) {
  const ir::ClassProgram program = to_nodes();
  const auto one = Simulator::create(program, machine);
  const auto all = Simulator::create(program, machine, {}, true);
  REQUIRE(one.ok());
  REQUIRE(all.ok());
  CHECK(one.value().program().ranks.size() == ranks);
  CHECK(all.value().program().ranks.size() == kRanks);
  for (const Sharing sharing : {Sharing::serial, Sharing::max_min}) {
    const auto found = one.value().run({10'000, 4}, options(sharing));
    const auto expected = all.value().run({10'000, 4}, options(sharing));
    REQUIRE(found.ok());
    REQUIRE(expected.ok());
    CHECK(found.value().time == expected.value().time);
    CHECK(found.value().rank_end == expected.value().rank_end);
    for (std::size_t r = 0; r < machine.data().resources.size(); ++r) {
      CHECK(found.value().use[r].bytes == expected.value().use[r].bytes);
      CHECK(found.value().use[r].busy == expected.value().use[r].busy);
    }
  }
}

std::string broken(MachineData data) {
  const Machine machine = made(std::move(data));
  return std::move(find_classes(to_nodes(), machine, {}).value().broken);
}

}  // namespace

TEST_CASE("ranks of the same place on all nodes are one class, and take the times of all ranks") {
  check_same(made(nodes_of_two()), 2);
  CHECK(broken(nodes_of_two()) == "resource 0 is shared by ranks that would be of one class");
}

TEST_CASE("a machine that differs in one place is simulated in full, and told where") {
  MachineData data = nodes_of_two();
  data.resources[5].bytes_per_s = 4e8;
  check_same(made(data), kRanks);
  CHECK(broken(data).find("have different rates") != std::string::npos);
  data = nodes_of_two();
  data.fabrics[0].ports.back().out.clear();
  CHECK(broken(data).find("different numbers of resources") != std::string::npos);
  data = nodes_of_two();
  data.node_of = {0, 0, 1, 1, 3, 2, 2, 3};
  CHECK(broken(data).find("share nodes") != std::string::npos);
  data = nodes_of_two();
  data.links[6].link_class = 1;
  CHECK(broken(data).find("the link from rank") != std::string::npos);
  data = nodes_of_two();
  data.links.pop_back();
  CHECK_FALSE(Simulator::create(to_nodes(), made(data)).ok());  // a path that the program needs
  data = nodes_of_two();
  data.cores = 2;
  CHECK(broken(data) == "its processors are dealt out to ranks by number");
}

TEST_CASE("what all ranks share is in no class") {
  MachineData data = nodes_of_two();
  for (Port& port : data.fabrics[0].ports) port.out.push_back(static_cast<std::uint32_t>(data.resources.size()));
  data.resources.push_back({2e9, 0});
  check_same(made(data), kRanks);
  CHECK(broken(data).find("would be of one class") != std::string::npos);
}

}  // namespace gc3::sim
