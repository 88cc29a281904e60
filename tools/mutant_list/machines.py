"""Defects of synthesis and of the simulator."""

from mutant_list import Mutant

_SIM = ("gc3_sim_test",)
_IN_SWITCH = ("tests/sim/test_in_switch.py",)
_SYNTH = ("tests/synth/test_synth_parts.py",)

MUTANTS = (
    Mutant(
        "in-switch-where-links-are-direct",
        "cpp/gc3/sim/wiring.cc",
        "if (group == kNone || way.count == 0) return",
        "if (group == kNone) return",
        _IN_SWITCH,
    ),
    Mutant(
        "in-switch-at-the-full-rate",
        "cpp/gc3/sim/serial.h",
        "std::llround(static_cast<double>(bytes) / kind.in_switch)",
        "std::llround(static_cast<double>(bytes))",
        _IN_SWITCH,
    ),
    Mutant(
        "in-switch-messages-that-wait-for-each-other",
        "cpp/gc3/verify/switched.cc",
        '    independent(groups_.multicasts, "multicast ");\n',
        "",
        _IN_SWITCH,
    ),
    Mutant(
        "in-switch-sums-that-are-read-early",
        "cpp/gc3/verify/switched.cc",
        "    untouched();\n",
        "",
        _IN_SWITCH,
    ),
    Mutant(
        "cut-slices-of-odd-bytes",
        "cpp/gc3/sim/timing.cc",
        "up((bytes + protocol.slices - 1) / protocol.slices, kGranule);",
        "up((bytes + protocol.slices - 1) / protocol.slices, 1 + 0 * kGranule);",
        _SIM,
    ),
    Mutant(
        "cut-several-chunks-into-one-message",
        "cpp/gc3/sim/timing.cc",
        "if (chunks <= most) return",
        "if (chunks <= most + chunks) return",
        _SIM,
    ),
    Mutant(
        "rendezvous-with-an-earlier-receive",
        "cpp/gc3/sim/execution.h",
        "if (!c.receiver_waits || c.next() != c.consumed) {",
        "if (!c.receiver_waits) {",
        _SIM,
    ),
    Mutant(
        "rendezvous-before-the-receiver",
        "cpp/gc3/sim/execution.h",
        "std::max(asked, there) + hop",
        "asked + hop",
        _SIM,
    ),
    Mutant(
        "together-programs-out-of-turn",
        "cpp/gc3/sim/together.cc",
        "if (at > limit || at > turn.until ||",
        "if (at > limit ||",
        _SIM,
    ),
    Mutant(
        "background-on-one-port",
        "python/gc3/sim/degrade.py",
        "(topology.all_resources[i], 1.0 / ports)",
        "(topology.all_resources[i], 1.0)",
        ("tests/sim/test_sim_together.py",),
    ),
    Mutant(
        "serial-memory-of-slots-only",
        "python/gc3/sim/parameters.py",
        "return 2 * op.receives + self.network_efficiency * buffers",
        "return 2.0 * op.receives",
        ("tests/sim/test_sim_beside.py",),
    ),
    Mutant(
        "serial-memory-never-binds",
        "cpp/gc3/sim/serial.h",
        "      if (done > end) {\n        end = done;",
        "      if (done > 2 * end) {\n        end = done;",
        _SIM,
    ),
    Mutant(
        "serial-line-later-than-the-rest",
        "cpp/gc3/sim/serial.h",
        "std::min(start + line + hop, last)",
        "start + line + hop",
        _SIM,
    ),
    Mutant(
        "fluid-credit-at-once",
        "cpp/gc3/sim/fluid.cc",
        "end + latency(transfer.in) / 2,",
        "end + 0 * latency(transfer.in),",
        _SIM,
    ),
    Mutant(
        "fluid-messages-cost-nothing",
        "cpp/gc3/sim/fluid.cc",
        "const double weight = wire + resource.message_s * resource.bytes_per_s / bytes;",
        "const double weight = wire;",
        _SIM,
    ),
    Mutant(
        "explain-first-line-as-the-whole",
        "cpp/gc3/sim/explain.cc",
        "other.delivered <= r.due ? other.delivered : other.start;",
        "std::min(other.delivered, r.due);",
        _SIM,
    ),
    Mutant(
        "alphabeta-latency-of-the-last",
        "cpp/gc3/sim/alpha_beta.cc",
        "latency = std::max(latency, classes[wire.link_class].latency_s);",
        "latency = classes[wire.link_class].latency_s;",
        _SIM,
    ),
    Mutant(
        "alphabeta-arrivals-cost-nothing",
        "cpp/gc3/sim/alpha_beta.cc",
        "      load(wire.into, traffic[end].chunks, groups.reduction, added);\n",
        "",
        _SIM,
    ),
    Mutant(
        "the-first-core-has-the-odd-rank",
        "cpp/gc3/sim/cores.h",
        "std::size_t{count} * (r + std::size_t{1}) - 1",
        "std::size_t{count} * r",
        _SIM,
    ),
    Mutant(
        "a-calibration-is-not-used-by-itself",
        "python/gc3/sim/presets.py",
        'kept("threads") if name == CPU else None',
        "None",
        ("tests/sim/test_sim_engine.py -k by_itself",),
    ),
    Mutant(
        "an-interrupted-calibration-begins-again",
        "python/gc3/sim/cpu_samples.py",
        "rest = [sample for sample in in_order if sample.name not in known]",
        "rest = in_order",
        ("tests/sim/test_sim_engine.py -k interrupted",),
    ),
    Mutant(
        "minimize-accepts-the-worst",
        "python/gc3/sim/minimize.py",
        "elif tried.value >= simplex[-2].value:",
        "elif tried.value >= simplex[-1].value:",
        ("tests/sim/test_sim_calibrate.py -k worse",),
    ),
    Mutant(
        "calibrate-held-out-on-what-was-fitted",
        "python/gc3/sim/calibrate.py",
        "held_out.append(error(fitted, rest))",
        "held_out.append(error(fitted, half if rest else rest))",
        ("tests/sim/test_sim_calibrate.py -k held_out",),
    ),
    Mutant(
        "predict-shortest-chunk",
        "python/gc3/sim/predict.py",
        "-(-count // model.chunks) * itemsize",
        "(count // model.chunks) * itemsize",
        ("tests/sim/test_sim.py::test_the_longest_chunk_is_what_is_timed",),
    ),
    Mutant(
        "nccl-channels-of-ll-rings",
        "python/gc3/sim/nccl/tuning.py",
        """    if algorithm == RING and protocol == "LL":
        per_thread *= call.ranks
""",
        "",
        ("tests/sim/test_sim_baselines.py",),
    ),
    Mutant(
        "nvls-head-carries-its-share-once",
        "python/gc3/sim/nccl/in_switch.py",
        '{"allreduce": (1 + 1 / gpus, 1 + 1 / gpus)',
        '{"allreduce": (1.0, 1.0)',
        ("tests/sim/test_sim_baselines.py -k switches",),
    ),
    Mutant(
        "nccl-sends-do-not-take-turns",
        "python/gc3/sim/nccl/sends.py",
        "before = range(max(turn - at_once, 0), turn)",
        "before = range(0)",
        ("tests/sim/test_sim_baselines.py -k turns",),
    ),
    Mutant(
        "settings-star-is-the-first",
        "python/gc3/sim/settings.py",
        'return known if owner == "*" else',
        'return known[:1] if owner == "*" else',
        ("tests/sim/test_sim_what_if.py",),
    ),
    Mutant(
        "check-forwards-within-a-step",
        "python/gc3/synth/check.py",
        """, but it is not there")
        has.update(""",
        """, but it is not there")
            has.add((chunk, dst))
        has.update(""",
        _SYNTH,
    ),
    Mutant(
        "check-combining-forwards-within-a-step",
        "python/gc3/synth/check.py",
        """        for chunk, src, dst, carried in arriving:
            mine = held.get((chunk, dst), 0)
""",
        """        for chunk, src, dst in sends:
            carried = held.get((chunk, src), 0)
            mine = held.get((chunk, dst), 0)
""",
        _SYNTH,
    ),
    Mutant(
        "pruned-latest-arrival",
        "python/gc3/synth/schedule.py",
        "arrival.setdefault((chunk, dst), (step, src))",
        "arrival[chunk, dst] = (step, src)",
        _SYNTH,
    ),
    Mutant(
        "cuts-widest-family",
        "python/gc3/synth/cuts.py",
        "at_once] = np.min([used[:, f]",
        "at_once] = np.max([used[:, f]",
        _SYNTH,
    ),
    Mutant(
        "pipeline-images-count-once",
        "python/gc3/synth/pipeline.py",
        "for _ in range(count * group.order // sizes[orbit])",
        "for _ in range(count)",
        _SYNTH,
    ),
    Mutant(
        "placing-waits-for-one-arrival",
        "python/gc3/synth/placing.py",
        "for i in arrived.get((chunk, src), ()))",
        "for i in arrived.get((chunk, src), ())[:1])",
        ("tests/synth/test_synth_pairs.py",),
    ),
    Mutant(
        "check-counts-each-message-of-a-multicast",
        "python/gc3/synth/check.py",
        "message = b, adds, chunk, dst if adds else src",
        "message = b, adds, chunk, dst",
        ("tests/synth/test_synth_in_switch.py",),
    ),
    Mutant(
        "search-refutes-multicasts-by-plain-messages",
        "python/gc3/synth/search.py",
        "return answer if answer.status == FOUND else UNDECIDED",
        "return answer",
        ("tests/synth/test_synth_in_switch.py",),
    ),
    Mutant(
        "pairs-halves-do-not-share-capacity",
        "python/gc3/synth/pairs.py",
        "for v in (room[0][orbit[e]], into(e))):",
        "for v in (room[0][orbit[e]],)):",
        ("tests/synth/test_synth_pairs.py",),
    ),
    Mutant(
        "frontier-equal-ratios-again",
        "python/gc3/synth/task.py",
        "Fraction(rounds, chunks) < below",
        "Fraction(rounds, chunks) <= below",
        _SYNTH,
    ),
    Mutant(
        "symmetry-alike-pieces",
        "python/gc3/synth/symmetry.py",
        "if len(pieces) < len(demand.pieces):",
        "if len(pieces) < 0:",
        _SYNTH,
    ),
    Mutant(
        "network-reversed-without-capacities",
        "python/gc3/synth/network.py",
        "        if alike and others == {",
        "        if alike or others == {",
        _SYNTH,
    ),
)
