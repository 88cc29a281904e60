#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <nanobind/typing.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "arrays.h"
#include "communicator.h"
#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/launch.h"
#include "gc3/base/secret.h"
#include "gc3/runtime/core/sharing/host_memory.h"
#include "gc3/runtime/direct/process_job.h"
#include "operand.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using comm::Communicator;
using cpu::ProcessProgram;

Joined join(std::uint32_t rank, std::uint32_t size, std::string job, std::uint32_t ordinal, double join_timeout,
            double timeout, const std::string& pin, bool framework, const std::string& wait, bool single_copy,
            const std::string& probe, const std::string& cache, const select::Selection& table,
            const select::Selection* kept, const comm::AdaptOptions* adapt, std::shared_ptr<core::Jobs> jobs,
            const core::Route* route) {
  const auto place = unwrap(choose_place(pin, process_environment(), framework, {rank, size}));
  const core::WaitMode mode = unwrap(core::parse_wait_mode(wait));
  core::ProbeWish wish = unwrap(core::ProbeWish::from(probe, cache));
  core::Meeting meeting;
  meeting.rank = rank;
  meeting.size = size;
  meeting.job = std::move(job);
  meeting.ordinal = ordinal;
  meeting.timeout_s = join_timeout;
  meeting.interrupted = interrupted;
  meeting.jobs = std::move(jobs);
  meeting.secret = unwrap(read_secret(process_environment()));
  if (route != nullptr) meeting.route = *route;
  return Joined(without_gil([&] {
    return Communicator::init(meeting, {timeout, place.has_value(), single_copy, std::move(wish), {}, mode, place},
                              table, kept == nullptr ? select::Selection() : *kept,
                              adapt == nullptr ? comm::AdaptOptions() : *adapt);
  }));
}

select::CallShape shape_of(const Joined& joined, std::string_view name, std::size_t count, std::string_view dtype,
                           bool in_place, std::uint32_t root) {
  const auto kind = unwrap(model::parse_collective(name));
  const auto type = parse_reduction(dtype).type;
  return unwrap(joined.body().shape(kind, count, type, in_place, root));
}

select::CallShape own_shape_of(const Joined& joined, const model::Collective& custom, std::string condition,
                               std::size_t count, std::string_view dtype) {
  return unwrap(joined.body().shape(custom, std::move(condition), count, parse_reduction(dtype).type));
}

comm::VCall v_call(std::string_view name, std::vector<std::uint64_t> counts, const std::vector<std::uintptr_t>& input,
                   const std::vector<std::uintptr_t>& output, std::string_view dtype, const Operation& op,
                   std::uint32_t root, std::optional<double> timeout) {
  unwrap(core::check_timeout(timeout));
  const Reduction reduction = parse_reduction(dtype, op);
  comm::VCall call{unwrap(model::parse_collective(name)),
                   std::move(counts),
                   {},
                   {},
                   reduction.type,
                   reduction.op,
                   root,
                   {},
                   timeout};
  for (const std::uintptr_t at : input) call.input.push_back(reinterpret_cast<std::uint8_t*>(at));
  for (const std::uintptr_t at : output) call.output.push_back(reinterpret_cast<std::uint8_t*>(at));
  return call;
}

// Waits without the GIL. On Ctrl-C it gives the communicator up, because no wait for the call will follow.
nb::object wait(const Handle& handle, std::optional<double> timeout) {
  Face& face = *nb::inst_ptr<Face>(handle.owner);
  unwrap(face.body().check_goes_on(handle.done));
  if (timeout) {
    without_gil([&] {
      Status status = core::wait_for(handle.done, *timeout, interrupted);
      if (!status.ok() && status.error().code == ErrorCode::Aborted) face.body().abort();
      return status;
    });
  }
  without_gil([&] {
    face.body().wait(handle.done, interrupted);
    return handle.done.get();
  });
  face.forget();
  return handle.result;
}

template <class Program>
void load_program(const Joined& joined, const Program& program, std::uint64_t first, std::optional<std::uint64_t> end,
                  const std::string& source, const std::string& text) {
  without_gil([&] { return joined.body().load(bindings::as_read(program), first, end, source, text, interrupted); });
}

}  // namespace

