"""gc3 topo."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from gc3 import topologies
from gc3.cli import completion, options, output, sizes, trials, variants
from gc3.cli.command import Command
from gc3.cli.files import DRAWN, OutputFile
from gc3.report import loads, svg
from gc3.sim import Simulation, platform
from gc3.support.files import write_text
from gc3.support.words import counted
from gc3.topologies import importing, nvidia_smi, probe
from gc3.topologies import plot as drawing
from gc3.topologies.processors import PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gc3.topologies import Preset, Topology

_GB = 1e9
_SHOWN_PAIRS = 4
_SIZE = 1 << 20

_output_file = click.option(
    "--output", "-o", "path", type=OutputFile(), metavar="FILE", help="Write the topology to this file, as JSON."
)


@click.group("topo", short_help="Machines: list, show, draw, check, import, probe.")
def topo() -> None:
    """Machines: list, show, draw, check, import and probe them.

    SPEC is a preset such as dgx1, a preset with parameters such as ndv4:N=2, or a FILE.json.
    """


@topo.command(
    "list",
    cls=Command,
    long=True,
    short_help="List machines and shapes.",
    examples=["gc3 topo list", "gc3 topo list --json"],
)
@options.json_option
def list_command(as_json: bool) -> None:
    """List the machines and shapes that come with gc3, and the parameters they take."""
    presets = topologies.catalogue().values()
    if as_json:
        output.emit({"topologies": [_preset_data(p) for p in presets]})
        return
    for generic, title in ((False, "Machines"), (True, "Shapes")):
        click.secho(title, bold=True)
        for preset in (p for p in presets if p.generic == generic):
            given = ",".join(f"{p.name}={'...' if p.default is None else p.default}" for p in preset.parameters)
            click.secho(f"  {preset.name}{f':{given}' if given else ''}", fg="cyan")
            click.echo(
                textwrap.fill(preset.summary, output.columns(), initial_indent="      ", subsequent_indent="      ")
            )


@topo.command(
    "show",
    cls=Command,
    long=True,
    short_help="Show ranks, links and their rates.",
    examples=[
        "gc3 topo show dgx1",
        "gc3 topo show dgx1 --relation",
        "gc3 topo show ndv4:N=2 --json",
        "gc3 topo show summit -o my_machine.json",
    ],
)
@click.argument("spec", shell_complete=completion.machines)
@click.option("--relation", is_flag=True, help="SCCL's bandwidth relation: chunks per round over sets of links.")
@_output_file
@options.json_option
def show(spec: str, relation: bool, path: str | None, as_json: bool) -> None:
    """Show a topology: its ranks, their links and rates, with sources; with --json in its JSON form."""
    topology = topologies.load(spec)
    if path is not None:
        write_text(path, topologies.dumps(topology))
    if relation:
        _show_relation(topology, as_json=as_json)
    elif as_json:
        click.echo(topologies.dumps(topology), nl=False)
    else:
        _describe(topology)


@topo.command(
    "validate",
    cls=Command,
    short_help="Check a topology file.",
    examples=["gc3 topo validate my_machine.json", "gc3 topo validate my_machine.json --json"],
)
@click.argument("file")
@options.json_option
def validate(file: str, as_json: bool) -> None:
    """Check a topology file against the format and for consistency."""
    topology = topologies.read(file)
    if as_json:
        output.emit({"file": file, "ok": True, **_summary(topology)})
    else:
        click.echo(f"{file}: {_headline(topology)}")
        _warn_of_unknowns(topology)


@topo.command(
    "plot",
    cls=Command,
    examples=[
        "gc3 topo plot dgx1 -o dgx1.png",
        "gc3 topo plot ndv4:N=4 -o cluster.svg",
        "gc3 topo plot ndv4:N=2 --load hierarchical_allreduce --size 16MiB -o load.svg",
    ],
)
@click.argument("spec", shell_complete=completion.machines)
@click.option(
    "--output",
    "-o",
    "path",
    type=OutputFile(*DRAWN, any_case=True),
    metavar="FILE.png|.svg|.pdf",
    required=True,
    help="The drawing.",
)
@click.option(
    "--load",
    "spec_of_load",
    type=options.Program(),
    metavar="PROGRAM",
    help="Show the load that this program puts on every link.",
)
@click.option("--size", type=sizes.Size(), help="Size S of its call.  [default: 1MiB]")
@options.json_option
def plot(spec: str, path: str, spec_of_load: options.Asked | None, size: int | None, as_json: bool) -> None:
    """Draw a topology. This needs matplotlib, except with --load, which draws SVG or, with resvg, PNG."""
    topology = topologies.load(spec)
    if spec_of_load is not None:
        use = _draw_load(topology, spec_of_load, size or _SIZE, path)
        if as_json:
            loaded = {name: {"busy_us": 1e6 * busy, "bytes": moved} for name, (busy, moved) in use.items()}
            output.emit({"file": path, **_summary(topology), "load": loaded})
        else:
            click.echo(f"the load of {spec_of_load.text} on {topology.name} drawn to {path}")
        return
    if size is not None:
        raise click.UsageError("--size is for --load")
    with output.working("drawing"):
        drawing.plot(topology, path)
    if as_json:
        output.emit({"file": path, **_summary(topology)})
    else:
        click.echo(f"{topology.name} drawn to {path}")


def _draw_load(topology: Topology, spec: options.Asked, size: int, path: str) -> Mapping[str, tuple[float, int]]:
    if not path.endswith(svg.FORMATS):
        raise click.UsageError(f"'{path}': the load is drawn as SVG or PNG, so the name must end in .svg or .png")
    svg.check(path)
    if topology.rank_count > loads.MOST_RANKS:
        raise click.UsageError(f"{topology.rank_count} ranks; a drawing of a load has at most {loads.MOST_RANKS}")
    on = platform(topology)
    asked = variants.limited(spec, on)
    named, program, _ = trials.settled(asked, variants.proven(asked, topology), on, size)
    with output.working("simulating"):
        simulation = Simulation(program, on)
        found = simulation.run(size, explain=True)
    head = f"{named.text} on {topology.title}, {sizes.format_size(size)}: {svg.time_text(found.time_s)}"
    head += f" ({simulation.expected(size).short})"
    svg.save(loads.draw(topology, found.use, found.time_s, head=head), path)
    return found.use


def _rates(_ctx: click.Context, param: click.Parameter, given: Iterable[str]) -> nvidia_smi.Rates:
    known: dict[str, float] = {}
    for text in given:
        link, _, rate = text.partition("=")
        if link not in ("nvlink", "pcie", "nic"):
            raise click.BadParameter(f"'{text}' is not LINK=GB/S of nvlink, pcie or nic, as in nvlink=50")
        known[link] = options.Positive().convert(rate, param, None) * _GB
    return nvidia_smi.Rates(**known)


@topo.command(
    "import",
    cls=Command,
    short_help="Import a machine from NCCL or nvidia-smi.",
    examples=[
        "gc3 topo import nccl_topo.xml -o machine.json",
        "gc3 topo import nccl_topo.xml --nodes 4 --name cluster -o cluster.json",
        "gc3 topo import topo.txt --rate nvlink=50 -o machine.json",
    ],
)
@click.argument("file")
@click.option("--name", help="Name of the topology.  [default: that of the file]")
@click.option(
    "--nodes", type=click.IntRange(1, 1024), default=1, show_default=True, help="The number of such machines."
)
@click.option("--links-only", is_flag=True, help="Leave out the paths over PCIe and CPUs between GPUs.")
@click.option("--rate", "rates", metavar="LINK=GB/S", multiple=True, callback=_rates,
              help="nvidia-smi: rate per direction of an nvlink, pcie link or nic; once for each.  [default: "
              "nvlink=25, others unknown]")  # fmt: skip
@click.option("--processor", metavar="CLASS", help="Class of the GPUs, such as a100.  [default: that of the file]")
@_output_file
@options.json_option
def import_command(
    file: str,
    name: str | None,
    nodes: int,
    links_only: bool,
    rates: nvidia_smi.Rates,
    processor: str | None,
    path: str | None,
    as_json: bool,
) -> None:
    """Import a machine from NCCL's topology XML or from the output of `nvidia-smi topo -m`.

    NCCL writes the XML to the file that NCCL_TOPO_DUMP_FILE names.
    """
    topology = importing.import_file(
        file, name=name, nodes=nodes, rates=rates, slow_paths=not links_only, processor=processor
    )
    _deliver(topology, path, as_json=as_json)


@topo.command(
    "probe",
    cls=Command,
    short_help="Find the topology of this machine.",
    examples=["gc3 topo probe", "gc3 topo probe --cpu --measure -o this.json"],
)
@click.option("--cpu", is_flag=True, help="Cores, also if there are GPUs.")
@click.option("--measure", is_flag=True, help="Measure how fast cores copy memory.")
@_output_file
@options.json_option
def probe_command(cpu: bool, measure: bool, path: str | None, as_json: bool) -> None:
    """Find the topology of this machine: its GPUs, or the CPU cores that ranks can run on."""
    with output.working("probing"):
        topology = probe.probe(gpus=False if cpu else None, measure=measure)
    _deliver(topology, path, as_json=as_json)


def _deliver(topology: Topology, path: str | None, *, as_json: bool) -> None:
    """Prints the result as JSON, to a file, or as text."""
    if path is not None:
        write_text(path, topologies.dumps(topology))
    if as_json:
        click.echo(topologies.dumps(topology), nl=False)
        return
    _describe(topology)
    if path is not None:
        click.echo(f"written to {path}")
    else:
        output.remark("nothing was written: add -o FILE.json, or --json to see the file")


def _preset_data(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "generic": preset.generic,
        "parameters": [
            {"name": p.name, "default": p.default, "required": p.default is None} for p in preset.parameters
        ],
        "summary": preset.summary,
        "source": preset.source,
    }


def _summary(topology: Topology) -> dict[str, Any]:
    return {
        "name": topology.name,
        "ranks": topology.rank_count,
        "nodes": topology.node_count,
        "levels": {level.name: len(set(level.groups)) for level in topology.levels},
        "processors": list(_processors(topology)),
        "links": len(topology.links),
        "fabrics": len(topology.fabrics),
        "resources": len(topology.resources),
        "unknown_bandwidths": [c.name for c in topology.classes if c.bandwidth_bytes_per_s is None],
    }


def _engines(name: str) -> str:
    known = PROCESSORS.get(name)
    if known is None or not known.copy_engines:
        return ""
    return f" ({counted(known.copy_engines, 'copy engine')}, {1e6 * known.copy_s:g} us to start a copy)"


def _processors(topology: Topology) -> dict[str, int]:
    """How many ranks are of each processor class."""
    return dict(Counter(rank.processor for rank in topology.ranks))


def _headline(topology: Topology) -> str:
    parts = (
        counted(topology.rank_count, "rank"),
        counted(topology.node_count, "node"),
        *(counted(len(set(level.groups)), level.name) for level in topology.levels),
        counted(len(topology.links), "link"),
        counted(len(topology.fabrics), "fabric"),
        counted(len(topology.resources), "shared resource"),
    )
    return f"{topology.name}: {', '.join(parts)}"


def _warn_of_unknowns(topology: Topology) -> None:
    for name in _summary(topology)["unknown_bandwidths"]:
        output.remark(f"the bandwidth of class '{name}' is unknown: give bandwidth_bytes_per_s in the file")


def _describe(topology: Topology) -> None:
    click.secho(_headline(topology), bold=True)
    for text in (topology.summary, f"source: {topology.source}" if topology.source else ""):
        if text:
            click.echo(textwrap.fill(text, output.columns(), initial_indent="  ", subsequent_indent="  "))
    classes = (
        f"{counted(count, 'rank')} of class {name or 'unknown'}{_engines(name)}"
        for name, count in _processors(topology).items()
    )
    click.echo(f"  processors: {', '.join(classes)}")
    name, inner = "node", range(topology.node_count)
    for level in topology.levels:
        members: dict[int, list[int]] = {}
        for small, group in dict(zip(inner, level.groups, strict=True)).items():
            members.setdefault(group, []).append(small)
        sizes = sorted({len(listed) for listed in members.values()})
        each = counted(sizes[0], name) if len(sizes) == 1 else f"{sizes[0]} to {counted(sizes[-1], name)}"
        click.echo(f"  {counted(len(members), level.name)} of {each}")
        name, inner = level.name, level.groups
    click.echo("\nclasses (one lane, one direction)")
    for c in topology.classes:
        rate = "unknown" if c.bandwidth_bytes_per_s is None else f"{c.bandwidth_bytes_per_s / _GB:g} GB/s"
        latency = "latency unknown" if c.latency_s is None else f"latency {c.latency_s * 1e6:g} us"
        useful = f"kernels {c.kernel_efficiency:.0%}, copy engines {c.dma_efficiency:.0%}"
        useful += f", in the switch {c.multicast_efficiency:.0%} of kernels" if c.multicast_efficiency else ""
        message = f", {c.message_s * 1e6:g} us per message" if c.message_s else ""
        click.echo(f"  {click.style(c.name, fg='cyan')}  {rate}, {useful}, {latency}{message}")
        if c.source:
            click.echo(textwrap.fill(c.source, output.columns(), initial_indent="      ", subsequent_indent="      "))
    if topology.links:
        click.echo("\nlinks (lanes)")
        _print_links(topology)
    for fabric in topology.fabrics:
        ranks = len({port.rank for port in fabric.ports})
        rails = len(fabric.ports) / max(ranks, 1)
        across = ", between nodes" if fabric.across_nodes else ""
        several = f" with {rails:g} ports each" if rails != 1 else ""
        first = fabric.ports[0] if fabric.ports else None
        via = f"; rank {first.rank} sends via {' > '.join(first.out) or 'nothing shared'}" if first else ""
        click.echo(f"fabric {click.style(fabric.name, fg='cyan')}: {counted(ranks, 'rank')}{several}{across}{via}")
    _warn_of_unknowns(topology)


_MOST_COLUMNS = 32


def _print_links(topology: Topology) -> None:
    """A matrix of lanes if it fits; * for links that only use shared resources."""
    count = topology.rank_count
    if count > _MOST_COLUMNS:
        click.echo(f"  {len(topology.links)}; too many to print, see --json")
        return
    lanes = {(k.src, k.dst): str(k.lanes or "*") for k in topology.links}
    lanes |= {(r, r): "-" for r in range(count)}
    click.echo("  " + "".join(f"{b:>4}" for b in ("", *range(count))))
    for a in range(count):
        click.echo("  " + f"{a:>4}" + "".join(f"{lanes.get((a, b), '.'):>4}" for b in range(count)))
    if any(not k.lanes for k in topology.links):
        click.echo("  * only over resources shared with others")


def _show_relation(topology: Topology, *, as_json: bool) -> None:
    bounds = topologies.relation(topology)
    if as_json:
        data = [{"pairs": [list(pair) for pair in b.pairs], "chunks": b.chunks} for b in bounds]
        output.emit({"name": topology.name, "ranks": topology.rank_count, "bounds": data})
        return
    click.echo(f"{topology.name}: {counted(len(bounds), 'bound')}, chunks per round over links together")
    for bound in bounds:
        pairs = " ".join(f"{a}->{b}" for a, b in bound.pairs[:_SHOWN_PAIRS])
        more = f" and {len(bound.pairs) - _SHOWN_PAIRS} more" if len(bound.pairs) > _SHOWN_PAIRS else ""
        click.echo(f"  {bound.chunks:>4}  {pairs}{more}")
