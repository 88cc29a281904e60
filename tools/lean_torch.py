"""Installs PyTorch for tests on the CPU into a virtual environment: 1.5 GB instead of 5.

python tools/lean_torch.py ENVIRONMENT [REQUIREMENT]

The wheels of PyTorch for Linux are those for CUDA. This installs PyTorch and the packages that it needs without a GPU;
for each library of CUDA that its own libraries name and that is left out, it makes one with the functions that they
name, which end the process. REQUIREMENT, such as torch==2.14.1, replaces the one of pyproject.toml. If something is
missing, the only output is one line that says what, and the exit status is 1.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

LEAST_FREE = 4 << 30  # bytes: the packages, and their archives while they are unpacked
MOST_SECONDS = 240
REAL = ("cudart", "cupti", "cufile")  # libraries of some megabytes that PyTorch calls when it is imported


class CannotError(Exception):
    """Why PyTorch cannot be installed."""


def output(*command: str | Path) -> str:
    """What a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise CannotError(f"{Path(command[0]).name}: {next((line for line in lines if 'ERROR' in line), lines[-1])}")
    return done.stdout


def pip(environment: Path, *arguments: str) -> None:
    """Installs packages from files that are built already."""
    common = ("-q", "--disable-pip-version-check", "--only-binary", ":all:", "--timeout", "15", "--retries", "1")
    output(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install", *common, *arguments)


def requirements(packages: Path) -> list[str]:
    """What an installed PyTorch needs of other packages, without those for GPUs except a few libraries."""
    (about,) = packages.glob("torch-*.dist-info/METADATA")
    found: list[str] = []
    for line in re.findall(r"^Requires-Dist: (.*)", about.read_text(), re.MULTILINE):
        need, _, condition = line.partition(";")
        cuda = re.match(r"cuda-toolkit\[[^]]*\]==(\d+\.\d+)", need)
        if cuda:
            names = {"cudart": "runtime"}
            found += [f"nvidia-cu{'file' if r == 'cufile' else f'da-{names.get(r, r)}'}" for r in REAL]
            found = [f"{n}=={cuda[1]}.*" if n.endswith(("runtime", "cupti")) else n for n in found]
        elif "extra ==" not in condition and not need.startswith(("nvidia-", "cuda-", "triton")):
            found.append(need.strip())
    return found


def symbols(library: Path) -> list[tuple[str, str, bool]]:
    """The symbols of a library: name, version, and whether it defines the symbol."""
    found: list[tuple[str, str, bool]] = []
    for line in output("readelf", "-W", "--dyn-syms", library).splitlines():
        words = line.split()
        if len(words) >= 8 and words[4] in ("GLOBAL", "WEAK") and (words[6] != "UND" or words[4] == "GLOBAL"):  # noqa: PLR2004 - columns
            name, _, version = words[7].partition("@")
            found.append((name, version.lstrip("@"), words[6] != "UND"))
    return found


def of_system() -> dict[str, Path]:
    """The libraries that the loader of this system finds by their names."""
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    return {
        name: Path(path) for name, path in re.findall(r"^\s*(\S+) .*=> (\S+)", output(ldconfig, "-p"), re.MULTILINE)
    }


def missing(libraries: Iterable[Path], known: dict[str, Path]) -> dict[str, set[tuple[str, str]]]:
    """The functions, with their versions, that libraries want of each library that is not there."""
    wanted: dict[str, set[tuple[str, str]]] = {}
    loose: list[tuple[list[str], set[str]]] = []  # functions without a version, and libraries of which one has them
    there: set[str] = set()
    looked: set[Path] = set()
    for library in libraries:
        needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-W", "-d", library))
        absent = [name for name in needed if name not in known]
        wanted.update({name: wanted.get(name, set()) for name in absent})
        file_of: dict[str, str] = {}
        file = ""
        for kind, name in re.findall(r"(File|Name): (\S+)", output("readelf", "-W", "-V", library)):
            file, file_of = (name, file_of) if kind == "File" else (file, {**file_of, name: file})
        loose.append((absent, set()))
        for name, version, defined in symbols(library):
            if defined:
                there.add(name)
            elif version and file_of.get(version) in wanted:
                wanted[file_of[version]].add((name, version))
            elif not version and not name.startswith(("Py", "_Py")):
                loose[-1][1].add(name)
        looked |= {known[name] for name in needed if name in known}
    for library in looked:
        there |= {name for name, _, defined in symbols(library) if defined}
    for absent, names in loose:
        plain = [name for name in absent if all(version == "" for _, version in wanted[name])]
        if plain:
            wanted[plain[0]] |= {(name, "") for name in names - there}
    return wanted


def make(folder: Path, name: str, functions: set[tuple[str, str]]) -> None:
    """Makes a library of functions that end the process."""
    lines = [".text"]
    by_version: dict[str, list[str]] = defaultdict(list)
    for function, version in sorted(functions):
        by_version[version].append(function)
        lines += [f".globl {function}", f".type {function},@function", f"{function}:"]
    lines += ["jmp abort@PLT" if output("uname", "-m").strip() == "x86_64" else "b abort"]
    script = [f"{version} {{ global: {'; '.join(names)}; }};" for version, names in by_version.items() if version]
    with tempfile.TemporaryDirectory() as made:
        source, versions = Path(made) / "functions.s", Path(made) / "versions"
        source.write_text("\n".join(lines) + '\n.section .note.GNU-stack,"",%progbits\n')
        versions.write_text("\n".join(script))
        use = [f"-Wl,--version-script={versions}"] if script else []
        output("g++", "-shared", "-fPIC", f"-Wl,-soname,{name}", *use, source, "-o", folder / name)


def install(environment: Path, requirement: list[str]) -> str:
    """Installs it, and returns its version."""
    free = shutil.disk_usage(environment).free
    if free < LEAST_FREE:
        raise CannotError(f"{free >> 20} MiB are free on the disk of '{environment}', and it takes {LEAST_FREE >> 20}")
    for tool in ("g++", "readelf"):
        if shutil.which(tool) is None:
            raise CannotError(f"there is no {tool}")
    pip(environment, "--no-deps", *(requirement or ["--group", "torch"]))
    python = environment / "bin" / "python"
    packages = Path(output(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())
    needs = requirements(packages)
    pip(environment, "--group", "torch-tests", *(need for need in needs if not need.startswith("nvidia-")))
    pip(environment, "--no-deps", *(need for need in needs if need.startswith("nvidia-")))
    own = packages / "torch" / "lib"
    made = own / "absent"
    for old in own.glob("*.so*"):
        if old.is_symlink():  # as this makes them
            old.unlink()
    libraries = list(own.glob("*.so*"))
    known = of_system() | {path.name: path for path in (*packages.glob("nvidia/**/*.so*"), *libraries)}
    made.mkdir(exist_ok=True)
    for name, functions in missing(libraries, known).items():
        make(made, name, functions)
        (own / name).symlink_to(made / name)
    return output(python, "-c", "import torch; torch.ones(1); print(torch.__version__)").strip()


def main(environment: str, *requirement: str) -> int:
    """Returns the exit status."""
    try:
        version = install(Path(environment), list(requirement))
    except (CannotError, OSError, subprocess.TimeoutExpired) as problem:
        print(f"PyTorch is not installed: {problem}")
        return 1
    print(f"PyTorch {version} is installed in {environment}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
