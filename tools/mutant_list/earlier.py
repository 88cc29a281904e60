"""Defects that the tests once did not find."""

from mutant_list import Mutant

MUTANTS = (
    Mutant(
        "channels-fed-by",
        "cpp/gc3/compiler/passes/channels.cc",
        "(in.feeds == kUnset || in.feeds == after) && (out.fed_by == kUnset || out.fed_by == here)",
        "in.feeds == kUnset || in.feeds == after",
        ("gc3_compiler_test -tc=channels*",),
    ),
    Mutant(
        "fuse-shortest-path",
        "cpp/gc3/compiler/passes/fuse.cc",
        "reverse[send_node(i)] > reverse[send_node(chosen)]",
        "reverse[send_node(i)] < reverse[send_node(chosen)]",
        ("gc3_compiler_test -tc=fuse*",),
    ),
    Mutant(
        "sim-no-credit-time",
        "cpp/gc3/sim/execution.h",
        "      delay(b, sent_unit(b.sending).credit, Cause::credit, taker_of(b.sending));\n",
        "",
        ("gc3_sim_test",),
    ),
    Mutant(
        "xml-threadblock-limit",
        "cpp/gc3/ir/xml_targets.cc",
        "if (tbs > target_.threadblocks)",
        "if (tbs + 1 > target_.threadblocks)",
        ("gc3_ir_test -tc=xml*",),
    ),
    Mutant(
        "group-deadline-doubled",
        "cpp/gc3/runtime/core/group.cc",
        "if (waited_s > timeout_s_) return give_up",
        "if (waited_s > 2 * timeout_s_) return give_up",
        ("gc3_runtime_core_test",),
    ),
    Mutant(
        "tile-alignment",
        "cpp/gc3/runtime/interp/plan.cc",
        "  if (t.tile_elems < t.chunk_elems && t.tile_elems > line_elems) t.tile_elems -= t.tile_elems % line_elems;\n",
        "  (void)line_elems;\n",
        ("gc3_runtime_interp_test -tc=tiles*",),
    ),
    Mutant(
        "serving-first-loaded",
        "cpp/gc3/runtime/select/selection.cc",
        "rows_.insert(rows_.begin(), ",
        "rows_.insert(rows_.end(), ",
        ("gc3_runtime_select_test",),
    ),
    Mutant(
        "stepwise-place",
        "python/gc3/lang/stepwise.py",
        "_PLACE = 5",
        "_PLACE = 4",
        ("tests/test_synthesized.py",),
    ),
    Mutant(
        "task-refutes-fewer-chunks",
        "python/gc3/synth/task.py",
        "rounds <= r and chunks >= c for r, c in",
        "rounds <= r for r, _ in",
        ("tests/test_synth_search.py",),
    ),
    Mutant(
        "engines-kept",
        "python/gc3/program.py",
        "            self._engines.clear()\n",
        "",
        ("tests/test_run.py",),
    ),
    Mutant(
        "no-branch-and-bound",
        "python/gc3/synth/search.py",
        "        if rounds > math.ceil(bound.rounds) and not demand.routes:\n            group",
        "        if rounds < 0:\n            group",
        ("tests/test_synth_search.py",),
    ),
    Mutant(
        "bench-digits-of-time",
        "python/gc3/cli/bench.py",
        "2 if time < 100 else",
        "2 if time < 10 else",
        ("tests/test_measure.py",),
    ),
    Mutant(
        "bench-digits-of-bandwidth",
        "python/gc3/cli/bench.py",
        "{measurement.busbw:>9.2f}",
        "{measurement.busbw:>9.1f}",
        ("tests/test_measure.py",),
    ),
    Mutant(
        "alphabeta-with-losses",
        "python/gc3/sim/predict.py",
        "    return replace(topology, classes=classes)\n",
        "    return replace(topology, classes=topology.classes if classes else ())\n",
        ("tests/test_sim.py -k alphabeta",),
    ),
)
