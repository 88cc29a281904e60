#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <tuple>

#include "convert.h"
#include "gc3/sim/alpha_beta.h"
#include "gc3/sim/direct/simulator.h"
#include "gc3/sim/explain.h"
#include "gc3/sim/simulator.h"
#include "gc3/sim/together.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using Indices = std::vector<std::uint32_t>;

sim::Machine make_machine(
    Indices node_of, const std::vector<std::pair<double, double>>& resources,
    const std::vector<std::tuple<double, double, double, bool, double, double, bool>>& classes,
    std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, Indices>> links,
    std::vector<std::tuple<std::uint32_t, bool, std::vector<std::tuple<std::uint32_t, Indices, Indices>>>> fabrics,
    std::uint32_t cores, bool cores_dealt, double core_switch_s, Indices memory, std::vector<Indices> engines,
    double submit_s) {
  sim::MachineData data;
  data.node_of = std::move(node_of);
  for (const auto& [rate, message] : resources) data.resources.push_back({rate, message});
  for (const auto& [latency, rate, message, staged, in_switch, requests, by_engines] : classes) {
    data.classes.push_back({latency, rate, message, staged, in_switch, requests, by_engines});
  }
  for (auto& [src, dst, kind, taken] : links) data.links.push_back({src, dst, kind, std::move(taken)});
  for (auto& [kind, across, ports] : fabrics) {
    sim::Fabric& fabric = data.fabrics.emplace_back(sim::Fabric{kind, across, {}});
    for (auto& [rank, out, into] : ports) fabric.ports.push_back({rank, std::move(out), std::move(into)});
  }
  data.cores = cores;
  data.cores_dealt = cores_dealt;
  data.core_switch_s = core_switch_s;
  data.memory = std::move(memory);
  data.engines = std::move(engines);
  data.submit_s = submit_s;
  return unwrap(sim::Machine::create(std::move(data)));
}

std::vector<double> in_seconds(const auto& times) {
  std::vector<double> result;
  for (const sim::Time t : times) result.push_back(sim::seconds(t));
  return result;
}

nb::bytes record_bytes(const sim::Outcome& outcome) {
  return nb::bytes(reinterpret_cast<const char*>(outcome.records.data()), outcome.records.size() * sizeof(sim::Record));
}

// The outcome of a recorded run, so that it can be explained like a simulated one.
sim::Outcome outcome_of(const nb::bytes& records, double time_s) {
  sim::Outcome outcome;
  outcome.time = sim::picoseconds(time_s);
  outcome.records.resize(records.size() / sizeof(sim::Record));
  if (records.size() % sizeof(sim::Record) != 0) throw nb::value_error("not a whole number of records");
  if (!outcome.records.empty()) std::memcpy(outcome.records.data(), records.c_str(), records.size());
  const auto exists = [&](std::uint32_t k) { return k == kNone || k < outcome.records.size(); };
  for (const sim::Record& r : outcome.records) {
    if (!exists(r.before) || !exists(r.sent_by) || static_cast<std::size_t>(r.wait) >= sim::kCauseCount ||
        static_cast<std::size_t>(r.delivered_by) >= sim::kCauseCount) {
      throw nb::value_error("a record has an unknown cause or a predecessor that does not exist");
    }
  }
  return outcome;
}

std::vector<std::pair<double, std::uint64_t>> use_of(const std::vector<sim::ResourceUse>& of) {
  std::vector<std::pair<double, std::uint64_t>> use;
  for (const sim::ResourceUse& u : of) use.emplace_back(sim::seconds(u.busy), u.bytes);
  return use;
}

std::vector<std::tuple<double, double, std::string, std::uint32_t, std::uint32_t>> path_of(const sim::Explanation& e) {
  std::vector<std::tuple<double, double, std::string, std::uint32_t, std::uint32_t>> path;
  for (const sim::Segment& s : e.path) {
    path.emplace_back(sim::seconds(s.from), sim::seconds(s.to), sim::kCauseNames[static_cast<int>(s.cause)], s.record,
                      s.resource);
  }
  return path;
}

