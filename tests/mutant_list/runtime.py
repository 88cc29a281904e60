"""Defects of the runtime's core and of communicators: messages about other ranks, kept memory, the order of calls."""

from mutant_list import Mutant

_CORE = "cpp/gc3/runtime/core/"
_TESTS = ("gc3_runtime_core_test",)
_DEVICES = ("tests/cuda/test_cuda_communicator.py",)

MUTANTS = (
    Mutant(
        "call-record-without-root",
        _CORE + "call_record.h",
        "static_cast<std::uint64_t>(in_place) << 31U | static_cast<std::uint64_t>(root) << 32U;",
        "static_cast<std::uint64_t>(in_place) << 31U;",
        _TESTS,
    ),
    Mutant(
        "call-record-in-place-lost",
        _CORE + "call_record.cc",
        "record.in_place = (packed >> 31U & 1U) != 0;",
        "record.in_place = (packed >> 30U & 1U) != 0;",
        _TESTS,
    ),
    Mutant(
        "call-record-root-of-scatter",
        _CORE + "call_record.cc",
        " || collective == Collective::scatter;",
        ";",
        _TESTS,
    ),
    Mutant(
        "heap-never-reuses",
        _CORE + "sharing/heap.cc",
        "  if (const auto freed = pop(window, file, size.index)) return Extent{*freed, rounded};\n",
        "",
        _TESTS,
    ),
    Mutant(
        "heap-keeps-the-memory-of-what-is-freed",
        _CORE + "sharing/heap.cc",
        "madvise(at + kPage, rest, MADV_REMOVE) != 0",
        "rest > 0",
        _TESTS,
    ),
    Mutant(
        "available-memory-last-group-counts",
        _CORE + "sharing/available_memory.cc",
        "available = std::min(available, *limit - std::min(*limit, taken));",
        "available = *limit - std::min(*limit, taken);",
        _TESTS,
    ),
    Mutant(
        "progress-in-turn-beside-the-call-under-way",
        "cpp/gc3/comm/communicator.cc",
        "if (!busy()) return work();",
        "if (closed_ || !busy() || size() > 0) return work();",
        ("tests/comm/test_communicator.py -k asynchronous",),
    ),
    Mutant(
        "progress-forgets-what-waits-at-its-end",
        _CORE + "waiting/progress.cc",
        "if (waiting.empty()) return;",
        "if (stopping || waiting.empty()) return;",
        _TESTS,
    ),
    Mutant(
        "group-one-turn",
        _CORE + "group.cc",
        """  RankBlock::Turn& mine = own_->turns[number % 2];
  for (std::size_t i = 0; i < own.size(); ++i) store(mine.payload[i], own[i]);
  store(mine.chain, chain_);
  store(mine.number, number, std::memory_order_release);
  bells_.ring();
  tell_hosts();
  std::vector<Payload> all(size());
  Waiter waiter(*this, interrupted);
  waiter.post_nothing();
  waiter.is_of_small_call();
  bool same = true;
  for (std::uint32_t r = 0; r < size(); ++r) {
    const RankBlock::Turn& turn = block(r).turns[number % 2];
""",
        """  RankBlock::Turn& mine = own_->turns[0];
  for (std::size_t i = 0; i < own.size(); ++i) store(mine.payload[i], own[i]);
  store(mine.chain, chain_);
  store(mine.number, number, std::memory_order_release);
  bells_.ring();
  tell_hosts();
  std::vector<Payload> all(size());
  Waiter waiter(*this, interrupted);
  waiter.post_nothing();
  waiter.is_of_small_call();
  bool same = true;
  for (std::uint32_t r = 0; r < size(); ++r) {
    const RankBlock::Turn& turn = block(r).turns[0];
""",
        _TESTS,
    ),
    Mutant(
        "waiter-stay-gathered",
        _CORE + "waiter.h",
        "if (cores_) cores_->keep_here();",
        "",
        _TESTS,
    ),
    Mutant(
        "bells-clear-and-do-not-wake",
        _CORE + "waiting/bells.cc",
        "if (before == 0) continue;",
        "if (before != 0 || others == 0) continue;",
        _TESTS,
    ),
    Mutant(
        "program-rings-without-a-post",
        "cpp/gc3/runtime/cpu/process_turns.cc",
        "if constexpr (!kBetweenHosts) waiter.post_nothing();",
        "",
        ("gc3_runtime_cpu_test '-tc=*bits of Bells*'",),
    ),
    Mutant(
        "group-keys-without-sign",
        _CORE + "group.cc",
        "return static_cast<std::int64_t>(wishes[a][1]) < static_cast<std::int64_t>(wishes[b][1]);",
        "return wishes[a][1] < wishes[b][1];",
        _TESTS,
    ),
    Mutant(
        "group-first-difference-not-looked-for",
        _CORE + "group_failures.cc",
        "if (!own || !theirs || *own == *theirs) break;",
        "if (!own || !theirs || *own != *theirs) break;",
        _TESTS,
    ),
    Mutant(
        "group-memory-never-given-back",
        _CORE + "group.cc",
        "    if (!spans || e.offset != extents_.front().offset) job_->discard(e);\n",
        "    if (spans) job_->discard(e);\n",
        _TESTS,
    ),
    Mutant(
        "group-counts-the-time-in-which-it-was-stopped",
        _CORE + "waiting/wait_policy.h",
        "if (now - read_ > kLongestGap) start_ += now - read_ - kLongestGap;",
        "if (now - read_ > kLongestGap) start_ += Clock::duration::zero();",
        _TESTS,
    ),
    Mutant(
        "group-finished-rank-of-a-lost-host",
        _CORE + "group_failures.cc",
        "return !long_wait || is_here(r) ||",
        "return true ||",
        ("gc3_runtime_core_test -tc=*host*",),
    ),
    Mutant(
        "group-busy-and-absent-mixed-up",
        _CORE + "group_failures.cc",
        "load(block(r).begun, std::memory_order_acquire) < sequence_ ? absent : busy;",
        "load(block(r).begun, std::memory_order_acquire) <= sequence_ ? absent : busy;",
        _TESTS,
    ),
    Mutant(
        "rings-enter-nodes-at-one-rank",
        "python/gc3/algorithms/_ring.py",
        "(c * G // rails + g) % G for n",
        "g for n",
        ("tests/lang/test_algorithms.py",),
    ),
    Mutant(
        "table-order-of-first-node-only",
        "python/gc3/comm/spec.py",
        "return [order[n + r] if order else n + r for n",
        "return [order[n + r] if order else r for n",
        ("tests/comm/test_selection.py",),
    ),
    Mutant(
        "table-own-rows-last",
        "python/gc3/comm/selection.py",
        "return Table(read_rows(path) + Table.default().rows)",
        "return Table(Table.default().rows + read_rows(path))",
        ("tests/comm/test_selection.py",),
    ),
    Mutant(
        "direct-keeps-the-buffers-of-the-last-call",
        "cpp/gc3/runtime/direct/process_job.cc",
        "(at == found.at[b] && bytes == found.bytes[b])",
        "bytes == found.bytes[b]",
        ("gc3_runtime_direct_test",),
    ),
    Mutant(
        "direct-takes-buffers-of-another-call",
        "cpp/gc3/runtime/direct/process_job.cc",
        "  GC3_CHECK(group().check_same(rank));\n",
        "",
        ("gc3_runtime_direct_test",),
    ),
    Mutant(
        "select-a-one-sided-row-for-messages",
        "cpp/gc3/runtime/select/selection.cc",
        "if (!row->recipe->lower && row->serves(call)) return row.get();",
        "if (row->serves(call)) return row.get();",
        ("gc3_runtime_select_test",),
    ),
    Mutant(
        "comm-asks-a-recipe-for-every-call",
        "cpp/gc3/comm/communicator.cc",
        "  if (found.program == nullptr) {\n    GC3_ASSIGN(const ir::ClassProgram",
        "  if (true) {\n    GC3_ASSIGN(const ir::ClassProgram",
        ("gc3_comm_test",),
    ),
    Mutant(
        "comm-remembers-after-a-load",
        "cpp/gc3/comm/communicator.cc",
        "  remembered_ = {};\n",
        "",
        ("gc3_comm_test",),
    ),
    Mutant(
        "comm-checks-no-v-call-after-the-first",
        "cpp/gc3/comm/v_calls.cc",
        "known.call.is_like(call)",
        "known.call.kind == call.kind",
        ("gc3_comm_test",),
    ),
    Mutant(
        "comm-remembers-a-v-call-after-a-load",
        "cpp/gc3/comm/communicator.cc",
        "  checked_ = {};\n",
        "",
        ("gc3_comm_test",),
    ),
    Mutant(
        "fingerprint-without-the-job's-key",
        "cpp/gc3/runtime/cpu/process_program.cc",
        "const Digest keyed = hmac_sha256(key, as_text(all.finish()));",
        "const Digest keyed = key.empty() ? Digest{} : all.finish();",
        ("gc3_runtime_cpu_test -tc=*fingerprint*",),
    ),
    Mutant(
        "job-key-never-drawn",
        _CORE + "hosts/job.cc",
        "  GC3_ASSIGN(job->header().key, Handshake::new_nonce());\n",
        "",
        ("gc3_runtime_cpu_test -tc=*fingerprint*",),
    ),
    Mutant(
        "programs-compared-by-tags-alone",
        "cpp/gc3/runtime/cpu/process_program.cc",
        "  GC3_CHECK(group.exchange({}, interrupted));\n  const bool has_core_each",
        "  const bool has_core_each",
        ("gc3_runtime_cpu_test '-tc=*load different programs*'",),
    ),
    Mutant(
        "handle-keeps-the-arrays",
        "bindings/bind_processes.cc",
        "  face.forget();\n",
        "",
        ("tests/comm/test_communicator.py -k released",),
    ),
    Mutant(
        "spawn-output-not-on-a-page",
        "python/gc3/comm/tool_ranks.py",
        "start = 0 if first is None else -(-first.size // mmap.PAGESIZE) * mmap.PAGESIZE",
        "start = 0 if first is None else first.size",
        ("tests/comm/test_tool_ranks.py",),
    ),
    Mutant(
        "tables-agree-on-other-programs",
        "cpp/gc3/runtime/select/row.cc",
        " + recipe_->text);",
        ");",
        ("gc3_runtime_select_test",),
    ),
    Mutant(
        "one-sided-calls-without-their-room",
        "cpp/gc3/runtime/cuda/rank_engine.cc",
        "mix64(mix64(what) ^ one_sided->stride())",
        "mix64(mix64(what))",
        _DEVICES,
    ),
    Mutant(
        "one-sided-calls-not-compared",
        "cpp/gc3/runtime/cuda/device/one_sided.h",
        "s == tb.step_count && index == 0 && !same_call(platform, launch, call);",
        "false;",
        ("gc3_runtime_cuda_test", "--source-file=*one_sided*"),
    ),
    Mutant(
        "one-sided-rooms-used-before-all-have-them",
        "python/gc3/comm/devices.py",
        "self._all_do(lambda: engine.share(rooms))  # if",
        "engine.share(rooms)  # if",
        _DEVICES,
    ),
    Mutant(
        "switch-sums-of-other-operations",
        "cpp/gc3/runtime/cuda/device/one_sided.h",
        "const bool adds = kSums && static_cast<Fold>(launch_.fold) == Fold::sum;",
        "const bool adds = kSums;",
        _DEVICES,
    ),
    Mutant(
        "functions-get-arrays-that-others-keep",
        "bindings/operand.cc",
        "Py_REFCNT(before.ptr()) == 1 && ",
        "",
        ("tests/lang/test_compute.py",),
    ),
    Mutant(
        "kept-calls-of-any-shape",
        "bindings/bind_programs.cc",
        "if (!look.is_none() && !is_like(input, look[0], look[1])) return false;",
        "",
        ("tests/lang/test_compute.py",),
    ),
    Mutant(
        "exceptions-that-end-programs-as-errors",
        "bindings/compute_call.h",
        "if (!status.ok() && ended) throw std::move(*ended);",
        "",
        ("tests/lang/test_compute_functions.py",),
    ),
    Mutant(
        "cpp-outputs-that-overlap",
        "cpp/gc3/bound.cc",
        "if (!written || held.first >= other.last || other.first >= held.last) continue;",
        "continue;",
        ("gc3_interface_test",),
    ),
    Mutant(
        "cpp-functions-that-throw",
        "cpp/gc3/bound.cc",
        "guarded([&] { return functions[a.operation](operands, results); });",
        "functions[a.operation](operands, results);",
        ("gc3_interface_test",),
    ),
    Mutant(
        "sleepers-woken-for-messages-that-are-taken",
        "cpp/gc3/runtime/cpu/process_turns.cc",
        "const bool posted = block.take_posted() || helped || (moved && !notes_posts);",
        "const bool posted = block.take_posted() || helped || moved || notes_posts;",
        ("gc3_runtime_cpu_test", "--test-case=*sleeps in a small call*"),
    ),
    Mutant(
        "sleeps-for-the-first-message-alone",
        "cpp/gc3/runtime/cpu/process_turns.cc",
        "all |= needed_by(tasks_[live_[i]]);",
        "all |= awaited_by(tasks_[live_[i]]);",
        ("gc3_runtime_cpu_test", "--test-case=*sleeps in a small call*"),
    ),
    Mutant(
        "small-calls-that-always-sleep-from-then-on",
        "cpp/gc3/runtime/core/waiting/wait_policy.cc",
        "if (--sleeps_ == 0) blocks_",
        "if (sleeps_ == 0) blocks_",
        ("gc3_runtime_core_test", "--source-file=*wait_policy*"),
    ),
)
