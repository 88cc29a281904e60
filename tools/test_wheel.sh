#!/usr/bin/env bash
# The wheels in environments that have nothing else, outside the tree, without a compiler. `make test-wheels` runs this;
# tools/test_wheel.sh oldest newest 3.12
#
# For each Python named, if this machine has it: makes its wheel, installs it with what it needs from PyPI, all of it
# compiled already, and runs what `gc3` does without extras. The oldest Python also runs the tests of the language, of the
# machines and of the simulator with the installed package.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for version in "$@"; do
  python=$(.venv/bin/python tools/pythons.py "$version")
  if [ -z "$python" ]; then
    echo "skipped: this machine has no Python $version with its headers"
    continue
  fi
  number=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "== the wheel of Python $number"
  .venv/bin/python tools/wheel.py "$number"

  rm -rf "$work/venv" "$work/run"
  mkdir "$work/run"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: "$tree"/build/wheels/gc3-*.whl
  # Nothing of this shell: no compiler on PATH, no settings, no folder of the tree.
  in_it() { (cd "$work/run" && env -i HOME="$work" LANG=C.UTF-8 PATH="$work/venv/bin" "$@" >"$work/log" 2>&1) ||
    { echo "failed with Python $number: $*"; cat "$work/log"; exit 1; }; }
  in_it gc3 demo
  in_it gc3 list
  in_it gc3 env
  in_it gc3 compile hierarchical_allreduce:N=2,G=3 -o h.gc3
  in_it gc3 verify h.gc3
  in_it gc3 run h.gc3 --size 1MiB
  in_it gc3 run ring_allreduce:R=2 --engine processes
  in_it gc3 show h.gc3 --source -t ndv4:N=2
  in_it gc3 bench ring_allreduce:R=2 -b 1KiB -e 4KiB -n 2 -w 1
  in_it gc3 sim ring_allreduce -t ndv4 -b 1MiB -e 1MiB --baseline nccl
  in_it gc3 report ring_allreduce -t ndv4 -o r.html
  in_it gc3 trace ring_allreduce -t ndv4 --size 1MiB -o t.json
  in_it gc3 synth allgather --topology dgx1 --chunks 1 --steps 2 --rounds 3 -o ag.gc3 --run
  in_it gc3 tune -t ndv4 allgather --ranks 8 -b 1KiB -e 1KiB -o table.json
  in_it gc3 completion bash
  echo "the commands work without a compiler"

  if [ "$version" = oldest ]; then
    "$work/venv/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: pytest pytest-timeout \
      pytest-xdist matplotlib z3-solver
    (cd "$work/run" && PATH="$work/venv/bin:$PATH" "$work/venv/bin/python" -m pytest -q -n 2 -p no:cacheprovider \
      -c "$tree/pyproject.toml" --rootdir "$tree" \
      "$tree"/tests/lang/test_{language,mistakes,references,collectives,source_lines}.py "$tree/tests/topologies" \
      "$tree/tests/cli/test_hostile_files.py" "$tree/tests/synth/test_synthesized.py")
  fi
done
