"""The environment variables of gc3. No other Python module looks at the environment.

The table and its reader stand in the core (``cpp/gc3/base/knobs.def``), so that C and Python programs agree.
An option given to a call wins over the variable, and the variable wins over the default.

>>> read().timeout > 0
True
>>> [knob.variable for knob in table()][0]
'GC3_TIMEOUT'
"""

from __future__ import annotations

from gc3._core import KnobInfo, Knobs
from gc3._core import all_knobs as table
from gc3._core import read_knobs as read

__all__ = ["KnobInfo", "Knobs", "read", "table"]
