"""The three kinds of error: a mistake of the caller, a defect of GC3, and a failure of a peer.

Every error carries a code, a message, the user's source line if there is one, and a hint.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from gc3 import _core
from gc3._core import Diagnostic


class Gc3Error(Exception):
    """Base of every error that gc3 raises on purpose.

    Attributes:
        code: Stable identifier, such as ``GC3-L001``.
        message: What is wrong, with the particulars.
        file: The user's source file, or an empty string.
        line: The line in it, or 0.
        hint: What to do about it.
        diagnostics: All diagnostics of this error, in order.
    """

    def __init__(self, diagnostic: Diagnostic, *others: Diagnostic) -> None:
        """Wraps `diagnostic`; `others` are further findings of the same call."""
        self.diagnostics = (diagnostic, *others)
        self.code: str = diagnostic.code
        self.message: str = f"{diagnostic.title}: {diagnostic.message}" if diagnostic.message else diagnostic.title
        self.file: str = diagnostic.where.file
        self.line: int = diagnostic.where.line
        self.hint: str = diagnostic.hint
        super().__init__("\n".join(str(d) for d in self.diagnostics))

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets pickle carry an error with all its data to other processes, for example out of a pool of workers."""
        return type(self), self.diagnostics, self.__dict__


class UserError(Gc3Error, ValueError):
    """A mistake of the caller."""


class InternalError(Gc3Error):
    """A defect of gc3."""


class CommError(Gc3Error):
    """A peer failed or a deadline passed."""


def from_diagnostic(diagnostic: Diagnostic) -> Gc3Error:
    """Returns the error of the class that fits the kind of `diagnostic`."""
    kinds = {"User": UserError, "Internal": InternalError, "Comm": CommError}
    return kinds[diagnostic.kind.name](diagnostic)


def error(name: str, message: str, *, file: str = "", line: int = 0, notes: Iterable[str] = ()) -> Gc3Error:
    """Returns the error called `name` in the error table, to be raised by the caller.

    >>> error("BadBuffer", "rank 2 has no input").code
    'GC3-R001'
    """
    return from_diagnostic(Diagnostic(name, _whole(message), _whole(file), line, [_whole(note) for note in notes]))


def shown(text: str) -> str:
    r"""Returns a text in which control characters and invisible characters are escapes, so that a terminal may show it.

    >>> print(shown("a\x1b[2J"))
    a\x1b[2J
    """
    # Nothing in such a text is escaped, and a name of a hostile file may be so long that no copy of it is wanted.
    return text if text.isascii() and text.isprintable() else _core.shown(_whole(text))


def _whole(text: str) -> str:
    """Returns a text that UTF-8 can encode: unpaired surrogates, as in names of files, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def placed(problem: Gc3Error, file: str, line: int) -> Gc3Error:
    """Returns `problem` with a place in the user's source, unless it already has one."""
    if problem.file:
        return problem
    first, *others = problem.diagnostics
    notes = [note.text for note in first.notes]
    return type(problem)(Diagnostic(first.name, first.message, file, line, notes), *others)


def noted(problem: Gc3Error, text: str) -> Gc3Error:
    """Returns `problem` with a further note."""
    first, *others = problem.diagnostics
    notes = [*(note.text for note in first.notes), text]
    return type(problem)(Diagnostic(first.name, first.message, first.where.file, first.where.line, notes), *others)


def whole(value: Any, what: str, low: int = 0, high: int = 2**32 - 1, *, name: str = "BadArgument") -> int:
    """Returns `value` as an int; raises the error called `name` if it is not a whole number from `low` to `high`.

    >>> whole(8, "slots")
    8
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise error(name, f"{what}={value!r}; expected a whole number from {low} to {high}")
    return number
