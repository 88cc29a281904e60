"""The child process of the solvers: linear and integer programs with HiGHS, satisfiability with CaDiCaL and Gluecard.

It is run by path, reads pickled tasks from standard input and answers on standard output. It imports nothing of gc3, so
that it starts fast. Its parent kills it to stop a solver, because some solvers cannot be stopped otherwise.

A task is ("linear", fields of a linear program) or ("sat", fields of a formula); see `solvers` for both.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import signal
import sys
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl
_GLUECARD_CONFLICTS = 20_000
_SIMPLEX_LIMIT = 400_000  # number of non-zeros above which an interior-point method is faster than simplex


def linear(task: dict[str, Any]) -> dict[str, Any]:
    """Solves a linear or mixed-integer program, minimizing."""
    import highspy  # noqa: PLC0415 - only when needed: it takes a while
    import numpy as np  # noqa: PLC0415

    h: Any = highspy.Highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    h.setOptionValue("random_seed", task["seed"])
    h.setOptionValue("time_limit", task["seconds"])
    integral = task["integral"]
    mixed = bool(integral.any())
    if mixed:
        h.setOptionValue("mip_rel_gap", 0.0)
        h.setOptionValue("mip_abs_gap", 0.999 if task["whole_cost"] else 1e-6)
    elif task["method"] != "auto" or len(task["value"]) > _SIMPLEX_LIMIT:
        h.setOptionValue("solver", "ipm")
        h.setOptionValue("run_crossover", "off" if task["method"] == "interior" else "on")
    columns, rows = len(task["cost"]), len(task["row_low"])
    h.passModel(
        columns, rows, len(task["value"]), 2, 1, 0.0,  # 2: row by row, 1: minimize
        task["cost"], task["low"], task["high"], task["row_low"], task["row_high"],
        task["start"], task["index"], task["value"], integral.astype(np.int32),
    )  # fmt: skip
    if task["hint"] is not None:
        guess = highspy.HighsSolution()
        guess.col_value = list(task["hint"])
        h.setSolution(guess)
    h.run()
    status = h.getModelStatus()
    kinds = highspy.HighsModelStatus
    names = {kinds.kOptimal: "optimal", kinds.kInfeasible: "infeasible", kinds.kUnboundedOrInfeasible: "infeasible"}
    name = names.get(status, "unknown")
    solution = h.getSolution()
    info = h.getInfo()
    found = name == "optimal" or (mixed and info.primal_solution_status == 2)  # noqa: PLR2004 - 2: feasible
    return {
        "status": name,
        "cost": info.objective_function_value if found else None,
        "bound": info.mip_dual_bound if mixed else None,
        "values": np.array(solution.col_value) if found else None,
        "duals": None if mixed or name != "optimal" else np.array(solution.row_dual),
    }


def sat(task: dict[str, Any]) -> dict[str, Any]:
    """Decides a formula of clauses and at-most constraints: first with native constraints, then with CaDiCaL."""
    make: Any = importlib.import_module("pysat.solvers").Solver
    clauses, limits = _clauses(task["clauses"]), task["limits"]
    if not any(len(set(literals)) < len(literals) for literals, _ in limits):
        with make("gluecard4") as solver:
            solver.append_formula(clauses)
            for literals, most in limits:
                solver.add_atmost(literals, most)
            solver.conf_budget(_GLUECARD_CONFLICTS)
            answer = solver.solve_limited()
            if answer is not None:
                return {"status": "sat" if answer else "unsat", "model": solver.get_model()}
    cards: Any = importlib.import_module("pysat.card")
    top = task["variables"]
    with make("cadical195") as solver:
        solver.append_formula(clauses)
        for literals, most in limits:
            encoded = cards.CardEnc.atmost(literals, most, top_id=top, encoding=cards.EncType.totalizer)
            top = max(top, encoded.nv)
            solver.append_formula(encoded.clauses)
        answer = solver.solve()
        return {"status": "sat" if answer else "unsat", "model": solver.get_model()}


def _clauses(flat: Any) -> list[list[int]]:
    """Clauses come in one array, each terminated by a zero."""
    found: list[list[int]] = []
    clause: list[int] = []
    for literal in flat.tolist():
        if literal:
            clause.append(literal)
        else:
            found.append(clause)
            clause = []
    return found


def ready(_task: dict[str, Any]) -> dict[str, Any]:
    """Imports the solvers, so that the next task does not wait for that."""
    for name in ("highspy", "pysat.card", "pysat.solvers"):
        importlib.import_module(name)
    return {"status": "ready"}


def _end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, for whatever reason: a solver may be busy for hours."""
    with contextlib.suppress(OSError, AttributeError):  # on other systems it ends after its task
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()


def main() -> None:
    """Answers tasks until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    _end_with_parent(int(sys.argv[1]))
    sys.path[:1] = []  # this file's folder, so that solvers do not import its modules
    answers = os.fdopen(os.dup(1), "wb")
    # What solvers print must not get into the answers, nor among the lines of a command: HiGHS 1.16 prints its version
    # whatever `output_flag` says.
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    actions = {"linear": linear, "sat": sat, "ready": ready}
    while True:
        try:
            kind, task = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent
        except EOFError:
            return
        try:
            answer = actions[kind](task)
        except ImportError as problem:
            answer = {"status": "missing", "why": str(problem)}
        except MemoryError:
            answer = {"status": "unknown"}
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    main()