void bind_processes(nb::module_& m) {
  nb::enum_<Launch::Way>(m, "Way", "How the hosts of a job find rank 0.")
      .value("address", Launch::Way::address)
      .value("store", Launch::Way::store)
      .value("pmi", Launch::Way::pmi)
      .value("pmix", Launch::Way::pmix);
  nb::class_<Launch>(m, "Launch", "The rank of this process and the number of ranks, as a launcher gives them.")
      .def_ro("rank", &Launch::rank)
      .def_ro("size", &Launch::size)
      .def_ro("job", &Launch::job)
      .def_ro("way", &Launch::way)
      .def_ro("address", &Launch::address)
      .def_ro("store", &Launch::store)
      .def_ro("pmi", &Launch::pmi)
      .def_ro("pmix_folder", &Launch::pmix_folder)
      .def_prop_ro(
          "several", [](const Launch& l) { return l.here.has_value(); }, "Whether the job has several hosts.")
      .def_prop_ro(
          "leads", [](const Launch& l) { return l.here.has_value() && l.here->rank == 0; },
          "Whether the rank is the first one of its host.");
  nb::class_<core::Route>(m, "Route", "How the ranks of several hosts meet.")
      .def(
          "__init__",
          [](core::Route* self, const Launch& launch, std::string network) {
            new (self) core::Route{launch.here.value_or(Place()), launch.here_job, {}, std::move(network)};
          },
          "launch"_a, "network"_a)
      .def(
          "__init__",
          [](core::Route* self, std::uint32_t rank, std::uint32_t size, std::string job, std::string network) {
            new (self) core::Route{{rank, size}, std::move(job), {}, std::move(network)};
          },
          "rank"_a, "size"_a, "job"_a, "network"_a, "Of a rank among those of its host, who meet by the name `job`.")
      .def_rw("address", &core::Route::address, "Of rank 0, as host:port.")
      .def(
          "listen",
          [](core::Route& route, const std::string& towards, std::uint16_t port) {
            return unwrap(route.listen(towards, port));
          },
          "towards"_a, "port"_a,
          "For rank 0: listens on the interface whose route leads to `towards`, a host:port or empty; port 0: one of "
          "the "
          "system's choice. Returns the address.");
  m.def(
      "read_launch", [] { return unwrap(read_launch(process_environment())); },
      "Reads the environment variables of torchrun, mpirun, srun or a script.");
  m.def(
      "die_with_parent", [](pid_t parent) { unwrap(core::die_with_parent(parent)); }, "parent"_a,
      "Makes the system kill this process when its parent process ends, at once if that is not `parent` any more.");
  using RankEngine = comm::Communicator::RankEngine;
  nb::class_<RankEngine>(m, "RankEngine", "What runs calls on one rank of a communicator.");
  nb::class_<direct::ProcessJob, RankEngine>(m, "DirectJob", "A one-sided program prepared for one rank.");
  nb::class_<ProcessProgram, RankEngine>(m, "ProcessProgram", "A program prepared for one rank of a communicator.")
      .def_prop_ro("slots", [](const ProcessProgram& p) { return p.geometry().slots; })
      .def_prop_ro("slot_bytes", [](const ProcessProgram& p) { return p.geometry().slot_bytes; });
  nb::class_<Joined> joined(m, "Joined", "The inside of a communicator: what GC3 itself calls.");
  joined
      .def(
          "close",
          [](Joined& j, bool at_once) {
            without_gil([&]() -> Status {
              GC3_CHECK(j.body().check_close());
              if (at_once && (j.body().has_started() || j.body().is_running())) j.body().abort();
              return j.body().close(interrupted);
            });
          },
          "at_once"_a,
          "Local: leaves after the started calls have finished, or with `at_once` after aborting them and those that "
          "run.")
      .def_prop_ro(
          "size", [](const Joined& j) { return j.body().size(); }, "The number of ranks.")
      .def_prop_ro(
          "inside", [](const Joined& j) { return j.body().inside(); },
          "Whether this thread is one of the communicator's, which `close` waits for.")
      .def(
          "learned",
          [](const Joined& j) {
            std::vector<std::tuple<std::string, std::uint64_t, bool, std::uint32_t, std::string, std::uint64_t,
                                   std::uint64_t, std::uint64_t>>
                found;
            for (const comm::Adaptation::Learned& each : j.body().learned()) {
              const select::CallShape& shape = each.shape;
              found.emplace_back(name_of(shape.kind), shape.size, shape.in_place, shape.root, each.program, each.ns,
                                 each.table_ns, each.calls);
            }
            return found;
          },
          "What was learned of classes of calls: collective, size, mode and root of one of them, the program as text, "
          "nanoseconds of a call or 0 for a load that is over, those with the program of the table or 0, and the "
          "number of "
          "calls.");
  nb::class_<core::Jobs>(m, "Jobs", "The jobs that this process is in, which later joins of its processes use again.")
      .def(nb::init<>());
  m.def("join", &join, "rank"_a, "size"_a, "job"_a, "ordinal"_a, "join_timeout"_a, "timeout"_a, "pin"_a, "framework"_a,
        "wait"_a, "single_copy"_a, "probe"_a, "cache"_a, "table"_a, "kept"_a.none() = nb::none(),
        "adapt"_a.none() = nb::none(), "jobs"_a.none() = nb::none(), "route"_a.none() = nb::none(),
        "Connects to the other ranks. The rows of `kept` are used if all ranks give the same.");
  m.def("cache_folder", &core::cache_folder, "said"_a,
        "The folder for what is kept for this machine, by GC3_CACHE; \"\": nothing is kept.");
  m.def(
      "host_memory", [] { return core::describe_memory(core::Cores::own()); },
      "The NUMA nodes of the cores that this process may use, and the system's settings of huge pages.");
  m.def(
      "kept_probes", [](const std::string& folder) { return core::list_kept(folder); }, "folder"_a,
      "A line for each kept measurement of how messages move between processes.");
  m.def(
      "kept_thresholds",
      [](const std::string& folder, std::uint32_t ranks) {
        std::map<std::string, std::optional<std::uint64_t>> found;
        const auto kept = core::read_kept(folder, core::ProbeConditions::here(core::Cores::own().count(), ranks));
        if (!kept.found) return found;
        for (std::size_t i = 0; i < kThresholds.size(); ++i) {
          const std::uint64_t value = *kept.found->thresholds.values[i];
          found[std::string(kThresholds[i].name)] = value == Thresholds::kNever ? std::nullopt : std::optional(value);
        }
        return found;
      },
      "folder"_a, "ranks"_a, "The thresholds that so many ranks have measured on this machine; None: never.");
  m.attr("T") = nb::type_var("T");
  // The first line is for inspect.signature.
  nb::class_<Handle>(m, "Handle", "Handle()\n--\n\nA running call. Its arrays must not be used until it has finished.",
                     nb::is_generic(), nb::sig("class Handle(typing.Generic[T])"))
      .def("wait", &wait, "timeout"_a.none() = nb::none(), nb::sig("def wait(self, timeout: float | None = None) -> T"),
           "Waits until the call has finished, and returns its result.\n\n"
           "Args:\n    timeout: Seconds to wait; the call continues after a time-out.\n\n"
           "Raises:\n    gc3.CommError: Another rank has failed, or `timeout` has passed.")
      .def(
          "test", [](const Handle& h) { return h.done.wait_for(std::chrono::seconds(0)) == std::future_status::ready; },
          "Returns whether the call has finished, successfully or not.");
  nb::class_<Face> communicator(m, "Communicator", "Ranks that are processes of one host.");
  communicator.def(nb::init<const Joined&>(), "joined"_a)
      .def_prop_ro(
          "rank", [](const Face& f) { return f.body().rank(); }, "This process's rank.")
      .def_prop_ro(
          "size", [](const Face& f) { return f.body().size(); }, "The number of ranks.")
      .def_prop_ro(
          "hosts",
          [](const Face& f) {
            std::vector<std::pair<std::string, std::vector<std::uint32_t>>> found;
            const auto& placement = f.body().placement();
            for (std::size_t h = 0; h < placement.hosts.size(); ++h) {
              found.emplace_back(placement.hosts[h].name + " (" + placement.hosts[h].address + ")",
                                 placement.ranks_of[h]);
            }
            return found;
          },
          "The hosts, and the ranks on each; empty: this host alone.")
      .def_prop_ro(
          "transport", [](const Face& f) { return name_of(f.body().transport()); },
          "What carries messages of programs between hosts, one of transports(); \"\": there is one host.")
      .def_prop_ro(
          "usable", [](const Face& f) { return f.body().usable().ok(); },
          "Whether the communicator is open, and this process is not a fork of the one that made it.")
      .def(
          "barrier",
          [](Face& f, std::optional<double> timeout) {
            told(f.body(), [&] {
              unwrap(core::check_timeout(timeout));
              without_gil([&] { return f.body().barrier(interrupted, timeout); });
            });
          },
          "timeout"_a.none() = nb::none(), nb::sig("def barrier(self, timeout: float | None = None) -> None"),
          "Returns when all ranks have called it.");
  joined.def_static(
            "of", [](const Face& f) { return f.joined(); }, "communicator"_a, "That of a communicator.")
      .def_prop_ro(
          "busy", [](const Joined& j) { return j.body().has_started(); }, nb::call_guard<nb::gil_scoped_release>(),
          "Whether a started call, send or receive has not finished yet.")
      .def(
          "check_users", [](const Joined& j) { unwrap(j.body().check_users()); },
          "Raises an error if the process of a rank is no longer of this user.")
      .def(
          "find_program",
          [](Joined& j, std::string_view name, std::size_t count, std::string_view dtype, bool in_place,
             std::uint32_t root) {
            const select::CallShape shape = shape_of(j, name, count, dtype, in_place, root);
            return without_gil([&] { return j.body().engine(shape); });
          },
          nb::rv_policy::reference_internal, "collective"_a, "count"_a, "dtype"_a, "in_place"_a, "root"_a,
          "The program that serves a call.")
      .def(
          "find_own",
          [](Joined& j, const model::Collective& custom, std::string condition, std::size_t count,
             std::string_view dtype) {
            const auto shape = own_shape_of(j, custom, std::move(condition), count, dtype);
            return without_gil([&] { return j.body().engine(shape); });
          },
          nb::rv_policy::reference_internal, "custom"_a, "condition"_a, "count"_a, "dtype"_a,
          "The program that serves a call of a custom collective of this condition.")
      .def(
          "recipe_of_own",
          [](Joined& j, const model::Collective& custom, std::string condition, std::size_t count,
             std::string_view dtype) {
            return unwrap(j.body().recipe(own_shape_of(j, custom, std::move(condition), count, dtype)));
          },
          "custom"_a, "condition"_a, "count"_a, "dtype"_a, "The same for an engine of devices.")
      .def(
          "explain_own",
          [](Joined& j, const model::Collective& custom, std::string condition, std::size_t count,
             std::string_view dtype) {
            const auto shape = own_shape_of(j, custom, std::move(condition), count, dtype);
            return without_gil([&] { return j.body().explain(shape); });
          },
          "custom"_a, "condition"_a, "count"_a, "dtype"_a, "Why it does.")
      .def(
          "explain_call",
          [](Joined& j, std::string_view name, std::size_t count, std::string_view dtype, bool in_place,
             std::uint32_t root, nb::handle of_blocks, std::size_t arrays) {
            const auto kind = unwrap(model::parse_collective(name));
            const auto type = parse_reduction(dtype).type;
            std::optional<std::vector<std::uint64_t>> counts;
            if (!of_blocks.is_none())
              counts = unwrap(comm::all_counts(kind, *counts_of(of_blocks, "counts"), j.body().size()));
            if (counts) unwrap(j.body().check_v(kind, *counts, type, root));
            const select::CallShape shape = counts ? unwrap(j.body().v_shape(kind, *counts, type, in_place, root))
                                                   : shape_of(j, name, count, dtype, in_place, root);
            const std::string many = arrays != 0 ? " in " + std::to_string(arrays) + " arrays" : "";
            std::array<char, 64> skew{};
            if (counts) std::snprintf(skew.data(), skew.size(), " with a skew of %.3g", shape.skew);
            const std::string what = counts ? "blocks" + std::string(skew.data()) : std::to_string(count);
            const std::string text = std::string(name) + " of " + what + " " + std::string(dtype) + many + " (" +
                                     std::to_string(shape.size) + " B), " +
                                     select::ranks_text(shape.ranks, shape.ranks) + ", " +
                                     (in_place ? "in place" : "out of place");
            return without_gil([&] {
              return arrays != 0 ? j.body().explain_many(shape, arrays, text) : j.body().explain(shape, text);
            });
          },
          "collective"_a, "count"_a, "dtype"_a, "in_place"_a, "root"_a, "counts"_a.none() = nb::none(), "arrays"_a = 0)
      .def("load_proven", &load_program<ir::Program>, "program"_a, "first"_a, "end"_a.none(), "source"_a, "text"_a,
           "Collective: a verified program serves the calls of its collective from now on.")
      .def("load_proven", &load_program<ir::ClassProgram>, "program"_a, "first"_a, "end"_a.none(), "source"_a, "text"_a,
           "The same of one of which a rank stands for all.")
      .def(
          "time_v",
          [](Joined& j, ProcessProgram& program, std::string_view name, std::vector<std::uint64_t> counts,
             const std::vector<std::uintptr_t>& input, const std::vector<std::uintptr_t>& output,
             std::string_view dtype, const Operation& op, std::uint32_t warmup, std::uint32_t iterations) {
            const comm::VCall call = v_call(name, std::move(counts), input, output, dtype, op, 0, {});
            return without_gil([&] { return j.body().time(program, call, warmup, iterations, interrupted); });
          },
          "program"_a, "collective"_a, "counts"_a, "input"_a, "output"_a, "dtype"_a, "op"_a, "warmup"_a, "iterations"_a,
          "Collective: the seconds of each of `iterations` such calls on this rank, each after a barrier.")
      .def(
          "split_off",
          [](Joined& j, std::optional<std::uint32_t> color, std::int64_t key) -> std::optional<Joined> {
            auto made = without_gil([&] { return j.body().split(color, key, interrupted); });
            if (made == nullptr) return std::nullopt;
            return Joined(std::move(made));
          },
          "color"_a.none(), "key"_a,
          "Collective: a communicator of the ranks with the same color; None for a rank whose color is None.")
      .def(
          "group_of",
          [](Joined& j, const std::vector<std::uint32_t>& ranks, const std::string& name, std::optional<double> timeout,
             const std::string& place) {
            return Joined(without_gil([&] { return j.body().group(ranks, name, timeout, interrupted, place); }));
          },
          "ranks"_a, "name"_a, "timeout"_a.none(), "place"_a,
          "Collective among `ranks` only: a communicator of these ranks.")
      .def(
          "describe",
          [](Joined& j, const std::string& text, bool elements) {
            without_gil([&] { return j.body().describe(text, elements); });
          },
          "text"_a, "elements"_a = false,
          "In the order of calls: ranks whose texts differ learn it with their next call. `elements`: the text is the\n"
          "type of its elements, which are moved as bytes.")
      .def(
          "refuse", [](Joined& j, const Diagnostic& problem) { refuse(j.body(), problem); }, "problem"_a,
          "In the order of calls: that this rank does not make a call, because its arguments are wrong.")
      .def(
          "shrunk",
          [](Joined& j, std::optional<double> timeout, const Diagnostic* refused) {
            return Joined(without_gil([&] { return j.body().shrink(timeout, interrupted, refused); }));
          },
          "timeout"_a.none(), "refused"_a.none() = nb::none(),
          "Collective among the ranks that are left: a communicator of these. With `refused`, why this rank's call is "
          "wrong, it only tells the others that.")
      .def(
          "allocate",
          [](Joined& j, std::uint64_t bytes) {
            return as_bytes(without_gil([&] { return j.body().allocate(bytes); }), bytes);
          },
          nb::sig("def allocate(self, bytes: int) -> gc3.datatypes.Array"), "bytes"_a,
          "Memory that all ranks can read.")
      .def(
          "settle",
          [](Joined& j, bool closes) {
            without_gil([&]() -> Status {
              if (closes) GC3_CHECK(j.body().check_close());
              GC3_CHECK(j.body().settle(interrupted));
              return j.body().usable();
            });
          },
          "closes"_a = false,
          "Waits until started calls have finished, successfully or not. `closes`: fails where `close` would.")
      .def("abort", [](Joined& j) { j.body().abort(); }, nb::call_guard<nb::gil_scoped_release>());
  bind_programs(joined);
  bind_collectives(m, communicator);
  bind_messages(m, communicator, joined);
  bind_v_calls(joined);
  bind_calls(joined);
}

}  // namespace gc3::bindings
