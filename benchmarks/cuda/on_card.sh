#!/usr/bin/env bash
# The CUDA engine on a machine that has a device but no network, in one command. Twice, with the tree copied in between:
#
#   benchmarks/cuda/on_card.sh fetch [VERSION]    where there is a network: what that machine's Python, of VERSION (3.12),
#                                                 may lack, as wheels into .card/ (some 5 MB, not tracked by git)
#   benchmarks/cuda/on_card.sh [OPTIONS]          on the machine: builds, then benchmarks/cuda/run.py OPTIONS
#
# The machine needs g++ 12 or newer, cmake, ninja, Python with its headers, NumPy and ml_dtypes, a driver, and NVRTC (of
# pip's nvidia-cuda-nvrtc, as PyTorch brings it, or of a toolkit). PyTorch, CuPy, matplotlib and compute-sanitizer are used
# where they are found. Results: benchmarks/results/cuda.json, also copied to $OUT if that is set.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

if [ "${1:-}" = fetch ]; then
  rm -rf .card
  "$python" -m pip download -q -d .card --only-binary=:all: --python-version "${2:-3.12}" --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    'nanobind~=3.1' 'click>=8.2,<9' 'rich>=13,<16' 'jsonschema>=4.18,<5' 'defusedxml>=0.7.1,<1' \
    'pytest~=9.2' 'pytest-timeout~=2.4' pytest-xdist
  du -sh .card
  exit
fi

build=build/card
site=$PWD/$build/site
mkdir -p "$site"
# Beside what the machine's Python has, and before it; a virtual environment would hide packages of another one.
if compgen -G '.card/*.whl' >/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" .card/*.whl
fi
export PYTHONPATH=$site:$PWD/$build/package
export GC3_BENCHMARK_BUILD=$PWD/$build
# Compilers differ in what they warn of: nothing of that shall stop a run.
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGC3_TESTS=OFF -DGC3_BENCHMARKS=ON \
  -DGC3_WARNINGS_ARE_ERRORS=OFF -DPython_EXECUTABLE="$(command -v "$python")" >$build/configure.log ||
  { cat $build/configure.log; exit 1; }
cmake --build $build --target _core gc3_cuda_benchmark >$build/build.log || { tail -50 $build/build.log; exit 1; }
rm -rf $build/package
mkdir -p $build/package
cp -r python/gc3 $build/package/
cmake --install $build --prefix $build/package >$build/install.log
status=0
"$python" benchmarks/cuda/run.py "$@" || status=$?
if [ -n "${OUT:-}" ]; then cp benchmarks/results/cuda.* "$OUT"/; fi
exit $status
