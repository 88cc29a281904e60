"""Defects in the comparison of values, in the verifier and in the tracer: wrong programs would pass as proven."""

from mutant_list import Mutant

_VERIFIER = ("gc3_verify_test --source-file=*soundness_test.cc",)
_TRACER = ("gc3_compiler_test --source-file=*tracer_test.cc",)

MUTANTS = (
    Mutant(
        "verifier-without-counts",
        "cpp/gc3/verify/dataflow.cc",
        "held.terms != demanded.size() || held.value",
        "held.value",
        _VERIFIER,
    ),
    Mutant(
        "verifier-by-counts-alone",
        "cpp/gc3/verify/dataflow.cc",
        "held.terms != demanded.size() || held.value != weights.sum(demanded)",
        "held.terms != demanded.size() || weights.sum(demanded) == Residue()",
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
)
