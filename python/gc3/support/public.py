"""What users call: a call with arguments that a function does not take is one clear error at the user's line."""

from __future__ import annotations
import __future__

import collections.abc
import inspect
import os
import re
import reprlib
import sys
import traceback
import types
import typing
from typing import Any, TypeVar

from gc3 import _core, errors

Method = TypeVar("Method")

_HERE = os.path.dirname(errors.__file__) + os.sep
_METHOD: Any = vars(_core.Communicator)["all_reduce"].__class__
_BOUND: Any = (classmethod, staticmethod)
_KINDS: Any = (types.FunctionType, type(_core.chunk), _METHOD)
_CONSTRUCTORS = ("__init__", "__new__", "__call__")
_NOTED = [name for name in vars(_core.Coalesced) if not name.startswith("_")]
_FORMS = [name + form for name in _NOTED if name != "start" for form in ("", "_async")]
_MOST = 60  # characters of a value in a message
_SCALARS = (bool, float, complex, type(None))
_SIZED = (str, bytes, list, tuple, dict, set, frozenset, range)
_done: set[type] = set()
_tells: dict[Any, str] = {  # see of_all_ranks
    vars(part)[name]: "_refuse"
    for part, names in ((_core.Coalesced, _NOTED), (_core.Communicator, ["barrier", "coalesce", *_FORMS]))
    for name in names
}


def of_all_ranks(function: Method, tells: str = "_refuse") -> Method:
    """Marks a method that all ranks call; its `tells` tells the others, who wait, of wrong arguments on this one."""
    _tells[function] = tells
    return function


def public(offered: Any) -> Any:
    """Returns a function or class for users, whose calls with wrong arguments raise `gc3.UserError`.

    Other calls take no longer. The methods of a class are replaced in it.
    """
    if isinstance(offered, type):
        for part in offered.__mro__:
            if part.__module__.startswith("gc3") and part not in _done:
                _done.add(part)
                _guard(part)
    elif isinstance(offered, _KINDS) and offered.__module__.startswith("gc3"):
        home, name = vars(sys.modules[offered.__module__]), offered.__name__
        made = _core.public(offered, _told)
        if home.get(name) is offered:
            home[name] = made  # pickle asks for the same object there
        return made
    return offered


def public_names(module: str) -> None:
    """Makes `public` what a module lists in ``__all__``."""
    names = vars(sys.modules[module])
    names.update({name: public(names[name]) for name in names["__all__"]})


def _guard(part: type) -> None:
    made_by_us = part.__module__ == _core.__name__ and not isinstance(vars(part).get("__init__"), _METHOD)
    for name in list(vars(part)):
        value: Any = vars(part)[name]
        kept: Any = next((kind for kind in _BOUND if isinstance(value, kind)), None)
        function: Any = getattr(value, "__func__", value)
        if isinstance(function, _KINDS) and (name in _CONSTRUCTORS or not name.startswith("_")):
            made = _core.public(function, _told)
            kept = staticmethod if name == "__new__" else kept
            setattr(part, name, kept(made) if kept else made)
    if made_by_us:

        def refuse(*_: Any, **__: Any) -> None:
            raise _misuse(f"{part.__name__}(): functions of gc3 return such objects; nobody else can make them")

        _core.refuse_to_construct(part, refuse)
        part.__signature__ = inspect.Signature()  # pyright: ignore[reportAttributeAccessIssue]


def _told(function: Any, given: tuple[Any, ...], named: dict[str, Any], problem: Exception) -> Exception:
    """Returns the exception to raise: a `gc3.UserError` if the arguments do not fit the function, else `problem`."""
    if isinstance(problem, errors.Gc3Error) or _is_ours(_caller()):
        return problem  # a function of gc3 that misuses another is a defect
    if any(_is_users(frame) for frame, _ in traceback.walk_tb(problem.__traceback__)):
        return problem  # it comes from a function that the user has given
    forms = _forms(function)
    reasons = [_misfit(form, getattr(function, "__globals__", {}), given, named) for form in forms]
    if not all(reasons) and "incompatible function arguments" in str(problem):
        reasons = ["given " + ", ".join(type(value).__name__ for value in (*given, *named.values()))]
    if not all(reasons):
        return problem
    name = re.sub(r"\.__\w+__$", "", function.__qualname__)
    notes = [f"it is {name.split('.')[-1]}{_plain(form)}" for form in forms]
    told = _misuse(f"{name}(): {min(reasons, key=len)}", notes)
    told.__suppress_context__ = True
    comm = next(
        (one for one in (*given, *named.values()) if isinstance(one, (_core.Communicator, _core.Coalesced))), None
    )
    if comm is not None and function in _tells:
        getattr(comm, _tells[function])(told.diagnostics[0])
    return told