void bind_inputs(nb::module_& m) {
  nb::class_<sim::Machine>(m, "SimMachine", "A machine with the rates that one protocol reaches on it.")
      .def(nb::new_(&make_machine), "node_of"_a, "resources"_a, "classes"_a, "links"_a, "fabrics"_a, "cores"_a = 0,
           "cores_dealt"_a = false, "core_switch_s"_a = 0.0, "memory"_a = Indices(),
           "engines"_a = std::vector<Indices>(), "submit_s"_a = 0.0)
      .def_prop_ro("ranks", &sim::Machine::ranks);
  nb::class_<sim::ProtocolTiming>(m, "SimProtocol", "How a protocol moves data: see gc3/sim/timing.h.")
      .def(
          "__init__",
          [](sim::ProtocolTiming* self, std::uint64_t slot_bytes, std::uint32_t slots, std::uint32_t slices,
             std::uint64_t min_slice_bytes, bool cut_through, std::uint64_t line_bytes, double op_s,
             const std::array<double, ir::kOpcodeCount>& bytes_per_s, std::uint64_t lend_bytes, double lend_bytes_per_s,
             std::uint64_t lend_combined_bytes, bool split, const std::array<double, ir::kOpcodeCount>& memory_bytes,
             std::uint64_t rendezvous_bytes) {
            const sim::ProtocolTiming made{slot_bytes,       slots, slices,      min_slice_bytes,  cut_through,
                                           line_bytes,       op_s,  lend_bytes,  lend_bytes_per_s, lend_combined_bytes,
                                           rendezvous_bytes, split, bytes_per_s, memory_bytes};
            unwrap(sim::check(made));  // here, since a call is also cut into slices where nothing is simulated
            new (self) sim::ProtocolTiming(made);
          },
          "slot_bytes"_a, "slots"_a, "slices"_a, "min_slice_bytes"_a, "cut_through"_a, "line_bytes"_a, "op_s"_a,
          "bytes_per_s"_a, "lend_bytes"_a = 0, "lend_bytes_per_s"_a = 0.0, "lend_combined_bytes"_a = 0,
          "split"_a = false, "memory_bytes"_a = std::array<double, ir::kOpcodeCount>(), "rendezvous_bytes"_a = 0,
          "Rates are by opcode, in the order of opcodes.def.");
}

template <class Program, class... Apart>
void make_simulator(sim::Simulator* self, const Program& program, const sim::Machine& machine, const Indices& places,
                    Apart... apart) {
  const auto make = [&] { return sim::Simulator::create(program, machine, places, apart...); };
  new (self) sim::Simulator(unwrap(long_work(make)));
}

// With counts, a call whose blocks, or the chunks of whose tensors, have these lengths.
Result<sim::Call> call_of(const sim::Simulator& simulator, std::uint64_t chunk_bytes, std::uint64_t elem_bytes,
                          const std::vector<std::uint64_t>& counts, const std::vector<double>& applied_s = {}) {
  if (simulator.program().has_tensors()) return sim::tensor_call(simulator.program(), counts, elem_bytes, applied_s);
  if (counts.empty()) return sim::Call{chunk_bytes, elem_bytes};
  return sim::v_call(simulator.program(), counts, elem_bytes);
}

