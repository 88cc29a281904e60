"""A sweep as a page for a browser: one self-contained file, drawn by plotly."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import Any

from gc3 import errors
from gc3.report.style import GRID, INK, Sweep, short_size, size_ticks

_HEIGHT = 420
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #333333; max-width: 1200px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.3em; font-weight: 600; margin-bottom: 0.2em; }
p.note { color: #66665f; margin-top: 0; }
table { border-collapse: collapse; font-size: 0.9em; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15em 0.9em 0.15em 0; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: #ffffff; border-bottom: 1px solid #aaaaa4; }
td.text, th.text { text-align: left; }
td.words { white-space: normal; min-width: 9em; }
tr.size td { border-top: 1px solid #e3e3de; }
tr.best td { font-weight: 600; }
"""


def check() -> Any:
    """Returns plotly, which draws the page.

    Raises:
        gc3.UserError: plotly is not installed.
    """
    try:
        return import_module("plotly.graph_objects")
    except ImportError as problem:
        message = "the page needs plotly: run `pip install plotly`"
        raise errors.error("MissingPackage", message) from problem


def write(sweep: Sweep) -> str:
    """Returns the page.

    Raises:
        gc3.UserError: plotly is not installed.
    """
    plot = check()
    charts: list[str] = []
    for key, name, logarithmic in _charts(sweep):
        figure = plot.Figure(layout=_layout(sweep, name, logarithmic=logarithmic))
        for program in sweep.programs:
            figure.add_trace(plot.Scatter(**_trace(sweep, program, key)))
        charts.append(
            figure.to_html(
                full_html=False,
                include_plotlyjs=not charts,  # once: the charts share it
                div_id=f"chart-{key}",
                config={"displaylogo": False, "responsive": True},
            )
        )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(sweep.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(sweep.title)}</h1>\n<p class="note">{escape(sweep.note)}</p>\n'
        f"{''.join(charts)}\n{_table(sweep)}\n</body>\n</html>\n"
    )


def _charts(sweep: Sweep) -> list[tuple[str, str, bool]]:
    found = [("time", "time (us)", True), ("busbw", "busbw (GB/s)", False)]
    if sweep.baselines:
        found.insert(0, ("speedup", f"speed-up over {sweep.baselines[0]}", False))
    return found


def _layout(sweep: Sweep, name: str, *, logarithmic: bool) -> dict[str, Any]:
    ticks = size_ticks([row.size for row in sweep.rows], most=16)
    return {
        "title": {"text": escape(name), "x": 0.01, "font": {"size": 15}},
        "template": "plotly_white",
        "font": {"color": INK},
        "height": _HEIGHT,
        "margin": {"l": 60, "r": 20, "t": 50, "b": 40},
        "hovermode": "closest",
        "xaxis": {"type": "log", "tickvals": ticks, "ticktext": [short_size(x) for x in ticks], "gridcolor": GRID},
        "yaxis": {"type": "log" if logarithmic else "linear", "gridcolor": GRID}
        | ({"dtick": 1 if _decades(sweep) else "D2", "tickformat": "~g"} if logarithmic else {"rangemode": "tozero"}),
        "legend": {"orientation": "h", "y": -0.15, "x": 0},
    }


def _decades(sweep: Sweep) -> bool:
    """Whether the times span several powers of ten, which are then sufficient as labels of an axis."""
    times = [cell.time_s for row in sweep.rows for cell in row.cells if cell.time_s > 0]
    return bool(times) and max(times) >= 100 * min(times)


def _trace(sweep: Sweep, program: str, key: str) -> dict[str, Any]:
    xs: list[int] = []
    ys: list[float] = []
    texts: list[str] = []
    for row, cell in sweep.cells(program):
        speedup = row.speedup(cell)
        y = {"time": 1e6 * cell.time_s, "busbw": cell.busbw, "speedup": speedup}[key]
        if y is None:
            continue
        about = [
            f"<b>{escape(program)}</b>",
            f"{short_size(cell.size)}: {1e6 * cell.time_s:.2f} us",
            f"algbw {cell.algbw:.2f} GB/s, busbw {cell.busbw:.2f} GB/s",
        ]
        if speedup is not None and program != row.baseline:
            about.append(f"{speedup:.2f} x {escape(row.baseline)}")
        if cell.cause:
            about.append(escape(cell.cause) + (f" {100 * cell.share:.0f}%" if cell.share < 1 else ""))
        if cell.bound_s:
            about.append(f"at least {1e6 * cell.bound_s:.2f} us: {escape(cell.bound_by)}")
        xs.append(row.size)
        ys.append(y)
        texts.append("<br>".join(about))
    base = program in sweep.baselines
    return {
        "x": xs,
        "y": ys,
        "name": escape(program),
        "text": texts,
        "hoverinfo": "text",
        "mode": "lines+markers",
        "line": {"color": sweep.color(program), "width": 2, "dash": "dash" if base else "solid"},
        "marker": {"size": 6},
    }


def _table(sweep: Sweep) -> str:
    heads = ["size (B)", "program", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "bound (us)"]
    heads += ["speed-up"] if sweep.baselines else []
    heads += ["cause", "bound by"]
    classes = {"program": " class=text", "cause": ' class="text words"', "bound by": " class=text"}
    lines = ["".join(f"<th{' class=text' if head in classes else ''}>{head}</th>" for head in heads)]
    marks = [""]
    for row in sweep.rows:
        for i, cell in enumerate(row.cells):
            speedup = row.speedup(cell)
            share = f" {100 * cell.share:.0f}%" if cell.share < 1 and cell.cause else ""
            values = [str(cell.size), cell.program, f"{1e6 * cell.time_s:.2f}", f"{cell.algbw:.2f}"]
            values += [f"{cell.busbw:.2f}", f"{1e6 * cell.bound_s:.2f}" if cell.bound_s else ""]
            if sweep.baselines:
                values.append("" if speedup is None else f"{speedup:.2f}")
            values += [cell.cause + share, cell.bound_by]
            lines.append(
                "".join(
                    f"<td{classes.get(head, '')}>{escape(value)}</td>"
                    for head, value in zip(heads, values, strict=True)
                )
            )
            kinds = [*(["size"] if i == 0 else []), *(["best"] if cell.program == row.winner else [])]
            marks.append(f' class="{" ".join(kinds)}"' if kinds else "")
    body = "\n".join(f"<tr{mark}>{line}</tr>" for mark, line in zip(marks, lines, strict=True))
    return f"<table>\n{body}\n</table>"
