"""A program during tracing."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gc3 import _core, collectives, errors

if TYPE_CHECKING:
    from typing_extensions import Self

_SHOWN = 3  # wrong output chunks that are reported one by one


class SourceProgram:
    """A program that is being traced: operations on chunks inside `with program:` become part of it.

    >>> program = SourceProgram("swap", "alltonext", ranks=2)
    >>> with program:
    ...     _ = _core.chunk(0, "in", 0).copy(1, "out", 0)
    >>> program.trace().operations
    1
    """

    def __init__(
        self,
        name: str,
        collective: str | collectives.Collective,
        *,
        ranks: int | None = None,
        chunks: int = 1,
        root: int = 0,
        in_place: bool = False,
        as_in_place: bool | None = None,
        protocol: str = "Simple",
        scratch: Sequence[str] = (),
        gpus_per_node: int = 0,
        where: tuple[str, int] | None = None,
        helpers: str = "",
    ) -> None:
        """Begins a program without operations.

        Args:
            name: The program's name.
            collective: Name of a built-in collective, or one made by `gc3.collectives.custom`.
            ranks: Number of ranks; may be left out for a custom collective, which has its own.
            chunks: Chunks per block of the collective's buffers.
            root: The root of a rooted collective.
            in_place: Whether the operations are written for buffers that alias.
            as_in_place: The mode of the program; if it differs from `in_place`, copies adapt the operations.
            protocol: "Simple", "LL", "LL128", "Pull" or "Copy".
            scratch: Names of further scratch buffers.
            gpus_per_node: G of (node, gpu) pairs; 0: ranks are plain numbers.
            where: The source file and line for errors without a more specific line; None: the caller's.
            helpers: The beginning of the names of files whose code works for its callers: the lines of operations there
                are those of the callers.
        """
        where = _caller() if where is None else where
        try:
            about = collectives.get(collective) if isinstance(collective, str) else collective
            if not isinstance(about, collectives.Collective):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise errors.error("BadCollective", f"collective={about!r}; expected a name, or what custom() returns")
            for what, value in (("ranks", ranks), ("chunks", chunks), ("root", root), ("gpus_per_node", gpus_per_node)):
                if value is not None:
                    low = 0 if what in ("root", "gpus_per_node") else 1
                    errors.whole(value, what, low, (1 << 31) - 1, name="BadCollective")
            model = about.model(ranks, chunks=chunks, root=root, in_place=in_place)
        except errors.Gc3Error as problem:
            raise errors.placed(problem, *where) from None
        self.model = model  # the required result
        self._about = about
        self.declared = {} if about.data is None else {op.name: op for op in about.data.named.declared}
        wanted = in_place if as_in_place is None else as_in_place
        self._where = where
        self._session = _core.session(
            name, model, wanted, str(protocol), list(scratch), gpus_per_node, *where, about.open, helpers
        )
        self._tokens: list[object] = []
        self._trace: _core.Trace | None = None

    def __enter__(self) -> Self:
        """Makes this the current program, to which chunk() and the other operations refer, until the block ends."""
        self._tokens.append(_core.enter_session(self._session))
        return self

    def __exit__(self, kind: object, problem: BaseException | None, *_: object) -> None:
        """Restores the program that was current before."""
        _core.leave_session(self._tokens.pop())
        rooted = collectives.rooted(self.model)
        if rooted and isinstance(problem, errors.UserError) and problem.diagnostics[0].name == "IndexOutOfRange":
            told = f"the root is rank {self.model.root}; root= of the decorator states another"
            raise errors.noted(problem, told) from problem

    def scratch_buffer(self, name: str) -> None:
        """Makes a scratch buffer called `name` if there is none.

        Raises:
            gc3.UserError: There are 1,000 buffers already.
        """
        self._session.scratch_buffer(name)

    def check(self, limit: int = 10) -> list[_core.Diagnostic]:
        """Returns the output chunks, up to `limit`, that do not hold yet what the collective requires."""
        return self._session.check(limit)

    def trace(self) -> _core.Trace:
        """Ends the program, which must meet its collective's postcondition, and returns its operations.

        Raises:
            gc3.UserError: An output chunk holds the wrong data; the error names it, its value and the required value.
        """
        if self._trace is None:
            problems = self._session.check(_SHOWN)
            try:
                self._trace = self._session.finish()
            except errors.Gc3Error as error:
                raise type(error)(*(problems or error.diagnostics)) from None
            self._about.judge(self._trace.collective, self._where)
        return self._trace


def _caller() -> tuple[str, int]:
    """The file and line of the caller of the function that calls this."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
