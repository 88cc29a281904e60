"""Writes selection tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gc3.support.files import replace_text, write_text


def write_table(file: str, table: Mapping[str, Any], *, private: bool = False) -> None:
    """Writes a table with a line for each row; readers never see a part of it. `private`: only this user can."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in table["rows"])
    head = "".join(f'"{key}": {json.dumps(value)}, ' for key, value in table.items() if key != "rows")
    text = f'{{{head}"rows": [\n{rows}\n]}}\n'
    if private:
        replace_text(file, text)
    else:
        write_text(file, text)
