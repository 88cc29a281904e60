#!/usr/bin/env python3
"""Hosts on this machine: namespaces on a bridge, for tests of jobs of several hosts, and for trying such jobs.

    tests/hosts.py check                             exit status 77 and the reason where the system forbids it
    tests/hosts.py -n 2 -k 2 -- python script.py     4 ranks on 2 hosts, with the variables of torchrun
    tests/hosts.py -n 2 --apart -- COMMAND           prints at the end, each rank's output as a whole, by rank
    tests/hosts.py -n 2 --once -- COMMAND            one command, on the first host, such as mpirun

A host has a network, process numbers, Unix sockets, /dev/shm, a boot id and a name of its own: node0 at 10.77.0.1, and
so on. Files are shared. All of it lives in namespaces of one process, so nothing is left behind, however that ends,
and no packet leaves. No root is needed where user namespaces are allowed. Within, any process may run

    tests/hosts.py on node1 COMMAND...               runs a command there, as ssh does
    tests/hosts.py cut|heal|mute|unmute|part|kill|crash|stop|go 1
    tests/hosts.py rate 1 1gbit                      limits the host's link, both ways; none: no limit

cut: no packet passes. mute: the others hear nothing of the host. part: it reaches only others that were parted. kill:
its processes end, and the system closes their connections. crash: cut, then kill. stop, go: its processes stop, and
go on.
"""

# ruff: noqa: T201, S607 (a command that prints, and runs the tools of the system)

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SELF = Path(__file__).resolve()
_SPACES = ("net", "uts", "ipc", "pid")
_PORT = 29500
_SKIP = 77
_BROKER = "HOSTS_BROKER"
_APART = "HOSTS_APART"
_VERBS = ("cut", "heal", "mute", "unmute", "part", "kill", "crash", "stop", "go", "rate")
_PDEATHSIG = 1
# Bytes: two of the largest packets. A link that has rested sends so many at once, which real ones do not: with 1 MiB
# the calls between computations were up to a third too fast.
_BURST = str(1 << 17)
# Starts the ranks of its host, as a launcher does, and returns the status of one that fails. What ranks write to one
# pipe may come in any order, and mixed within a line, so each may have a file of its own.
_AGENT = """
all=
for LOCAL_RANK in $(seq 0 $((LOCAL_WORLD_SIZE - 1))); do
  export LOCAL_RANK RANK=$((GROUP_RANK * LOCAL_WORLD_SIZE + LOCAL_RANK))
  if [ "$HOSTS_APART" ]; then "$@" >"$HOSTS_APART/$RANK" 2>&1 & else "$@" & fi
  all="$all $!"
done
status=0
for rank in $all; do wait $rank || status=$?; done
exit $status
"""


