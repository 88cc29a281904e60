"""Writes the list of NCCL's functions, nccl_api.def, and those of each version, tests/data/nccl_symbols.json.

    python tools/nccl_api.py VERSION=LIBRARY...    e.g. 2.30.7=wheel/nvidia/nccl/lib/libnccl.so.2, oldest first

The names are the symbols that the libraries export. Those that exports.cc defines are marked as taken.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from gc3.nccl import exported

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "cpp" / "gc3" / "nccl" / "nccl_api.def"
SYMBOLS = ROOT / "tests" / "data" / "nccl_symbols.json"
HEAD = """\
// The functions of NCCL {first} to {last}, by name. Made by tools/nccl_api.py from the symbols of those libraries.
//
// GC3_NCCL_TAKEN(name): exports.cc defines it; pncclX is forwarded.
// GC3_NCCL_FORWARDED(name): both are forwarded to the NCCL below, whatever their parameters.
"""


def taken() -> set[str]:
    """Returns the functions of NCCL that exports.cc defines."""
    return set(re.findall(r"\b(nccl\w+)\(", (ROOT / "cpp" / "gc3" / "nccl" / "exports.cc").read_text()))


def text(versions: dict[str, list[str]]) -> str:
    """Returns the list for names by version."""
    names = sorted({name for found in versions.values() for name in found})
    rows = [f"GC3_NCCL_{'TAKEN' if name in taken() else 'FORWARDED'}({name})" for name in names]
    return HEAD.format(first=next(iter(versions)), last=list(versions)[-1]) + "\n".join(rows) + "\n"


def main() -> int:
    """Writes both files."""
    versions: dict[str, list[str]] = {}
    for argument in sys.argv[1:]:
        version, _, library = argument.partition("=")
        versions[version] = sorted(name for name in exported(Path(library)) if name.startswith("nccl"))
    LIST.write_text(text(versions))
    SYMBOLS.write_text(json.dumps(versions, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
