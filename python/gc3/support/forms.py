"""Names the JSON forms that a user may give in place of the one that is read."""

from __future__ import annotations

from typing import Any, cast

# What a form is, and members that it has, of which the first that is there decides.
_FORMS = (
    ("a schedule of TE-CCL, which gc3 does not read", ("7-Flows", "8-Chunk paths", "1-Epoch_Duration")),
    ("the input of TE-CCL, which gc3 does not read", ("TopologyParams", "InstanceParams")),
    ("a sketch of TACCL, which gc3 does not read", ("intranode_sketch", "internode_sketch")),
    (
        "a topology of TACCL, which gc3 does not read",
        ("gpus_per_node", "ngpus_per_node", "node_invbws_list", "node_betas_list"),
    ),
    ("a file of SCCL, MSCCL or TACCL: algorithms of SCCL and MSCCL are read as programs", ("msccl_type", "sccl_type")),
    ("a topology of gc3: give it as the machine", ("gc3_topology",)),
    ("a preset of gc3: give it as preset=FILE.json after a machine", ("gc3_sim_preset",)),
    ("what gc3 bench --json prints: its --compare reads it", ("average_busbw",)),
    ("what a command of gc3 prints with --json", ("programs", "preset", "table")),
    ("a selection table of gc3: see gc3 table", ("format", "rows")),
    ("a profile of PyTorch: gc3 sim convert reads it", ("traceEvents",)),
    ("an execution trace of PyTorch in JSON: gc3 sim convert reads it", ("nodes",)),
    ("a plan of MSCCL++: gc3 show, verify and run read it", ("gpus",)),
)


def looks_like(data: Any) -> str:
    """Returns what a JSON document is by its members, after a semicolon; empty if that is not known.

    >>> looks_like({"7-Flows": []})
    '; it looks like a schedule of TE-CCL, which gc3 does not read'
    """
    members = cast("dict[Any, Any]", data) if isinstance(data, dict) else {}
    found = next((what for what, names in _FORMS if any(name in members for name in names)), "")
    return f"; it looks like {found}" if found else ""