def misfit(function: Any, /, *given: Any, **named: Any) -> str:
    """Says why a user's function cannot be called with these; "" if it can, or if it does not say what it takes."""
    code = None if given or named else getattr(function, "__code__", None)  # without arguments it is to be quick
    if code is not None and (code.co_argcount, code.co_kwonlyargcount) == (isinstance(function, types.MethodType), 0):
        return ""
    try:
        inspect.signature(function).bind(*given, **named)
    except TypeError as problem:
        return str(problem)
    except ValueError:
        pass
    return ""


def _caller() -> types.FrameType | None:
    """The frame that called the function of this module that calls this."""
    frame = inspect.currentframe()
    return frame and frame.f_back and frame.f_back.f_back


def out_of_memory() -> errors.Gc3Error:
    """Returns the error of an allocation of the core that has failed: which function asked for it, at whose line."""
    frame = inspect.currentframe()
    asked = frame.f_back if frame is not None else None
    file, line = users_line()
    what = f"{asked.f_globals.get('__name__')}.{asked.f_code.co_name}" if _is_ours(asked) and asked else "a call of gc3"
    return errors.error("OutOfMemory", f"an allocation in {what} has failed", file=file, line=line)


def users_line() -> tuple[str, int]:
    """Returns the file and line of the user's program that have led here; "" and 0 if there are none."""
    frame = inspect.currentframe()
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _is_ours(frame: types.FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_HERE)


def _is_users(frame: types.FrameType) -> bool:
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package not in ("gc3", "numpy") and package not in sys.stdlib_module_names


def _misuse(message: str, notes: collections.abc.Iterable[str] = ()) -> errors.Gc3Error:
    file, line = users_line()
    return errors.error("BadArgument", message, file=file, line=line, notes=notes)


def _forms(function: Any) -> list[inspect.Signature]:
    """The signatures of a function, in which types are text."""
    if isinstance(function, types.FunctionType):
        return [inspect.signature(function)]
    forms: list[inspect.Signature] = []
    for text, _, defaults in function.__nb_signature__:
        source = re.sub(r"\\(\d+)", lambda at, of=defaults: repr(of[int(at[1])]), text) + ": ..."
        made: dict[str, Any] = {}
        exec(compile(source, "", "exec", __future__.annotations.compiler_flag), made)  # noqa: S102 - the text is of our own bindings
        forms.append(inspect.signature(made[function.__name__]))
    return forms


class _Text(str):
    """A type as it is written: without quotes."""

    __repr__ = str.__str__


def _plain(form: inspect.Signature) -> inspect.Signature:
    shown = [
        p.replace(annotation=_Text(p.annotation)) for p in form.parameters.values() if p.name not in ("self", "cls")
    ]
    return form.replace(parameters=shown, return_annotation=_Text(form.return_annotation))


def _misfit(form: inspect.Signature, names: dict[str, Any], given: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Says in what a call does not fit a signature; "" if it may fit."""
    try:
        bound = form.bind(*given, **named)
    except TypeError as problem:
        return str(problem)
    for name, value in bound.arguments.items():
        about = form.parameters[name]
        wanted = "" if about.annotation is about.empty else str(about.annotation)
        is_many = about.kind in (about.VAR_POSITIONAL, about.VAR_KEYWORD)
        for one in [*getattr(value, "values", lambda of=value: of)()] if is_many else [value]:
            try:
                fits = _fits(one, eval(wanted, {}, _Names(names)))  # noqa: S307 - the text is of our own source
            except (NameError, SyntaxError, AttributeError, TypeError):
                fits = True
            if not fits:
                return f"{name} is {_short(one)}; expected {wanted}"
    return ""


class _Names(dict[str, Any]):
    """Names in annotations of which a module knows only while its types are checked."""

    def __missing__(self, name: str) -> Any:
        """Looks where annotations of gc3 take their names from."""
        ours = [module for key, module in list(sys.modules.items()) if key.startswith("gc3")]
        for names in (sys.modules, *map(vars, (collections.abc, typing, types, os, *ours))):
            if name in names:
                return names[name]
        raise KeyError(name)


def _short(value: Any) -> str:
    text = _Brief().repr(value)
    is_type = text.startswith("<") or len(text) >= _MOST
    return f"of type {type(value).__name__}" if is_type else f"{text} ({type(value).__name__})"


class _Brief(reprlib.Repr):
    """Shows small values of Python's own types; of others, which may take long to show, the type."""

    def repr1(self, x: Any, level: int) -> str:
        kind: type[Any] = type(x)  # pyright: ignore[reportUnknownVariableType]
        is_small = kind in _SCALARS or (kind is int and x.bit_length() < _MOST) or (kind in _SIZED and len(x) < _MOST)
        return super().repr1(x, level) if is_small else f"<{kind.__name__}>"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value may be of a type; true of types that cannot be told."""
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is typing.Literal or hint is None:
        return value in (parts or (None,))
    if kind in (int, float):
        return hasattr(value, "__index__" if kind is int else "__float__")
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    each = parts and issubclass(kind, collections.abc.Sequence) and (kind is not tuple or parts[-1] is ...)
    return isinstance(value, kind) and (not each or all(_fits(element, parts[0]) for element in value))