void bind_together(nb::module_& m) {
  nb::class_<sim::Together>(m, "SimTogether", "Several programs on one machine at once: see gc3/sim/together.h.")
      .def(nb::init<std::size_t>(), "resources"_a, "For machines of up to so many resources.")
      .def(
          "add",
          [](sim::Together& together, const sim::Simulator& simulator, std::uint64_t chunk_bytes,
             const sim::ProtocolTiming& protocol, std::vector<double> slowdown, std::uint64_t elem_bytes,
             const std::vector<std::uint64_t>& counts) {
            sim::Options options;
            options.protocol = protocol;
            options.start.slowdown = std::move(slowdown);
            return unwrap(long_work([&]() -> Result<std::uint32_t> {
              GC3_ASSIGN(sim::Call call, call_of(simulator, chunk_bytes, elem_bytes, counts));
              return together.add(simulator, std::move(call), std::move(options));
            }));
          },
          nb::keep_alive<1, 2>(), "simulator"_a, "chunk_bytes"_a, "protocol"_a, "slowdown"_a = std::vector<double>(),
          "elem_bytes"_a = 4, "counts"_a = std::vector<std::uint64_t>(),
          "Adds a call, whose ranks do not run yet; returns its number.")
      .def(
          "launch",
          [](sim::Together& together, std::uint32_t job, std::uint32_t rank, sim::Time at_ps) {
            unwrap(together.launch(job, rank, at_ps));
          },
          "job"_a, "rank"_a, "at_ps"_a, "The threadblocks of a rank begin at a time, which has not passed yet.")
      .def(
          "advance",
          [](sim::Together& together, sim::Time limit_ps) {
            const auto end = unwrap(long_work([&] { return together.advance(limit_ps); }));
            using Found = std::optional<std::tuple<sim::Time, std::uint32_t, std::uint32_t>>;
            return end ? Found(std::make_tuple(end->time, end->job, end->rank)) : Found();
          },
          "limit_ps"_a,
          "Simulates until the next rank ends: returns the time, the call and its rank. None: none ends "
          "up to the limit.")
      .def_prop_ro(
          "use", [](const sim::Together& t) { return use_of(t.use()); },
          "The busy seconds and the carried bytes of each resource, by calls that have ended.")
      .def_prop_ro("slice_ops", &sim::Together::slice_ops, "Of calls that have ended.");
}

void bind_one_sided(nb::module_& m) {
  namespace direct = sim::direct;
  nb::class_<direct::Timing>(m, "SimDirectTiming", "The rates of one-sided programs: see gc3/sim/direct/simulator.h.")
      .def(
          "__init__",
          [](direct::Timing* self, double op_s, double bytes_per_s, std::uint64_t in_flight, double local_s,
             double release_s, double proxy_s, std::uint32_t processors) {
            new (self) direct::Timing{op_s, bytes_per_s, in_flight, local_s, release_s, proxy_s, processors};
          },
          "op_s"_a, "bytes_per_s"_a, "in_flight"_a, "local_s"_a, "release_s"_a, "proxy_s"_a, "processors"_a);
  nb::class_<direct::Simulator>(m, "DirectSimulator", "A one-sided program on a machine; see Simulator.")
      .def(
          "__init__",
          [](direct::Simulator* self, const ir::direct::Program& program, const sim::Machine& machine,
             const Indices& places) {
            new (self) direct::Simulator(
                unwrap(long_work([&] { return direct::Simulator::create(program, machine, places); })));
          },
          nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), "program"_a, "machine"_a, "places"_a = Indices())
      .def(
          "run",
          [](const direct::Simulator& simulator, std::uint64_t chunk_bytes, const direct::Timing& timing,
             double launch_s, std::vector<double> delay_s, std::vector<double> slowdown, bool record) {
            const direct::Options options{timing, {launch_s, std::move(delay_s), std::move(slowdown)}, record};
            return unwrap(long_work([&] { return simulator.run(chunk_bytes, options); }));
          },
          "chunk_bytes"_a, "timing"_a, "launch_s"_a = 0.0, "delay_s"_a = std::vector<double>(),
          "slowdown"_a = std::vector<double>(), "record"_a = false, "Simulates a call with chunks of `chunk_bytes`.")
      .def("work", &direct::Simulator::work, "chunk_bytes"_a, "timing"_a, "The approximate number of pieces of a run.")
      .def("step_name", &direct::Simulator::step_name, "tb"_a, "step"_a)
      .def("rank_of", &direct::Simulator::rank_of)
      .def(
          "route", [](const direct::Simulator&, std::uint32_t) { return Indices(); }, "tb"_a,
          "Empty: each move of a threadblock has its own way.");
}

}  // namespace

