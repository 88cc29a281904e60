"""The layer check finds every kind of violation in a small tree; `make lint` runs it on this project."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_files
import check_layers

pytestmark = pytest.mark.python_only

CMAKE = "gc3_layer(base)\ngc3_layer(model base)\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with the same folders and no violation."""
    for name, text in {
        "CMakeLists.txt": CMAKE,
        "cpp/gc3/base/result.h": "#pragma once\n",
        "cpp/gc3/model/types.h": '#include "gc3/base/result.h"\n',
        "cpp/gc3/ir/program.h": '#include "gc3/model/types.h"\n#include "gc3/base/result.h"\n',
        "cpp/gc3/compiler/trace.h": '#include "gc3/model/types.h"\n',
        "bindings/module.cc": '#include "gc3/compiler/trace.h"\n',
        "python/gc3/__init__.py": "from gc3 import collectives\n",
        "python/gc3/collectives.py": "from gc3 import _core, errors\n",
        "python/gc3/lang/__init__.py": "from gc3.lang.build import compile\n",
        "python/gc3/cli/main.py": "from gc3 import __version__, collectives\n",
    }.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_tree_in_order_has_no_violations(tree: Path) -> None:
    assert check_layers.violations(tree) == []


def test_modules_that_import_each_other_are_found(tree: Path) -> None:
    write(tree, "python/gc3/lang/a.py", "def f():\n    from gc3.lang import b\n")
    write(tree, "python/gc3/lang/b.py", "from .a import f\n")
    (found,) = check_layers.violations(tree)
    assert "modules import each other: gc3.lang." in found
    write(tree, "python/gc3/lang/b.py", "from gc3 import collectives\n")
    assert check_layers.violations(tree) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cpp/gc3/base/up.h", '\n#include "gc3/ir/program.h"\n', "up.h:2: layer base may not include gc3/ir/program.h"),
        ("cpp/gc3/verify/a.cc", '#include "gc3/compiler/trace.h"\n', "layer verify may not include"),
        ("cpp/gc3/runtime/core/hosts/a.h", '#include "gc3/ir/program.h"\n', "layer runtime/core/hosts may not include"),
        ("cpp/gc3/ir/a.cc", '#include "program.h"\n', 'by their path from cpp/, as "gc3/..."'),
        ("cpp/gc3/ir/a.cc", '#include "gc3/ir/nowhere.h"\n', 'by their path from cpp/, as "gc3/..."'),
        ("cpp/gc3/extra/a.h", "", "in no layer"),
        ("cpp/gc3/ir/a.cc", 'auto x = std::getenv("GC3_X");\n', "only cpp/gc3/base/knobs.cc reads the environment"),
        ("bindings/a.cc", 'auto x = getenv("GC3_X");\n', "only cpp/gc3/base/knobs.cc reads the environment"),
        ("CMakeLists.txt", "gc3_layer(base model)\n", "CMakeLists.txt:1: layer base may not link model"),
        ("CMakeLists.txt", "gc3_layer(extra)\n", "extra is no layer"),
        ("python/gc3/collectives.py", "import gc3.lang\n", "layer collectives may not import gc3.lang"),
        ("python/gc3/lang/a.py", "from ..cli import main\n", "layer lang may not import gc3.cli"),
        ("python/gc3/lang/a.py", "def f():\n    from gc3.cli import main\n", "a.py:2: layer lang may not import"),
        ("python/gc3/lang/a.py", "from gc3 import compile\n", "layer lang may not import gc3.compile"),
        ("python/gc3/sim/a.py", "from gc3.sim.fit import b\n", "the rest of sim may not import gc3.sim.fit"),
        ("python/gc3/__init__.py", "import gc3.report\n", "layer __init__ may not import gc3.report"),
        ("python/gc3/extra.py", "", "extra is no layer"),
        (
            "python/gc3/runtime/program.py",
            "import os\nos.environ['X']\n",
            "program.py:2: os.environ: only gc3.support.knobs",
        ),
        ("python/gc3/runtime/program.py", "from os import getenv\n", "program.py:1: os.getenv: only gc3.support.knobs"),
    ],
)
def test_a_violation_is_found_and_nothing_else(tree: Path, name: str, text: str, expected: str) -> None:
    write(tree, name, text)
    [found] = check_layers.violations(tree)
    assert expected in found
    assert found.startswith(name + ":")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("docs/a.md", "look\nin /ho" + "me/me/gc3\n", "docs/a.md:2: /ho" + "me/: a path of one machine"),
        ("cpp/gc3/base/a.cc", 'read("..' + '/shared/data");\n', "a path of one machine"),
        ("python/gc3/long.py", "\n" * 501, "python/gc3/long.py:500: 501 lines"),
    ],
)
def test_a_file_that_breaks_a_rule_is_found(tree: Path, name: str, text: str, expected: str) -> None:
    write(tree, name, text)
    [found] = check_files.violations(tree)
    assert expected in found


def test_two_test_files_of_one_name_are_found(tree: Path) -> None:
    write(tree, "tests/a/test_x.py", "")
    write(tree, "tests/b/test_x.py", "")
    assert check_files.violations(tree) == ["tests/b/test_x.py:1: tests/a/test_x.py has the same name: rename one"]
