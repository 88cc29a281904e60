"""Drawings as files: needs matplotlib, which comes with the extra gc3[plot]."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from gc3 import errors
from gc3.support import files, svg

FORMATS = (".png", ".svg", ".pdf")
_DATES = {"svg": "Date", "pdf": "CreationDate"}  # what is left out, so that the bytes are the same each time


def check(path: str) -> None:
    """Makes sure, before anything is computed, that a drawing can be made.

    Raises:
        gc3.UserError: matplotlib is absent, or the name says no format.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise errors.error("BadArgument", f"'{path}': the name of a drawing ends in {', '.join(FORMATS)}")
    try:
        import matplotlib.figure  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport] - optional
    except ImportError as problem:
        message = "drawing needs matplotlib, which `pip install 'gc3[plot]'` brings"
        raise errors.error("MissingPackage", message) from problem


def save(figure: Any, path: str, *, dpi: int) -> None:
    """Writes a figure, the same bytes each time.

    Raises:
        gc3.UserError: The file cannot be written.
    """
    import matplotlib as mpl  # noqa: PLC0415  optional

    kind = Path(path).suffix.lower().removeprefix(".")
    settings: Any = mpl
    made = BytesIO()
    # Names in an SVG would be random otherwise, and letters outlines that nobody can search.
    with settings.rc_context({"svg.hashsalt": "gc3", "svg.fonttype": "none"}):
        figure.savefig(made, format=kind, dpi=dpi, metadata={_DATES[kind]: None} if kind in _DATES else None)
    content = made.getvalue()
    files.write_bytes(path, svg.compact(content.decode()).encode() if kind == "svg" else content)