void bind_sim(nb::module_& m) {
  bind_inputs(m);
  nb::class_<sim::Explanation>(m, "SimExplanation", "Why a run took its time.")
      .def_prop_ro("path", &path_of, "The critical path: from and to in seconds, cause, record, resource.")
      .def_prop_ro(
          "on_path", [](const sim::Explanation& e) { return in_seconds(e.on_path); },
          "The seconds of the critical path by cause.")
      .def_prop_ro(
          "stalls", [](const sim::Explanation& e) { return in_seconds(e.stalls); },
          "The seconds that all threadblocks together waited, by cause.")
      .def_prop_ro("work_s", [](const sim::Explanation& e) { return sim::seconds(e.work); });
  nb::class_<sim::Outcome>(m, "SimOutcome", "The result of a simulated run.")
      .def_static("of_records", &outcome_of, "records"_a, "time_s"_a,
                  "The outcome of a recorded run; see record_bytes.")
      .def_prop_ro("time_s", [](const sim::Outcome& o) { return sim::seconds(o.time); })
      .def_ro("time_ps", &sim::Outcome::time)
      .def_ro("slice_ops", &sim::Outcome::slice_ops, "The number of executed slices of instructions.")
      .def_prop_ro("rank_end_s", [](const sim::Outcome& o) { return in_seconds(o.rank_end); })
      .def_prop_ro(
          "use", [](const sim::Outcome& o) { return use_of(o.use); },
          "The busy seconds and the carried bytes of each resource.")
      .def_prop_ro("record_count", [](const sim::Outcome& o) { return o.records.size(); })
      .def("record_bytes", &record_bytes, "The records as they lie in memory: see gc3/sim/outcome.h.")
      .def("explain", [](const sim::Outcome& o) { return long_work([&] { return sim::explain(o); }); });
  nb::class_<sim::Simulator>(m, "Simulator", "A program on a machine, which can be simulated at any size.")
      .def("__init__", &make_simulator<ir::Program>, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), "program"_a,
           "machine"_a, "places"_a = Indices(),
           "Rank r of the program is rank places[r] of the machine; without places, rank r.")
      .def("__init__", &make_simulator<ir::ClassProgram, bool>, nb::keep_alive<1, 3>(), "program"_a, "machine"_a,
           "places"_a = Indices(), "apart"_a = false,
           "Simulates one rank of each class of those that are alike on the machine; or, apart, each rank.")
      .def_prop_ro(
          "program", [](const sim::Simulator& s) -> const ir::Program& { return s.program(); },
          nb::rv_policy::reference_internal, "The program of the ranks that are simulated.")
      .def_prop_ro(
          "ranks", [](const sim::Simulator& s) { return s.program().ranks.size(); }, "How many ranks are simulated.")
      .def_prop_ro(
          "unlike", [](const sim::Simulator& s) { return s.classes() != nullptr ? s.classes()->broken : ""; },
          "What keeps ranks from being alike on the machine; empty: nothing.")
      .def(
          "run",
          [](const sim::Simulator& simulator, std::uint64_t chunk_bytes, const sim::ProtocolTiming& protocol,
             double launch_s, std::vector<double> delay_s, std::vector<double> slowdown, bool max_min, bool record,
             std::uint64_t elem_bytes, const std::vector<std::uint64_t>& counts, std::vector<std::uint64_t> copied,
             const std::vector<double>& applied_s) {
            sim::Options options;
            options.protocol = protocol;
            options.start = {launch_s, std::move(delay_s), std::move(slowdown)};
            options.sharing = max_min ? sim::Sharing::max_min : sim::Sharing::serial;
            options.record = record;
            return unwrap(long_work([&]() -> Result<sim::Outcome> {
              GC3_ASSIGN(sim::Call call, call_of(simulator, chunk_bytes, elem_bytes, counts, applied_s));
              call.copied = std::move(copied);
              return simulator.run(call, options);
            }));
          },
          "chunk_bytes"_a, "protocol"_a, "launch_s"_a = 0.0, "delay_s"_a = std::vector<double>(),
          "slowdown"_a = std::vector<double>(), "max_min"_a = false, "record"_a = false, "elem_bytes"_a = 4,
          "counts"_a = std::vector<std::uint64_t>(), "copied"_a = std::vector<std::uint64_t>(),
          "applied_s"_a = std::vector<double>(),
          "Simulates a call whose longest chunk has `chunk_bytes` bytes; or, with `counts`, in elements, one whose "
          "blocks have these lengths. `copied`: the bytes that each rank copies before it runs the program. Of named "
          "tensors, `counts` are the lengths of chunks, and `applied_s` the seconds of each application.")
      .def_prop_ro(
          "most_chunks", [](const sim::Simulator& s) { return s.wiring().max_count; },
          "The largest number of chunks that an instruction sends.")
      .def(
          "work",
          [](const sim::Simulator& s, std::uint64_t chunk_bytes, const sim::ProtocolTiming& protocol) {
            return s.work({chunk_bytes, 4}, protocol);
          },
          "chunk_bytes"_a, "protocol"_a, "The approximate number of slice operations of a run.")
      .def(
          "slot_bytes",
          [](const sim::Simulator& s, std::uint64_t chunk_bytes, const sim::ProtocolTiming& protocol) {
            return s.slot_bytes({chunk_bytes, 4}, protocol);
          },
          "chunk_bytes"_a, "protocol"_a, "The bytes of all slots that data goes through.")
      .def(
          "step_name",
          [](const sim::Simulator& s, std::uint32_t tb, std::uint32_t step) {
            return sim::step_name(s.program(), s.wiring(), tb, step);
          },
          "tb"_a, "step"_a, "The name of a step; `tb` counts threadblocks over all ranks.")
      .def(
          "route",
          [](const sim::Simulator& simulator, std::uint32_t tb) {
            std::vector<std::uint32_t> found;
            const sim::Wiring& wiring = simulator.wiring();
            if (tb >= wiring.sending.size() || wiring.sending[tb] == kNone) return found;
            const sim::Wire& wire = wiring.wires[wiring.sending[tb]];
            for (const sim::Slice way : {wire.out, wire.into}) {
              for (std::uint32_t k = 0; k < way.count; ++k) found.push_back(wiring.resources[way.first + k]);
            }
            return found;
          },
          "tb"_a, "The resources that the sends of a threadblock use.")
      .def(
          "rank_of",
          [](const sim::Simulator& s) {
            Indices of = s.wiring().rank_of;
            for (std::uint32_t& r : of) r = s.wiring().number(r);
            return of;
          },
          "The rank of each threadblock.")
      .def(
          "alpha_beta",
          [](const sim::Simulator& s, double round_bytes_per_s) {
            const sim::AlphaBeta cost = unwrap(long_work([&] { return sim::alpha_beta(s, round_bytes_per_s); }));
            const auto row = [](const sim::Steps& x) {
              return std::make_tuple(x.steps, x.rounds, sim::seconds(x.latency));
            };
            return std::make_pair(row(cost.split), row(cost.merged));
          },
          "round_bytes_per_s"_a,
          "(steps, rounds, seconds of latency) with one message per connection and step, and with all available ones.")
      .def(
          "alpha_beta_by",
          [](const sim::Simulator& s, double round_bytes_per_s, const std::vector<std::uint32_t>& step_of) {
            const sim::Steps x = unwrap(long_work([&] { return sim::alpha_beta_by(s, round_bytes_per_s, step_of); }));
            return std::make_tuple(x.steps, x.rounds, sim::seconds(x.latency));
          },
          "round_bytes_per_s"_a, "step_of"_a,
          "The same with given steps: for each threadblock, the step in which it sends; 0 if it does not send.");
  bind_together(m);
  bind_one_sided(m);
  m.def(
      "sim_causes", [] { return std::vector<std::string>(sim::kCauseNames, sim::kCauseNames + sim::kCauseCount); },
      "Names of the causes, in the order of the numbers in records.");
}

}  // namespace gc3::bindings
