"""Checks that the layers depend on each other only as the architecture allows.

One folder is one layer; one of several folders is one library, and its folders have an order as well. The tables below
are the rules, and the link dependencies in CMakeLists.txt must match them.
Only the knobs read the environment. Prints one line for each violation and exits with 1 if there is any.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from reporting import report

ROOT = Path(__file__).resolve().parent.parent

# Layers of cpp/gc3 and the layers that their files may include (what those may include comes with them).
CPP_LAYERS: Mapping[str, tuple[str, ...]] = {
    "base": (),
    "model": ("base",),
    "ir": ("model",),
    "compiler": ("ir",),
    "verify": ("ir",),
    "sim": ("ir",),
    "synth": ("base",),
    "runtime/interp": ("ir",),
    "runtime/core/waiting": ("base",),
    "runtime/core/sharing": ("runtime/core/waiting",),
    "runtime/core/meeting": ("runtime/core/sharing",),
    "runtime/core/hosts": ("runtime/core/meeting",),
    "runtime/core": ("ir", "runtime/core/hosts"),
    "transport": ("runtime/core",),
    "runtime/p2p": ("transport",),
    "runtime/select": ("ir",),
    "runtime/cpu": ("runtime/interp", "transport"),
    "runtime/direct": ("runtime/cpu",),
    "runtime/cuda": ("runtime/interp", "transport"),
    "comm": ("verify", "runtime/select", "runtime/direct", "runtime/p2p"),
    "nccl": ("verify", "runtime/select", "runtime/cuda"),
    "nccl_tuner": ("base",),
}

_BASICS = ("_core", "errors", "support")
_PROGRAM = (*_BASICS, "collectives", "datatypes", "runtime")

# Modules and packages of python/gc3 and what they may import; "*" is everything but the front ends.
PYTHON_LAYERS: Mapping[str, tuple[str, ...]] = {
    "_core": (),
    "errors": ("_core",),
    "support": ("_core", "errors"),
    "datatypes": _BASICS,
    "properties": (*_BASICS, "datatypes"),
    "computing": (*_BASICS, "properties"),
    "collectives": (*_BASICS, "computing"),
    "topologies": (*_BASICS, "collectives"),
    "runtime": (*_BASICS, "computing", "properties", "collectives", "datatypes", "mscclpp"),
    "mscclpp": _BASICS,
    "lang": (*_BASICS, "collectives", "runtime"),
    "algorithms": (*_BASICS, "collectives", "lang"),
    "mscclang": (*_BASICS, "collectives", "topologies", "lang", "runtime"),
    "synth": (*_BASICS, "collectives", "topologies", "lang", "runtime"),
    "cuda": _PROGRAM,
    "comm": (*_PROGRAM, "lang", "algorithms", "cuda"),
    "nccl": (*_PROGRAM, "comm", "cuda"),
    "sim": (*_PROGRAM, "computing", "topologies", "lang", "algorithms", "synth"),
    "torch": (*_PROGRAM, "computing", "lang", "comm", "sim"),
    "tune": (*_PROGRAM, "topologies", "lang", "algorithms", "synth", "sim", "comm"),
    "report": ("*", "__init__"),
    "cli": ("*", "__init__", "report"),
    "__init__": ("*",),
    "__main__": ("*", "cli"),
}
# Folders that the rest of their package may not import.
APART = ("gc3.sim.fit",)
FRONT_ENDS = ("cli", "report", "__init__", "__main__")

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
CMAKE_LAYER = re.compile(r"^\s*gc3_layer\(([^)]+)\)", re.MULTILINE)
CPP_ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\benviron\b")


def closure(layers: Mapping[str, tuple[str, ...]], layer: str) -> set[str]:
    """Returns `layer` and every layer it may use, directly or not."""
    found: set[str] = set()
    todo = [layer]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(layers[name])
    return found


def cpp_layer(path: str) -> str | None:
    """Returns the layer of a path below cpp/gc3, or None for a file outside every layer."""
    fits = [layer for layer in CPP_LAYERS if path.startswith(layer + "/")]
    return max(fits, key=len) if fits else None


def line_of(text: str, offset: int) -> int:
    """Returns the number of the line that `offset` lies in."""
    return text.count("\n", 0, offset) + 1


def check_includes(root: Path) -> Iterator[str]:
    """Yields the C++ includes that point upwards, sideways or nowhere."""
    base = root / "cpp" / "gc3"
    files = [p for p in sorted(base.rglob("*")) if p.suffix in {".h", ".cc", ".cu", ".cuh", ".def", ".inc"}]
    for path in files:
        name = path.relative_to(base).as_posix()
        layer = cpp_layer(name)
        if layer is None:
            if "/" in name:
                yield f"{path.relative_to(root)}:1: in no layer: add the folder to tools/check_layers.py"
            continue
        text = path.read_text()
        allowed = closure(CPP_LAYERS, layer)
        for match in INCLUDE.finditer(text):
            where = f"{path.relative_to(root)}:{line_of(text, match.start(1))}"
            included = match.group(1)
            target = cpp_layer(included.removeprefix("gc3/"))
            if not included.startswith("gc3/") or not (root / "cpp" / included).is_file():
                yield f'{where}: "{included}": include project files by their path from cpp/, as "gc3/..."'
            elif target not in allowed:
                yield f"{where}: layer {layer} may not include {included} (layer {target})"


def check_cmake(root: Path) -> Iterator[str]:
    """Yields the link dependencies of CMakeLists.txt that the table does not allow."""
    names = {layer.replace("/", "_"): layer for layer in CPP_LAYERS}
    text = (root / "CMakeLists.txt").read_text()
    for match in CMAKE_LAYER.finditer(text):
        layer, *dependencies = match.group(1).split()
        where = f"CMakeLists.txt:{line_of(text, match.start(1))}"
        if layer not in CPP_LAYERS:
            if layer != "folder":  # the definition of gc3_layer itself
                yield f"{where}: {layer} is no layer"
            continue
        for dependency in dependencies:
            if names.get(dependency) not in closure(CPP_LAYERS, layer):
                yield f"{where}: layer {layer} may not link {dependency}"


def imported_modules(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Yields line and full name of everything of gc3 that a module of `package` imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names: Iterable[str] = (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                source = ".".join([*parents, source] if source else parents)
            names = (f"{source}.{alias.name}" for alias in node.names)  # a module, or a name in the module `source`
        else:
            continue
        yield from ((node.lineno, name) for name in names if name == "gc3" or name.startswith("gc3."))


def check_imports(root: Path) -> Iterator[str]:
    """Yields the Python imports that point upwards."""
    base = root / "python" / "gc3"
    for path in sorted(base.rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        layer = "__main__" if parts[-1] == "__main__" else parts[0]  # a front end, of a package as well
        if layer not in PYTHON_LAYERS:
            yield f"{path.relative_to(root)}:1: {layer} is no layer: add it to tools/check_layers.py"
            continue
        allowed = {layer, *PYTHON_LAYERS[layer]}
        if "*" in allowed:
            allowed |= {name for name in PYTHON_LAYERS if name not in FRONT_ENDS}
        package = ".".join(("gc3", *parts[:-1]))
        for line, name in imported_modules(ast.parse(path.read_text()), package):
            target = name.split(".")[1] if "." in name else "__init__"
            if target not in PYTHON_LAYERS:
                target = "__init__"
            if target not in allowed:
                yield f"{path.relative_to(root)}:{line}: layer {layer} may not import {name} (layer {target})"
            for folder in APART:
                if name.startswith(folder) and target == layer and not package.startswith(folder):
                    yield f"{path.relative_to(root)}:{line}: the rest of {layer} may not import {folder}"


def check_circles(root: Path) -> Iterator[str]:
    """Yields a circle of Python modules that import each other, if there is one; types count as well."""
    files = {path: path.relative_to(root / "python").with_suffix("").parts for path in root.glob("python/gc3/**/*.py")}
    modules = {".".join(parts).removesuffix(".__init__"): path for path, parts in files.items()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        for _, name in imported_modules(ast.parse(path.read_text()), ".".join(files[path][:-1])):
            found = name if name in modules else name.rpartition(".")[0]
            if found in modules and found != "gc3":  # the package itself only lists public names
                graph[module].add(found)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        yield f"python/gc3: modules import each other: {' <- '.join(circle.args[1])}"


def check_environment(root: Path) -> Iterator[str]:
    """Yields the places that read the environment outside the knobs."""
    for folder in ("cpp", "bindings"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cc", ".cu", ".cuh"} or path.match("cpp/gc3/base/knobs.*"):
                continue
            text = path.read_text()
            for match in CPP_ENVIRONMENT.finditer(text):
                where = f"{path.relative_to(root)}:{line_of(text, match.start())}"
                yield f"{where}: {match.group()}: only cpp/gc3/base/knobs.cc reads the environment"
    for path in sorted((root / "python").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names: tuple[str, ...] = ()
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                names = (node.attr,)
            elif isinstance(node, ast.ImportFrom) and node.module == "os":
                names = tuple(alias.name for alias in node.names)
            for name in {"environ", "environb", "getenv", "getenvb"}.intersection(names):
                yield (
                    f"{path.relative_to(root)}:{getattr(node, 'lineno', 1)}: os.{name}: "
                    "only gc3.support.knobs reads the environment"
                )


def violations(root: Path) -> list[str]:
    """Returns every violation in the tree below `root`."""
    return [
        *check_includes(root),
        *check_cmake(root),
        *check_imports(root),
        *check_circles(root),
        *check_environment(root),
    ]


if __name__ == "__main__":
    sys.exit(report(violations(ROOT)))
