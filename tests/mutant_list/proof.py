"""Defects in the comparison of values, in the verifier and in the tracer: wrong programs would pass as proven."""

from mutant_list import Mutant

_VERIFIER = ("gc3_verify_test --source-file=*soundness_test.cc",)
_CLASSES = ("gc3_verify_test --source-file=*classes_test.cc",)
_PROPERTIES = ("tests/lang/test_property_mutants.py", "tests/lang/test_properties.py")
_TRACER = ("gc3_compiler_test --source-file=*tracer_test.cc",)

MUTANTS = (
    Mutant(
        "verifier-without-counts",
        "cpp/gc3/verify/dataflow.cc",
        "a.terms == b.terms && residue",
        "residue",
        _VERIFIER,
    ),
    Mutant(
        "verifier-by-counts-alone",
        "cpp/gc3/verify/dataflow.cc",
        "a.terms == b.terms && residue(a.value) == residue(b.value)",
        "a.terms == b.terms",
        _VERIFIER,
    ),
    Mutant(
        "counts-of-terms-wrap",
        "cpp/gc3/model/terms.h",
        "sum < kManyTerms ? static_cast<std::uint32_t>(sum) : kManyTerms",
        "static_cast<std::uint32_t>(sum)",
        (*_VERIFIER, *_TRACER),
    ),
    Mutant(
        "weights-the-same-each-time",
        "cpp/gc3/verify/weights.cc",
        "  GC3_CHECK(draw_random(words));\n",
        "  for (std::size_t k = 0; k < words.size(); ++k) words[k] = 0x9e3779b97f4a7c15U * (k + 1);\n",
        _VERIFIER,
    ),
    Mutant(
        "product-of-residues-not-folded",
        "cpp/gc3/verify/weights.h",
        "(high << 1U | bottom >> 127U)",
        "(high << 1U)",
        _VERIFIER,
    ),
    Mutant(
        "tracer-without-counts",
        "cpp/gc3/compiler/tracer_result.cc",
        "cell.terms == demanded.size() && cell.value",
        "cell.value",
        _TRACER,
    ),
    Mutant(
        "tracer-with-one-form",
        "cpp/gc3/compiler/fingerprint.h",
        " && forms_[1] % kModulus == other.forms_[1] % kModulus",
        "",
        _TRACER,
    ),
    Mutant(
        "linear-without-multiplicity",
        "cpp/gc3/verify/linear.cc",
        "        longer.back().times *= times;\n",
        "",
        _PROPERTIES,
    ),
    Mutant(
        "rows-of-a-row-wise-operation-cut-anywhere",
        "cpp/gc3/model/collective.cc",
        "!call.columns && fits(properties.rowwise)",
        "fits(properties.rowwise)",
        _PROPERTIES,
    ),
    Mutant(
        "part-of-a-whole-without-its-number",
        "cpp/gc3/model/collective.cc",
        "(n == 1 ? 0 : call.part)",
        "0U",
        _PROPERTIES,
    ),
    Mutant(
        "one-rank-without-races",
        "cpp/gc3/verify/classes.cc",
        "if (!ordered_within_ranks(index, schedule, findings)) return;",
        "",
        _CLASSES,
    ),
    Mutant(
        "one-rank-by-counts-alone",
        "cpp/gc3/verify/classes.cc",
        "held.state == State::written && held.value == wanted",
        "held.state == State::written && held.terms == demanded.size()",
        _CLASSES,
    ),
    Mutant(
        "one-rank-whose-messages-are-its-own",
        "cpp/gc3/verify/classes.cc",
        "value[at] = program_.moved(model::Buffer::input, value[at], 1, sender);",
        "",
        _CLASSES,
    ),
    Mutant(
        "own-steps-received-by-rank-0",
        "cpp/gc3/runtime/interp/plan.cc",
        "sender.send_peer * count + c.recv_tb",
        "c.recv_tb",
        ("gc3_runtime_interp_test --source-file=*plan_test.cc",),
    ),
)
