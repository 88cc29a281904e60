"""Formulas of an algorithm's parameters: readable text that can be evaluated to a number.

>>> Formula("2*(R-1)")(R=8)
14
>>> str(Formula("ceil_log2(N) if G == 1 else 2"))
'ceil_log2(N) if G == 1 else 2'
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


def floor_log2(n: int) -> int:
    """Returns the largest k with 2**k <= n.

    >>> [floor_log2(n) for n in (1, 2, 3, 4)]
    [0, 1, 1, 2]
    """
    return n.bit_length() - 1


def ceil_log2(n: int) -> int:
    """Returns the smallest k with 2**k >= n: the number of doublings of 1 that reaches n.

    >>> [ceil_log2(n) for n in (1, 2, 3, 4)]
    [0, 1, 2, 2]
    """
    return (n - 1).bit_length()


def pow2(n: int) -> int:
    """Returns the largest power of two that is at most n.

    >>> [pow2(n) for n in (1, 2, 3, 4)]
    [1, 2, 2, 4]
    """
    return 1 << floor_log2(n)


def ones(n: int) -> int:
    """Returns the number of one bits in 0, 1, ..., n-1 together.

    >>> [ones(n) for n in (1, 2, 3, 4, 8)]
    [0, 1, 2, 4, 12]
    """
    return sum(bin(i).count("1") for i in range(n))


def subtree(n: int) -> int:
    """Returns the ranks in the largest subtree below the root of a binomial tree of n ranks.

    >>> [subtree(n) for n in (1, 2, 3, 4, 7, 8)]
    [0, 1, 1, 2, 3, 4]
    """
    return max((min(1 << k, n - (1 << k)) for k in range(ceil_log2(n))), default=0)


FUNCTIONS: Mapping[str, Callable[..., int]] = MappingProxyType(
    {f.__name__: f for f in (min, max, floor_log2, ceil_log2, pow2, ones, subtree)}
)
_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], int]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: int.__floordiv__,  # operator.floordiv has no types
        ast.Mod: operator.mod,
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression over parameters: numbers, + - * // %, comparisons, and, or, `a if c else b`, and `FUNCTIONS`.

    Raises:
        ValueError: The text is anything else.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False)
    _tree: ast.expr = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Parses the text, so that a mistake is reported where the formula is written, not where it is used."""
        try:
            tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as problem:
            raise ValueError(f"'{self.text}' is not a formula: {problem.msg}") from None
        names: set[str] = set()
        _check(tree, names, self.text)
        object.__setattr__(self, "names", frozenset(names))
        object.__setattr__(self, "_tree", tree)

    def __call__(self, **values: int) -> int:
        """Returns its value for the given parameters; ignores those it does not use."""
        return int(_value(self._tree, values))

    def __str__(self) -> str:
        """Returns the text."""
        return self.text


def _check(node: ast.expr, names: set[str], text: str) -> None:
    """Collects the names in use; refuses everything that `_value` cannot evaluate."""
    match node:
        case ast.Constant(value=int()):
            parts: list[ast.expr] = []
        case ast.Name(id=name):
            names.add(name)
            parts = []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            parts = [left, right]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            parts = [left, right]
        case ast.BoolOp(values=values):
            parts = values
        case ast.IfExp(test=test, body=body, orelse=orelse):
            parts = [test, body, orelse]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            parts = args
        case _:
            raise ValueError(f"'{ast.unparse(node)}' in '{text}' is not part of a formula")
    for part in parts:
        _check(part, names, text)


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.BoolOp(op=op, values=parts):
            met = (bool(_value(part, values)) for part in parts)
            return all(met) if isinstance(op, ast.And) else any(met)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, values) else orelse, values)
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name](*(_value(arg, values) for arg in args))
        case _:
            raise ValueError(ast.dump(node))  # _check lets nothing else through
