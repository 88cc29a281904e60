"""A sweep as a page for a browser: its picture and its table in one self-contained file."""

from __future__ import annotations

from html import escape

from gc3.report import picture
from gc3.report.style import Sweep

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #333333; max-width: 1200px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.3em; font-weight: 600; margin-bottom: 0.2em; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.9em; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15em 0.9em 0.15em 0; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: #ffffff; border-bottom: 1px solid #aaaaa4; }
td.text, th.text { text-align: left; }
td.words { white-space: normal; min-width: 9em; }
tr.size td { border-top: 1px solid #e3e3de; }
tr.best td { font-weight: 600; }
"""


def write(sweep: Sweep) -> str:
    """Returns the page.

    Raises:
        gc3.UserError: matplotlib is not installed.
    """
    return whole(sweep.title, f"{picture.inline(sweep)}\n{_table(sweep)}")


def whole(title: str, body: str, style: str = "") -> str:
    """Returns a page with its title as its heading; `style` is added to the common one."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _table(sweep: Sweep) -> str:
    heads = ["size (B)", "program", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "bound (us)"]
    heads += ["speed-up"] if sweep.baselines else []
    heads += ["cause", "bound by"]
    classes = {"program": " class=text", "cause": ' class="text words"', "bound by": " class=text"}
    lines = ["".join(f"<th{' class=text' if head in classes else ''}>{head}</th>" for head in heads)]
    marks = [""]
    for row in sweep.rows:
        for i, cell in enumerate(row.cells):
            share = f" {100 * cell.share:.0f}%" if cell.share < 1 and cell.cause else ""
            values = [str(cell.size), cell.chosen or cell.program, f"{1e6 * cell.time_s:.2f}", f"{cell.algbw:.2f}"]
            values += [f"{cell.busbw:.2f}", f"{1e6 * cell.bound_s:.2f}" if cell.bound_s else ""]
            if sweep.baselines:
                values.append(row.speedup_text(cell))
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
