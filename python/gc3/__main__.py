"""``gc3``, and ``python -m gc3``: starts the command line so that Ctrl-C never shows a traceback."""

from __future__ import annotations

import signal

from gc3.cli.interrupt import leave


def main() -> None:
    """Runs the command line and exits with its code."""
    # A library that is interrupted during its import may take that for a failure of its own, so nothing may catch this.
    signal.signal(signal.SIGINT, lambda _signal, _frame: leave())
    from gc3.cli.main import main as run  # noqa: PLC0415  only now that Ctrl-C is taken care of

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be done: it ends the process at once
    except KeyboardInterrupt:
        leave()


if __name__ == "__main__":
    main()
