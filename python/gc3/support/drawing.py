"""Drawings as files. Needs matplotlib, an optional package."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from gc3 import errors
from gc3.support import files

FORMATS = (".png", ".svg", ".pdf")
_DATES = {"svg": "Date", "pdf": "CreationDate"}  # metadata to leave out, so that the bytes are the same each time


def check(path: str) -> None:
    """Checks, before anything is computed, that a drawing can be made.

    Raises:
        gc3.UserError: matplotlib is not installed, or the ending of the name is not a known format.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise errors.error("BadArgument", f"'{path}': the name of a drawing must end in {', '.join(FORMATS)}")
    try:
        import matplotlib.figure  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport] - optional
    except ImportError as problem:
        message = "drawing needs matplotlib: run `pip install matplotlib`"
        raise errors.error("MissingPackage", message) from problem


def save(figure: Any, path: str, *, dpi: int, **how: Any) -> None:
    """Writes a figure, the same bytes each time; `how`: as matplotlib's savefig takes it.

    Raises:
        gc3.UserError: The file cannot be written.
    """
    files.write_bytes(path, made(figure, Path(path).suffix.lower().removeprefix("."), dpi=dpi, **how))


def made(figure: Any, kind: str, *, dpi: int, **how: Any) -> bytes:
    """Returns a figure as a file of a kind, such as "svg"."""
    import matplotlib as mpl  # noqa: PLC0415  optional

    settings: Any = mpl
    content = BytesIO()
    # Without these settings, ids in an SVG are random, and letters are outlines that cannot be searched.
    with settings.rc_context({"svg.hashsalt": "gc3", "svg.fonttype": "none"}):
        figure.savefig(content, format=kind, dpi=dpi, metadata={_DATES[kind]: None} if kind in _DATES else None, **how)
    return content.getvalue()
