"""`gc3 report` and its pictures: what they say, their bounds, and that a browser can use the page."""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# (Playwright may not be installed, so its types are not known.)
from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
from click.testing import CliRunner, Result

from gc3.cli.files import Picture
from gc3.cli.main import main

pytestmark = pytest.mark.python_only


def _gc3(*command: str) -> Result:
    return CliRunner().invoke(main, list(command))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of a program with two kinds of links and helpers, and its numbers."""
    path = tmp_path_factory.mktemp("report") / "r.html"
    command = ["report", "hierarchical_allreduce:instances=1", "-t", "ndv4:N=2", "-b", "64KiB", "-e", "16MiB"]
    result = _gc3(*command, "-f", "16", "-o", str(path), "--json")
    assert result.exit_code == 0, result.output
    return path, json.loads(result.stdout)


def test_the_page_is_one_small_file_with_everything(made: tuple[Path, dict[str, Any]]) -> None:
    path, numbers = made
    page = path.read_text()
    assert len(page) < 500_000
    # The answer comes first, and where it is from last.
    places = [
        page.index(text)
        for text in ('class="tiles"', *numbers["verdict"], numbers["bottleneck"][0], "Where the times come from</h2>")
    ]
    assert places == sorted(places)
    assert re.fullmatch(r"64 KiB: .* NCCL 2.8.4, 0.\d\d times its speed.", numbers["verdict"][0])
    assert "predicted time, error 108%" in page
    assert not re.search(r'(?:src|href)="(?!#)|@import|url\((?!#)', page)  # nothing from elsewhere
    assert "reduce_scatter(local_ranks, range(0, N * G, N), N, ch=first)" in page
    assert "reduce(c, ch=ch)" in page  # the helper's line; the one before is the user's
    assert "cannot deadlock" in page
    assert numbers["not_shown"] == []
    labels = list(numbers["series_us"])
    assert labels[0] == "hierarchical_allreduce, predicted"
    assert any("NCCL" in label for label in labels[1:])
    assert sum(numbers["critical_path_us"].values()) == pytest.approx(numbers["time_us"])
    assert any("_ring.py:" in sentence for sentence in numbers["bottleneck"])
    assert any(" predicted at 1 MiB, " in sentence for sentence in numbers["advice"])
    # Nothing like it was measured, which the page says; the chart has bands, and leads below the error are no numbers.
    assert "<th scope=row>errors, 64 KiB</th><td>not measured (2 nodes, " in page
    assert page.count('class="band"') == 2
    assert set(numbers["errors"]) == set(labels)
    assert "(~)" in page


def test_advice_is_what_the_simulator_predicts(made: tuple[Path, dict[str, Any]]) -> None:
    _, numbers = made
    first = next(a for a in numbers["advice"] if " predicted at " in a)
    found = re.match(r"(protocol=\w+,instances=\d+,\S+): ([\d.]+) (us|ms) predicted", first)
    assert found is not None
    settings, time, unit = found.groups()
    result = _gc3("sim", f"hierarchical_allreduce:{settings}", "-t", "ndv4:N=2", "-b", "1MiB", "-e", "1MiB", "--json")
    (cell,) = json.loads(result.stdout)["rows"][0]["programs"]
    assert cell["time_us"] == pytest.approx(float(time) * (1000 if unit == "ms" else 1), rel=1e-3)


def test_a_large_program_is_sampled_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.cli.trials._MOST_TRIED", 0)  # what else of it takes time is the same at any size
    monkeypatch.setattr("gc3.cli.program_report.LOOPED", 4)
    path = tmp_path / "big.html"
    command = ["report", "hierarchical_allreduce:instances=1", "-t", "ndv4:N=32", "-b", "1MiB", "-e", "1MiB"]
    result = _gc3(*command, "-o", str(path), "--json")
    assert result.exit_code == 0, result.output
    assert path.stat().st_size < 500_000
    told = json.loads(result.stdout)["not_shown"]
    assert any(re.search(r"464 threadblocks of 512", text) for text in told)
    assert any("232 ranks of 256" in text for text in told)
    for text in told:
        assert f"Not shown: {text}." in path.read_text()


def test_nccl_is_not_simulated_for_many_ranks_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc3.cli.program_report.LOOPED", 4)
    path = tmp_path / "r.html"
    command = ["report", "ring_allreduce:instances=1", "-t", "ndv4", "-b", "1MiB", "-e", "1MiB", "-o", str(path)]
    told = "above 4 only --baseline nccl simulates them"
    for more, remarked in (([], True), (["--baseline", "nccl"], False)):
        result = _gc3(*command, *more)
        assert result.exit_code == 0, result.output
        assert (told in path.read_text()) == remarked
        assert ("its own choice, simulated" in path.read_text()) != remarked


def test_settings_that_are_not_named_are_those_of_gc3_sim(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    line = ["ring_allreduce", "-t", "ndv4", "-b", "1MiB", "-e", "1MiB"]
    made = json.loads(_gc3("report", *line, "-o", str(path), "--json").stdout)
    (cell,) = json.loads(_gc3("sim", *line, "--json").stdout)["rows"][0]["programs"]
    assert made["time_us"] == cell["time_us"]
    settings = cell["chosen"].removeprefix("ring_allreduce:")
    told = f"ettings chosen for 1 MiB by simulation: {settings}; the plain form is ring_allreduce:instances=1"
    page = path.read_text()
    assert told in page
    # Instances do the same with a part of the data each, so the steps show one of them.
    assert made["program"]["instances"] > 1
    assert 'max="14"' in page
    assert f"Each stands for up to {made['program']['instances']}, which" in page
    traced = _gc3("trace", *line[:3], "--size", "1MiB", "-o", str(tmp_path / "t.json")).stdout
    assert f"s{told}" in traced
    assert f"{cell['time_us']:.2f} us" in traced


def test_a_file_cannot_make_the_page_show_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do not tell\n" * 10)
    source = tmp_path / "mine.py"
    head = "import gc3\n\n@gc3.algorithm('alltonext')\ndef mine(R: int) -> None:\n"
    code = f"{head}    gc3.chunk(0, 'in', 0).copy(1, 'out', 0)\n"
    source.write_text(code)
    assert _gc3("compile", f"{source}:mine:R=2", "-o", str(tmp_path / "p.gc3")).exit_code == 0
    image = (tmp_path / "p.gc3").read_bytes()
    assert str(source).encode() in image
    source.rename(tmp_path / "moved.py")
    sizes = ["-b", "1KiB", "-e", "1KiB"]
    result = _gc3("report", str(tmp_path / "p.gc3"), "-t", "ndv4", *sizes, "-o", str(tmp_path / "r.html"))
    assert result.exit_code == 0, result.output
    assert "(the file cannot be read)" in (tmp_path / "r.html").read_text()
    from gc3.cli import source as view  # noqa: PLC0415

    assert view.read(str(secret)) == []


def test_measured_times_stand_beside_predictions(tmp_path: Path) -> None:
    path = tmp_path / "m.html"
    command = [
        "report",
        "ring_allreduce",
        "-t",
        "cpu:R=2",
        "-b",
        "4KiB",
        "-e",
        "64KiB",
        "-o",
        str(path),
        "--json",
        "--engine",
        "threads",
    ]
    result = _gc3(*command, "-o", str(path), "--json")
    assert result.exit_code == 0, result.output
    series = json.loads(result.stdout)["series_us"]
    times = series["ring_allreduce, measured here (threads)"]
    assert [size for size, _ in times] == [4096, 16384, 65536]
    assert all(time > 0 for _, time in times)
    assert "Measured times are of this computer" in path.read_text()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("report ring_allreduce -t ndv4 -b 1MiB -e 1KiB -o {}/r.html", "below the smallest"),
        ("report ring_allreduce -t ndv4 --engine cuda -o {}/r.html", "'cuda' is not one of threads, processes"),
        ("report ring_allreduce -t ndv4 -o {}/r.pdf", "must end in .html"),
        ("show ring_allreduce:R=2 --source --rank 0", "the whole program"),
        ("show ring_allreduce:R=2 --size 1KiB", "belong to --source"),
        ("show ring_allreduce:R=2 --source --size 1KiB", "--size needs --topology"),
        ("show ring_allreduce:R=2 --picture {}/p.svg --json", "--picture draws"),
        ("trace ring_allreduce -t ndv4", "name a file"),
        ("topo plot ndv4 --load ring_allreduce -o {}/p.pdf", "SVG or PNG"),
        ("topo plot ndv4 --size 1KiB -o {}/p.svg", "--size is for --load"),
    ],
)
def test_mistakes(command: str, told: str, tmp_path: Path) -> None:
    result = _gc3(*command.format(tmp_path).split())
    assert result.exit_code == 2
    assert told in result.output
    assert not list(tmp_path.iterdir())


_COMMANDS = [
    "show ring_allreduce:R=4 --picture {}",
    "show two_step_alltoall:N=3,G=4 --picture {}",
    "trace ring_allreduce:protocol=LL,instances=2 -t ndv4 --size 64KiB --picture {}",
    "trace ring_allreduce:R=2 --engine threads --size 4KiB --picture {}",
    "topo plot ndv4:N=2 --load hierarchical_allreduce:instances=1 -o {}",
    "bench ring_allreduce:R=2 -b 1KiB -e 4KiB -f 4 -n 3 --picture {}",
]
_DRAWN = pytest.mark.parametrize("command", _COMMANDS)


def _drawing(group: click.Group, prefix: str = "") -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _drawing(command, f"{prefix}{name} ")
        elif command is not None and any(type(option.type) is Picture for option in command.params):
            yield prefix + name


def test_every_command_that_draws_is_tried_here() -> None:
    """Or, with matplotlib, in tests/sim/test_sim_report.py."""
    drawing = set(_drawing(main)) - {"sim predict"}
    assert drawing == {name for name in drawing if any(line.startswith(f"{name} ") for line in _COMMANDS)}
    assert len(drawing) >= 3


@_DRAWN
def test_pictures_are_png_where_the_name_says_so(command: str, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    pytest.importorskip("resvg_py")
    _gc3(*command.format(tmp_path / "p.svg").split())
    width = float(str(ET.parse(tmp_path / "p.svg").getroot().get("width")))  # noqa: S314  our own file
    path = tmp_path / "p.png"
    result = _gc3(*command.format(path).split())
    assert result.exit_code == 0, result.output
    assert "browser" not in result.output
    pixels = image.imread(path)
    assert abs(pixels.shape[1] - 2 * width) <= 2
    assert (pixels[..., 3] == 1).all()  # nothing is transparent: a viewer may have any background
    assert (pixels[0, :, :3] == 1).all()
    levels = pixels[..., :3].reshape(-1, 3)
    assert 0.0004 < (levels.max(axis=1) < 0.4).mean() < 0.5  # letters are dark


def test_a_picture_as_png_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    result = _gc3("show", "ring_allreduce:R=2", "--picture", str(tmp_path / "p.png"))
    assert result.exit_code == 1
    assert "pip install resvg-py matplotlib" in result.output
    assert not list(tmp_path.iterdir())


@_DRAWN
def test_pictures_are_svg(command: str, tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    result = _gc3(*command.format(path).split())
    assert result.exit_code == 0, result.output
    root = ET.parse(path).getroot()  # noqa: S314  our own file
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert len(list(root.iter())) > 20


def test_the_picture_of_a_ring_shows_each_message_once(tmp_path: Path) -> None:
    _gc3("show", "ring_allreduce:R=4", "--picture", str(tmp_path / "p.svg"))
    root = ET.parse(tmp_path / "p.svg").getroot()  # noqa: S314  our own file
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    moves = [t for t in titles if re.match(r"\d to \d: output", t)]
    assert len(moves) == 4 * (3 + 3)  # each of 4 chunks is reduced and then copied over 3 connections
    assert sum("+=" in t for t in moves) == 12


def test_a_schedule_says_on_itself_what_it_does_not_show(tmp_path: Path) -> None:
    line = [
        "trace",
        "ring_allreduce:instances=8",
        "-t",
        "ndv4",
        "--size",
        "64KiB",
        "--picture",
        str(tmp_path / "t.svg"),
    ]
    assert "does not show 16 threadblocks of 64" in _gc3(*line).stderr
    assert "not shown: 16 threadblocks of 64" in (tmp_path / "t.svg").read_text()


# In a browser. Playwright drives Debian's chromium (`pip install playwright`, `apt-get install chromium`).


@pytest.fixture(scope="module")
def browser() -> Generator[Any, None, None]:
    """A browser, if there is one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page_and_every_control_works(
    browser: Any, made: tuple[Path, dict[str, Any]], width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    page.on("request", lambda request: None if request.url.startswith("file:") else problems.append(request.url))
    page.goto(f"file://{made[0]}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    for section in ("times", "why", "source", "steps", "schedule", "machine", "proof"):
        assert page.locator(f"#{section}").is_visible()
    clicked: set[str] = set()
    for name in ("Forward", "Back", "Play", "Pause", "Zoom in", "Left", "Right", "Zoom out", "Zoom in", "Whole"):
        before = page.inner_html("main")
        page.get_by_role("button", name=name, exact=True).click()
        assert page.inner_html("main") != before, name
        clicked.add(name)
    page.get_by_role("button", name="Next step of the critical path").click()
    assert "on the critical path" in page.inner_text("#told")
    clicked.add("Next step of the critical path")
    names = page.evaluate("[...document.querySelectorAll('button')].map((b) => b.textContent)")
    assert set(names) <= clicked
    page.get_by_role("slider", name="Step").fill("3")
    assert page.inner_text("#at").startswith("3 of ")
    assert page.locator("#moves li").count() == page.evaluate("JSON.parse(data.textContent).moves[2].length")
    assert page.locator("#flow .round:not([hidden])").count() == 1
    for summary in page.locator("summary").all():
        summary.click()
    assert page.get_by_text("Links by load").is_visible()
    for link in page.locator("nav a").all():
        link.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    page.close()


def test_the_page_works_by_keyboard_and_has_names(browser: Any, made: tuple[Path, dict[str, Any]]) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"file://{made[0]}")
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"play", "forward", "round", "in", "next", "moves"} <= set(reached)
    page.locator("#round").focus()
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#at").startswith("2 of ")
    page.locator("[aria-label=Schedule]").focus()
    page.keyboard.press("+")
    assert "scale(2" in page.get_attribute("#lanes .bars", "transform")
    page.keyboard.press("n")
    assert "on the critical path" in page.inner_text("#told")
    nameless = page.evaluate(
        "[...document.querySelectorAll('svg[role=img], .scroll, section, nav')]"
        ".filter((e) => !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')).length"
    )
    assert nameless == 0
    page.close()


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    name = "</script><img src=x onerror=alert(1)>"
    source.write_text(
        f"import gc3\n\n@gc3.algorithm('alltonext', name={name!r})\ndef mine(R: int) -> None:\n"
        f"    for r in range(R - 1):\n        gc3.chunk(r, 'in', 0).copy(r + 1, 'out', 0)  # {name}\n"
    )
    path = tmp_path / "r.html"
    result = _gc3("report", f"{source}:mine", "-t", "ndv4", "-b", "1KiB", "-e", "1KiB", "-o", str(path))
    assert result.exit_code == 0, result.output
    page = browser.new_page()
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.goto(f"file://{path}")
    assert page.locator("img").count() == 0
    assert name in page.inner_text("h1")
    page.close()
