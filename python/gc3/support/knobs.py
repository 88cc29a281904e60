"""The environment variables of gc3. No other Python module reads the environment.

The table and its reader are in the core (``cpp/gc3/base/knobs.def``), so that C++ and Python programs agree. An option
given to a call wins over the variable, and the variable wins over the default.

>>> read().timeout > 0
True
>>> [knob.variable for knob in table()][0]
'GC3_TIMEOUT'
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

from gc3 import _core
from gc3._core import KnobInfo, Knobs, read_knobs
from gc3._core import all_knobs as table

__all__ = ["KnobInfo", "Knobs", "read", "table", "unknown"]

_PREFIX = "GC3_"
_told: set[str] = set()  # remarks already made on this process's environment


def read(*, tell: bool = True) -> Knobs:
    """Returns the settings of the environment; warns once of variables that gc3 does not know, unless `tell` is False.

    Raises:
        gc3.UserError: The value of a variable is invalid.
    """
    if tell:
        for text in unknown():
            warnings.warn(text, stacklevel=2)
    return read_knobs()


def unknown(names: Iterable[str] | None = None) -> list[str]:
    """Returns a remark on each unknown variable whose name looks like one of gc3's, the first time it is seen.

    Args:
        names: Names of variables; None: those of the environment.

    >>> unknown(["GC3_TIMOUT", "GC3_TIMEOUT", "HOME"])
    ['GC3_TIMOUT in the environment is not a variable of gc3: did you mean GC3_TIMEOUT?']
    >>> unknown(["GC3_TIMOUT"])
    []
    """
    known = [knob.variable for knob in table()]
    names = _core.environment_names() if names is None else names
    new = sorted({name for name in names if name.startswith(_PREFIX)} - {*known, *_told})
    _told.update(new)
    return [_remark(name, known) for name in new]


def _remark(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    printable = "".join(c if c.isprintable() else "?" for c in name)
    meant = f"did you mean {close[0]}?" if close else "`gc3 env` lists them"
    return f"{printable} in the environment is not a variable of gc3: {meant}"
