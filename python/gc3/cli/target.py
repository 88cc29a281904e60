"""The object of a command: a compiled program, an algorithm of the catalogue, or one in a user's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gc3 import _core, algorithms, collectives, errors, lang, mscclang
from gc3.cli.blamed import OWN, blaming_the_user
from gc3.cli.options import KEYS
from gc3.cli.output import remark, working
from gc3.comm.selected import selected as select
from gc3.runtime.program import Program
from gc3.support import files

if TYPE_CHECKING:
    from collections.abc import Callable

    from gc3.cli.options import Asked, CompileOptions
    from gc3.comm.selected import Selected
    from gc3.topologies import Topology

T = TypeVar("T")

# Of other names, a file is a program if its content is: the text form has no suffix of its own.
_PROGRAMS = (".gc3", ".xml")


def is_program(spec: str) -> bool:
    """Returns whether `spec` names a file with a compiled program rather than an algorithm."""
    if spec.endswith(_PROGRAMS):
        return True
    if files.is_device(spec):
        raise click.UsageError(
            f"'{spec}' is a pipe or a device. A program may be read several times: write it to a file, and name that"
        )
    return not spec.endswith(".json") and ".py:" not in f"{spec}:" and Path(spec).is_file()


def is_collective(spec: str, options: CompileOptions) -> bool:
    """Returns whether `spec` is the name of a collective, whose program a selection table has.

    An algorithm of that name has the parameters of `options` if it takes them and needs no others.
    """
    if spec not in collectives.BUILTIN or is_program(spec):
        return False
    same = algorithms.catalogue().get(spec)
    return same is None or not same.takes(options.parameters)


def selected(spec: str, options: CompileOptions, *, size: int, engine: str) -> Selected:
    """Returns the program by which `engine` serves calls of the collective `spec` with S = `size` bytes."""
    useless = [key for key in options.only_for_algorithms() if key not in options.parameters]
    useless += ["collective"] * (options.collective is not None) + ["arguments after --"] * bool(options.script)
    if useless:
        raise click.UsageError(f"'{spec}' is a collective, whose program the table has: {useless[0]} cannot change it")
    given = dict(options.parameters)
    ranks, root = given.pop("R", None), given.pop("root", 0)
    if ranks is None or given or (root and not collectives.get(spec).rooted):
        rooted = ",root=N" if collectives.get(spec).rooted else ""
        same = algorithms.catalogue().get(spec)
        also = f"; the algorithm of that name takes {same.signature()}" if same else ""
        raise click.UsageError(f"'{spec}' is a collective: write {spec}:R=N{rooted}, with the number of ranks{also}")
    if not 0 <= root < ranks:
        raise click.UsageError(f"R={ranks}, root={root}: there is no such rank")
    with working(f"compiling the program for {spec}"):
        return select(engine, spec, ranks=ranks, size=size, in_place=options.in_place or False, root=root)


def algorithm(spec: str) -> lang.Algorithm:
    """Returns the algorithm that `spec` names."""
    return blaming_the_user(spec.partition(":")[0], lambda: algorithms.load(spec))


def is_script(spec: str) -> bool:
    """Returns whether `spec` names a script of MSCCLang, or one of its programs: PATH.py:NAME or PATH.py:NUMBER."""
    path = spec.rpartition(":")[0] if ".py:" in spec else spec
    return path.endswith(".py") and mscclang.imports_msccl(path)


def _scripted(spec: str, options: CompileOptions) -> mscclang.MSCCLProgram:
    """Runs a script of MSCCLang and returns the program of it that `spec` names."""
    path, _, which = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    useless = [*options.parameters, *(key for key in ("protocol", "in_place") if getattr(options, key) is not None)]
    if useless:
        raise click.UsageError(f"{', '.join(useless)}: '{path}' decides that itself; its arguments follow after --")
    if options.collective is not None:
        raise click.UsageError(f"'{path}' names its collective: collective= cannot change it")
    try:
        programs = blaming_the_user(path, lambda: mscclang.run(path, options.script))
    except mscclang.ArgumentsRefused as refused:
        raise click.UsageError(
            f"'{path}' ended with exit status {refused}; give its arguments after --, as in gc3 compile {path} -- 8 1"
        ) from None
    names = [program.name for program in programs]
    if which.isdecimal() and 1 <= int(which) <= len(names):
        chosen = programs[int(which) - 1]
    elif names.count(which) == 1 or (not which and len(names) == 1):
        chosen = programs[names.index(which) if which else 0]
    else:
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(names, 1)) or "none"
        raise click.UsageError(f"'{path}' makes the programs {listed}: name one as {path}:NUMBER")
    for text, line in chosen.remarks.items():
        remark(f"{path}:{line}: {text}")
    if chosen.states_no_result():
        remark(
            f"{path}: the collective has no check(): what is proven is that the schedule makes what the script moves"
        )
    return chosen


def _of_script(spec: str, options: CompileOptions, work: Callable[[mscclang.MSCCLProgram], T]) -> T:
    for name in ("window", "order"):
        if getattr(options, name) is not None:
            raise click.UsageError(
                f"'{spec}' is a script of MSCCLang, which has an order of its own: {name} does not apply"
            )
    program = _scripted(spec, options)
    return blaming_the_user(spec, lambda: work(program))


def _takes_no_arguments(spec: str, options: CompileOptions) -> None:
    if options.script:
        raise click.UsageError(f"'{options.script[0]}': '{spec}' is no script of MSCCLang and takes no arguments")


def compiled(spec: str, options: CompileOptions, *, slots: int = 0, in_place: bool | None = None) -> Program:
    """Returns the program that `spec` names, compiled if needed.

    Args:
        spec: A compiled program (.gc3, .xml), an algorithm of the catalogue, PATH.py:FUNCTION or PATH.json.
        options: How to compile an algorithm, or to read a program.
        slots: FIFO slots per connection that an algorithm's schedule may use; 0: the compiler's choice.
        in_place: Overrides that of `options` if not None.
    """
    if options.memory == "direct":
        told = "gc3 compile, export, run, show, sim, trace and verify do that"
        raise click.UsageError(f"'{spec}': memory=direct makes no program of messages, which is needed here: {told}")
    mode = options.in_place if in_place is None else in_place
    slots = slots or options.slots or 0
    if is_script(spec):
        threadblocks = options.max_threadblocks or 0
        return _of_script(
            spec, options, lambda p: p.compiled(options.instances, threadblocks, slots, fuse=options.fuse is not False)
        )
    _takes_no_arguments(spec, options)
    if is_program(spec):
        useless = options.only_for_algorithms()
        if useless:
            raise click.UsageError(f"'{spec}' is compiled already: {', '.join(useless)} cannot change it")
        with working(f"reading {spec}"):
            return Program.load(spec, collective=options.collective or "", in_place=mode)
    chosen = algorithm(spec)
    if options.collective is not None:
        raise click.UsageError(f"'{spec}' is an algorithm of {chosen.collective_name}: collective= cannot change it")
    arguments: dict[str, Any] = {**options.arguments(), "slots": slots, "in_place": mode}
    with working(f"compiling {chosen.name}"):
        return _written(chosen, options, lambda: lang.compile(chosen, memory="fifo", **arguments))


def direct(spec: str, options: CompileOptions) -> _core.DirectProgram:
    """Returns the algorithm that `spec` names as a one-sided program."""
    if is_program(spec):
        raise click.UsageError(f"'{spec}' is compiled already: memory cannot change it")
    if options.protocol not in (None, "Simple"):
        raise click.UsageError(f"protocol={options.protocol} is one of messages: memory=direct has none")
    program = compiled(spec, replace(options, memory=None))
    with working(f"lowering {program.name}"):
        return _core.lower(program.core)


def modes(spec: str, options: CompileOptions, *, slots: int = 0) -> list[Program]:
    """Returns the program of `compiled` and, if it comes from a file that allows the other mode, too, that one as well.

    Its in_place restricts it to one.
    """
    first = compiled(spec, options, slots=slots)
    use = first.use
    if options.in_place is not None or use is None or not (use.in_place and use.out_of_place):
        return [first]
    return [first, compiled(spec, options, slots=slots, in_place=not first.in_place)]


def demanded(spec: str, options: CompileOptions) -> tuple[str, _core.Collective]:
    """Returns the name of the program that `spec` names and its collective; does not verify the program."""
    if is_program(spec) or is_script(spec):
        program = compiled(spec, options)
        return program.name, program.collective
    _takes_no_arguments(spec, options)
    chosen = algorithm(spec)
    given: dict[str, Any] = {**options.parameters, "in_place": options.in_place}
    return chosen.name, _written(chosen, options, lambda: chosen.begin(**given)).model


def dumped(spec: str, stage: str, options: CompileOptions) -> str:
    """Returns the text of a stage of compiling the algorithm that `spec` names."""
    if is_script(spec):
        limits: dict[str, Any] = {"slots": options.slots or 0, "max_threadblocks": options.max_threadblocks or 0}
        return _of_script(
            spec, options, lambda p: p.dumped(stage, options.instances, fuse=options.fuse is not False, **limits)
        )
    _takes_no_arguments(spec, options)
    chosen = algorithm(spec)
    return _written(chosen, options, lambda: lang.dump(chosen, stage, **options.arguments()))


def _written(chosen: lang.Algorithm, options: CompileOptions, work: Callable[[], T]) -> T:
    """Runs `work`, which writes the algorithm for the parameters of the command line.

    Parameters that an algorithm of the library cannot handle, and parameters that make no valid collective for any
    algorithm, are mistakes on the command line.
    """
    given = ", ".join(f"{name}={value}" for name, value in options.parameters.items())
    try:
        _names_fit(chosen, options)
        return blaming_the_user(chosen.file, work)
    except errors.UserError as problem:
        impossible = problem.diagnostics[0].name == "BadCollective" and problem.line == chosen.line
        if not given or not (impossible or problem.file.startswith(OWN)):
            raise
        raise click.UsageError(f"{given} does not suit {chosen.name}: {problem.message}") from problem


def _names_fit(chosen: lang.Algorithm, options: CompileOptions) -> None:
    try:
        chosen.complete(options.parameters)
    except errors.UserError as problem:
        told = f"{problem.diagnostics[0].message}: {chosen.name}:NAME=VALUE,..."
        needed = {p.name for p in chosen.parameters if p.default is None} - options.parameters.keys()
        rule = "; R, N and G are those of a machine only where --topology names one" if needed & {"R", "N", "G"} else ""
        raise click.UsageError(told + rule) from problem


def fitting(asked: Asked, machine: Topology) -> Asked:
    """Returns an algorithm with the ranks and nodes that the machine has unless numbers are given."""
    if is_program(asked.name) or is_script(asked.name):
        return asked
    how = asked.how
    wanted = {p.name: p.default for p in algorithm(asked.name).parameters}
    for key in how.parameters:
        if key not in wanted:
            raise click.UsageError(
                f"'{key}' of '{asked.text}' is not known: {asked.name} takes {', '.join([*wanted, *KEYS])}"
            )
    nodes = machine.node_count
    natural = {"R": machine.rank_count, "N": nodes, "G": machine.rank_count // nodes}
    parameters = {key: value for key, value in natural.items() if key in wanted and wanted[key] is None}
    parameters |= how.parameters
    if "rails" in parameters:  # rings that share the NICs need to know the nodes
        parameters.setdefault("G", natural["G"])
    return replace(asked, how=replace(how, parameters=parameters))
