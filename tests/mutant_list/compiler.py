"""Defects of the compiler: each pass differs from its definition, mostly with worse rather than wrong results."""

from mutant_list import Mutant

_PASSES = "cpp/gc3/compiler/passes/"
_TESTS = ("gc3_compiler_test",)
_DIRECT = "cpp/gc3/compiler/direct/"
_LOWERING = ("tests/direct/test_lowering.py",)

MUTANTS = (
    Mutant(
        "chunk-dag-readers-counted-twice",
        "cpp/gc3/compiler/chunk_dag.cc",
        "    if (stamp == mine) return;\n    stamp = mine;",
        "    if (stamp == mine && !carries_data) return;\n    stamp = mine;",
        _TESTS,
    ),
    Mutant(
        "chunk-dag-live-by-name",
        "cpp/gc3/compiler/chunk_dag.cc",
        "slots_.slot({r, p.index, static_cast<BufferIndex>(p.buffer)})",
        "slots_.slot({r, p.buffer == model::Buffer::output ? p.index : 0, static_cast<BufferIndex>(p.buffer)})",
        _TESTS,
    ),
    Mutant(
        "packets-added-in-an-order-of-each-rank",
        "cpp/gc3/compiler/direct/packets.cc",
        "shared_[i] ? &in_order_[i] : nullptr",
        "nullptr",
        ("tests/mscclpp/test_write.py -k one_order",),
    ),
    Mutant(
        "depth-without-messages",
        "cpp/gc3/compiler/instruction_dag.cc",
        "d.depth[to] = std::max(d.depth[to], d.depth[i] + 1);",
        "d.depth[to] = std::max(d.depth[to], d.depth[i]);",
        _TESTS,
    ),
    Mutant(
        "window-of-one-more",
        _PASSES + "window.cc",
        "(does.sends && now.sends == window)",
        "(does.sends && now.sends == window + 1)",
        _TESTS,
    ),
    Mutant(
        "window-known-too-early",
        _PASSES + "window.cc",
        "if (window > known) deps_",
        "if (window > known + 1) deps_",
        _TESTS,
    ),
    Mutant(
        "order-shortest-way-first",
        _PASSES + "order.cc",
        "return longest - d.reverse[i];",
        "return d.reverse[i] + 0 * longest;",
        _TESTS,
    ),
    Mutant(
        "order-one-slot-more",
        _PASSES + "order.cc",
        "if (fifo.under_way == slots_) {",
        "if (fifo.under_way == slots_ + 1) {",
        _TESTS,
    ),
    Mutant(
        "order-front-not-woken",
        _PASSES + "order.cc",
        "if (fifo.head != kNone && at_front_[fifo.head]) {",
        "if (fifo.head != kNone && fifo.under_way > 1 && at_front_[fifo.head]) {",
        _TESTS,
    ),
    Mutant(
        "order-all-local-work-in-one-block",
        _PASSES + "order.cc",
        "latest_[block] = ++placed_;",
        "latest_[block] = 1 + 0 * ++placed_;",
        _TESTS,
    ),
    Mutant(
        "order-sums-scattered-over-blocks",
        _PASSES + "order.cc",
        "if (!before.remote() && before.dst == op.dst && before.count == op.count) return block_of_[p];",
        "if (!before.remote() && before.src == op.dst && before.count == op.count) return block_of_[p];",
        _TESTS,
    ),
    Mutant(
        "order-blames-senders",
        _PASSES + "order.cc",
        "if (dag_.receives(node_at_[p])) out_.stuck.push_back(op_of(node_at_[p]));",
        "out_.stuck.push_back(op_of(node_at_[p]));",
        _TESTS,
    ),
    Mutant(
        "synchronize-implied-kept",
        _PASSES + "synchronize.cc",
        "return !same && clocks.knows(other, c.tb, c.step);",
        "return !same && other.tb == c.tb && clocks.knows(other, c.tb, c.step);",
        _TESTS,
    ),
    Mutant(
        "synchronize-not-transitive",
        _PASSES + "synchronize.cc",
        "      if (other.row != kNone) {\n",
        "      if (other.row != kNone && tbs_ == 0) {\n",
        _TESTS,
    ),
    Mutant(
        "threadblocks-all-joined",
        _PASSES + "threadblocks.cc",
        "if (excess > 0 && partner != receivers.end()) {",
        "if (partner != receivers.end()) {",
        _TESTS,
    ),
    Mutant(
        "threadblocks-first-is-named",
        _PASSES + "threadblocks.cc",
        "if (threadblocks.count(r) > threadblocks.count(heaviest)) heaviest = r;",
        "if (threadblocks.count(heaviest) <= limit) heaviest = r;",
        _TESTS,
    ),
    Mutant(
        "split-product-of-factors",
        _PASSES + "split.cc",
        "parts = std::lcm(parts, static_cast<std::uint64_t>(op.factor) * instances);",
        "parts = op.factor == 1 ? parts : parts * op.factor / std::gcd(parts, 2 * op.factor) * 2;",
        _TESTS,
    ),
    Mutant(
        "forward-users-copies",
        _PASSES + "forward.cc",
        "op.adapts && op.src.buffer == kInput && op.dst.buffer != kInput",
        "op.src.buffer == kInput && op.dst.buffer != kInput",
        _TESTS,
    ),
    Mutant(
        "place-results-scratch-kept",
        _PASSES + "place_results.cc",
        "trace.extents[trace_.ops[last_copy_[r]].src.buffer][r] = 0;",
        "trace.extents[trace_.ops[last_copy_[r]].src.buffer][r] += 0;",
        _TESTS,
    ),
    Mutant(
        "reuse-scratch-within-an-operation",
        _PASSES + "reuse_scratch.cc",
        "in_use.top().first < value.first",
        "in_use.top().first <= value.first",
        _TESTS,
    ),
    Mutant(
        "scratch-unused-places-kept",
        _PASSES + "synchronize.cc",
        "scratch_[b][r].assign(trace_.extents[b][r], 0);",
        "scratch_[b][r].assign(trace_.extents[b][r], 1);",
        _TESTS,
    ),
    Mutant(
        "lanes-hole-after-the-users",
        _PASSES + "lanes.cc",
        "first_free = std::max(first_free, pairs[p].second + 1);",
        "first_free = std::max(first_free, pairs[p].second + 2);",
        _TESTS,
    ),
    Mutant(
        "manual-automatic-channels-first",
        _PASSES + "manual.cc",
        "for (const bool given : {true, false}) {",
        "for (const bool given : {false, true}) {",
        _TESTS,
    ),
    Mutant(
        "pipeline-gives-fusion-up-at-once",
        "cpp/gc3/compiler/pipeline.cc",
        "constexpr int kRounds = 16;",
        "constexpr int kRounds = 1;",
        _TESTS,
    ),
    Mutant(
        "pipeline-slots-given-back-early",
        "cpp/gc3/compiler/pipeline.cc",
        """    if (s.dag.sends(n)) most = std::max(most, ++under_way[s.channels.connection_of[s.dag.nodes[n].sends]]);
    if (s.dag.receives(n)) --under_way[s.channels.connection_of[op_of(n)]];
""",
        """    if (s.dag.receives(n)) --under_way[s.channels.connection_of[op_of(n)]];
    if (s.dag.sends(n)) most = std::max(most, ++under_way[s.channels.connection_of[s.dag.nodes[n].sends]]);
""",
        _TESTS,
        equivalent="A connection leads from one rank to another, so what an instruction receives on is never what it "
        "sends on: the two lines change different counters, and the greatest is taken of one alone.",
    ),
    Mutant(
        "switch-of-ranks-without-the-own-one",
        _DIRECT + "switches.cc",
        "      if (!std::ranges::binary_search(ranks, own)) continue;\n",
        "",
        _LOWERING,
    ),
    Mutant(
        "switch-smallest-group",
        _DIRECT + "switches.cc",
        "std::ranges::stable_sort(groups, std::ranges::greater(), &Ranks::size);",
        "std::ranges::stable_sort(groups, std::ranges::less(), &Ranks::size);",
        _LOWERING,
    ),
    Mutant(
        "signals-begin-shows-nothing",
        _DIRECT + "signals.cc",
        "a.writer.tb == kNone) begun.push_back({s.rank, by_others});",
        "a.writer.tb == kNone) begun.push_back({s.rank, false});",
        _LOWERING,
    ),
    Mutant(
        "lower-two-waits-without-a-sync",
        _DIRECT + "lower.cc",
        "        if (relaxed && again(objects)) step(Op::sync, {}, false);\n        step(at_home ? Op::acquire",
        "        step(at_home ? Op::acquire",
        _LOWERING,
    ),
    Mutant(
        "proxy-forgets-its-phase",
        "cpp/gc3/verify/direct/counters.h",
        "      teller.earlier.clear();  // what was told since comes after it\n",
        "      teller.earlier.clear();\n      teller.told.clear();\n",
        ("gc3_verify_test", "--source-file=*direct*"),
    ),
)