def why_not() -> str:
    """Why this machine cannot simulate hosts; empty if it can."""
    for tool in ("unshare", "nsenter", "ip", "tc", "mount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    trial = "ip link add br0 type bridge && ip link add one0 type veth peer name two0 && mount -t tmpfs none /mnt"
    done = subprocess.run(_outer(["sh", "-ec", trial]), capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["namespaces are refused"])[-1]


def command(hosts: int, ranks: int, program: Sequence[str], *options: str) -> list[str]:
    """The command line that runs a program on every rank."""
    return [sys.executable, str(_SELF), "-n", str(hosts), "-k", str(ranks), *options, "--", *program]


def do(verb: str, host: int | str, *words: str) -> int:
    """Asks for a fault, or for a command on a host, from within; returns the exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as broker:
        broker.connect(os.environ[_BROKER])
        number = int(str(host).removeprefix("node"))
        asked = {"verb": verb, "host": number, "words": words, "folder": str(Path.cwd()), "env": dict(os.environ)}
        socket.send_fds(broker, [json.dumps(asked).encode()], [0, 1, 2])
        return int(broker.recv(16) or b"255")


def _outer(words: Sequence[str]) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    spaces = ["--net", "--uts", "--ipc", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *user, *spaces, *words]


def _run(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, stderr=None if check else subprocess.DEVNULL)


@dataclass
class _Host:
    """The namespaces of a host, held by a process that sleeps."""

    number: int
    state: Path
    keeper: int = 0
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"10.77.{(self.number + 1) // 256}.{(self.number + 1) % 256}"

    @property
    def link(self) -> str:
        return f"h{self.number}"

    def make(self) -> None:
        spaces = [f"--{name}" for name in _SPACES]
        holder = subprocess.Popen(["unshare", *spaces, "--fork", "--kill-child", "sleep", "infinity"])
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        while not self.keeper:
            self.keeper = int((children.read_text().split() or ["0"])[0])
        _run(*self.within("uts"), "sysctl", "-qw", f"kernel.hostname=node{self.number}")
        # BBR, the default of some machines, paces by estimates: on a bridge within one machine, one connection in three
        # then takes four times as long as another. Every kernel has Reno.
        _run(*self.within("net"), "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno", check=False)
        _run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.keeper))
        _run("ip", "link", "set", self.link, "master", "bridge0", "up")
        for words in ("link set lo up", "link set eth0 up", f"address add {self.address}/16 dev eth0"):
            _run(*self.within("net"), "ip", *words.split())
        (self.state / f"boot{self.number}").write_text(f"{uuid.uuid4()}\n")
        shared = self.state / f"shm{self.number}"
        shared.mkdir()
        _run("mount", "-t", "tmpfs", "-o", "mode=1777", "shm", str(shared))

    def within(self, *spaces: str) -> list[str]:
        return ["nsenter", "--target", str(self.keeper), *(f"--{name}" for name in spaces)]

    def start(
        self, words: Sequence[str], env: dict[str, str], files: Sequence[int] | None = None
    ) -> subprocess.Popen[bytes]:
        own = (
            "mount -t proc proc /proc;"
            f"mount --bind {self.state}/boot{self.number} /proc/sys/kernel/random/boot_id;"
            f"mount --bind {self.state}/shm{self.number} /dev/shm;"
            f"mount --bind {self.state}/names /etc/hosts;"
            'exec "$@"'
        )
        inside = [*self.within(*_SPACES), "unshare", "--mount", "sh", "-ec", own, "sh", *words]
        stdin, stdout, stderr = files or (subprocess.DEVNULL, None, None)
        self.started.append(subprocess.Popen(inside, env=env, stdin=stdin, stdout=stdout, stderr=stderr))
        return self.started[-1]

    def fail(self, verb: str, words: Sequence[str]) -> None:
        if verb in ("cut", "crash", "heal"):
            _run("ip", "link", "set", self.link, "up" if verb == "heal" else "down")
        if verb in ("part", "heal"):
            _run("ip", "link", "set", self.link, "master", "bridge0" if verb == "heal" else "bridge1")
        sends = [*self.within("net"), "tc", "qdisc"], ["dev", "eth0", "root"]
        gets = ["tc", "qdisc"], ["dev", self.link, "root"]
        limit = ["8bit", "1"] if verb == "mute" else [*words, _BURST] if verb == "rate" and words != ["none"] else []
        if verb in ("mute", "unmute", "rate"):
            for tool, end in (sends, gets) if verb == "rate" else (sends,):
                _run(*tool, "del", *end, check=False)
                if limit:
                    _run(*tool, "add", *end, "tbf", "rate", limit[0], "burst", limit[1], "latency", "20ms")
        sign = {"kill": "KILL", "crash": "KILL", "stop": "STOP", "go": "CONT"}.get(verb)
        if sign:
            _run(*self.within("pid"), "kill", f"-{sign}", "-1", check=False)
        if sign in ("KILL", "CONT"):
            for child in self.started:  # nsenter stops with what it has started
                child.send_signal(signal.SIGCONT)


@dataclass
class _Hosts:
    """All hosts; the only process that sees the processes of all of them."""

    hosts: list[_Host]
    broker: socket.socket
    env: dict[str, str]
    asked: list[tuple[subprocess.Popen[bytes], socket.socket]] = field(default_factory=list)

    def serve(self, waits: Callable[[], int | None]) -> int:
        """Does what is asked until `waits` returns a status."""
        while (status := waits()) is None:
            with suppress(BlockingIOError):
                asker, _ = self.broker.accept()
                text, files, _, _ = socket.recv_fds(asker, 1 << 20, 3)
                self._answer(asker, json.loads(text), files)
                for file in files:
                    os.close(file)
            for child, asker in list(self.asked):
                if child.poll() is not None:
                    self.asked.remove((child, asker))
                    with suppress(OSError):
                        asker.send(str(_status(child)).encode())
            time.sleep(0.005)
        return status

    def _answer(self, asker: socket.socket, asked: dict[str, Any], files: Sequence[int]) -> None:
        host: _Host = self.hosts[asked["host"]]
        if asked["verb"] == "on":
            inside = ["sh", "-c", f"cd {shlex.quote(asked['folder'])} && {' '.join(asked['words'])}"]
            self.asked.append((host.start(inside, asked["env"], files), asker))
            return
        host.fail(asked["verb"], asked["words"])
        asker.send(b"0")


def _status(child: subprocess.Popen[bytes]) -> int:
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _inside(args: argparse.Namespace) -> int:
    """In the outer namespaces."""
    state = Path(args.state)
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "hosts", str(state))
    for bridge in ("bridge0", "bridge1"):
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "link", "set", bridge, "up")
    hosts = [_Host(number, state) for number in range(args.hosts)]
    names = "".join(f"{host.address} node{host.number}\n" for host in hosts)
    (state / "names").write_text(f"127.0.0.1 localhost\n{names}")
    for host in hosts:
        host.make()
        if args.rate:
            host.fail("rate", [args.rate])
    broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    broker.bind(f"{state}/broker")
    broker.listen(64)
    broker.setblocking(False)
    apart = state / "apart" if args.apart else None
    env = {**os.environ, _BROKER: f"{state}/broker", _APART: str(apart or "")}
    if apart is not None:
        apart.mkdir()
    if args.once:
        children = [hosts[0].start(args.command, env)]
    else:
        world = {
            "WORLD_SIZE": str(args.hosts * args.ranks),
            "LOCAL_WORLD_SIZE": str(args.ranks),
            "MASTER_ADDR": hosts[0].address,
            "MASTER_PORT": str(_PORT),
        }
        children = [
            host.start(["sh", "-c", _AGENT, "agent", *args.command], env | world | {"GROUP_RANK": str(host.number)})
            for host in hosts
        ]
    until = time.monotonic() + args.timeout

    def waits() -> int | None:
        if time.monotonic() > until:
            late = [f"node{host}" for host, child in enumerate(children) if child.poll() is None]
            print(f"hosts: not done within {args.timeout:g} s: {', '.join(late)}", file=sys.stderr)
            return 124
        if any(child.poll() is None for child in children):
            return None
        return max(map(_status, children))

    status = _Hosts(hosts, broker, env).serve(waits)
    for file in sorted(apart.iterdir(), key=lambda file: int(file.name)) if apart is not None else ():
        text = file.read_text(errors="replace")
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
    return status


def main() -> int:
    """The command line."""
    words = sys.argv[1:]
    if words[:1] == ["check"]:
        print(why_not() or "hosts can be simulated")
        return _SKIP if why_not() else 0
    if words and words[0] in ("on", *_VERBS):
        return do(words[0], words[1], *words[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--hosts", type=int, default=2)
    parser.add_argument("-k", "--ranks", type=int, default=1, help="on each host")
    parser.add_argument("--rate", help="of each host's link, such as 10gbit")
    parser.add_argument("--once", action="store_true", help="run the command once, on the first host")
    parser.add_argument("--apart", action="store_true", help="print each rank's output as a whole, at the end")
    parser.add_argument("--timeout", type=float, default=300, help="seconds")
    parser.add_argument("--state", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(words)
    args.command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not args.command:
        parser.error("no command")
    if args.state:
        return _inside(args)
    if problem := why_not():
        print(f"hosts: {problem}", file=sys.stderr)
        return _SKIP
    with tempfile.TemporaryDirectory(prefix="gc3-hosts-") as state:  # outside it stays empty
        child = subprocess.Popen(
            _outer([sys.executable, str(_SELF), "--state", state, *words]),
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
        )
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, lambda *_: child.kill())
        return _status(child) if child.wait() is not None else 0


if __name__ == "__main__":
    sys.exit(main())
