"""The commands of the pages print what is shown; their sentences are short; every page leads to the glossary."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gc3.cli.main import main

pytestmark = pytest.mark.python_only

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MEASURED = re.compile(r"\d+\.\d+ (?=ms|GB/s)")
SCRIPT = """
import sys
from msccl.language import *
from msccl.language.collectives import AllReduce
from msccl.topologies import fully_connected

size = int(sys.argv[1])
with MSCCLProgram("ring", fully_connected(size), AllReduce(size, size, True), int(sys.argv[2])):
    for index in range(size):
        c = chunk(index, Buffer.input, index)
        for step in range(1, size):
            c = chunk((index + step) % size, Buffer.input, index).reduce(c)
        for step in range(size, 2 * size - 1):
            c = c.copy((index + step) % size, Buffer.input, index)
    XML()
    Check()
"""
WORDS, MEAN = 35, 15  # of a sentence
FIRST = (
    "../README",
    "index",
    "tutorial",
    "glossary",
    "language",
    "command_line",
    "algorithms",
    "topologies",
    "examples",
)
FIRST += ("coming_from", "processes", "hosts", "pytorch", "nccl", "cpp")


@pytest.fixture(autouse=True)
def _in_a_folder_with_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GC3_CACHE", raising=False)
    Path("examples").symlink_to(ROOT / "examples")


def run(command: str) -> tuple[int, str]:
    """The exit status of a command, and what it prints."""
    first, *arguments = shlex.split(command, comments=True)
    if first == "gc3":
        done = CliRunner().invoke(main, arguments)
        return done.exit_code, (done.stdout + done.stderr).replace(f"{Path.cwd()}/", "")
    line = [sys.executable if first == "python" else first, *arguments]
    other = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    return other.returncode, other.stdout + other.stderr


@pytest.mark.parametrize("page", ["tutorial", "language", "command_line"])
def test_the_commands_print_what_the_page_shows(page: str) -> None:
    commands = 0
    for language, title, text in BLOCK.findall((DOCS / f"{page}.md").read_text()):
        if language == "python" and title:
            Path(title).write_text(text)
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:] if language == "console" else ():
            command, _, shown = part.partition("\n")
            status, printed = run(command)
            assert MEASURED.sub("# ", printed).rstrip() == MEASURED.sub("# ", shown).rstrip(), command
            assert status == shown.startswith("error"), command
            commands += 1
    assert commands > (5 if page == "tutorial" else 0)


@pytest.mark.parametrize("page", ["../README", "language"])
def test_the_commands_of_a_page_succeed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.tune.best.MOST", 4)  # of searching; tests/cli/test_gain.py looks at what is found
    monkeypatch.setattr("gc3.cli.gain._SECONDS", 4.0)
    Path("allreduce_ring.py").write_text(SCRIPT)
    for language, _, text in BLOCK.findall((DOCS / f"{page}.md").read_text()):
        for command in text.splitlines() if language == "sh" else ():
            smaller = command.replace("64MiB", "1MiB").replace("gc3 gain", "gc3 gain --sizes 1KiB")
            for part in smaller.split(" && ") if command.startswith("gc3 ") else ():
                status, printed = run(part)
                assert status == 0, printed


def test_the_program_beside_that_of_another_tool_runs() -> None:
    (text, *_) = (
        text for language, _, text in BLOCK.findall((DOCS / "coming_from.md").read_text()) if language == "python"
    )
    Path("ring.py").write_text(text)
    assert run("python ring.py") == (0, "")
    status, printed = run("gc3 verify ring.xml")
    assert (status, "proven: it implements allreduce" in printed) == (0, True)


def test_the_scripts_of_the_page_about_processes_run() -> None:
    blocks = BLOCK.findall((DOCS / "processes.md").read_text())
    first, spawned = (text for language, _, text in blocks if language == "python" and text.startswith("import "))
    Path("spawned.py").write_text(spawned)
    status, printed = run("python spawned.py")
    assert (status, printed.strip()) == (0, spawned.rpartition("# ")[2].strip())
    Path("script.py").write_text(first)
    (each_rank, *_) = next(text for language, _, text in blocks if language == "sh").splitlines()
    with socket.create_server(("localhost", 0)) as held:
        port = held.getsockname()[1]
    line = each_rank.replace("29500", str(port)).replace("python", sys.executable)
    status, printed = run(f"sh -c {shlex.quote(line)}")
    assert sorted(printed.splitlines()) == ["0 1.0 (2000,)", "1 1.0 (2000,)"]


def sentences(page: Path) -> Iterator[list[str]]:
    """The words of each sentence of a page, without code and tables."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "\n\n", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*] |\|)| · ", text):
        if not paragraph.strip().startswith(("#", "|", "!", "<")):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
            words = " ".join(re.sub(r"`[^`]*`", "x", plain).replace("*", "").split())
            yield from (part.split() for part in re.split(r"(?<=[.!?:;])\s+(?=[A-Zx\d\"(])", words) if part)


@pytest.mark.parametrize("page", FIRST)
def test_sentences_are_short(page: str) -> None:
    found = list(sentences(DOCS / f"{page}.md"))
    assert [" ".join(words) for words in found if len(words) > WORDS] == []
    assert sum(map(len, found)) <= MEAN * len(found)


def test_every_page_leads_to_the_glossary() -> None:
    assert [page.name for page in DOCS.glob("*.md") if "glossary.md" not in page.read_text() + page.name] == []
