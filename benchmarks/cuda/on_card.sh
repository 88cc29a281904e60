#!/usr/bin/env bash
# Runs the CUDA engine on a machine that has a device but no network. It is called twice, and the tree is copied to the
# machine in between:
#
#   benchmarks/cuda/on_card.sh fetch [VERSION [ARCHITECTURE]]
#                                   with a network: loads into .card/ (about 50 MB, not tracked by git) the wheels that the
#                                   machine's Python of VERSION (3.12) may lack, the code of NCCL for ARCHITECTURE (90), and
#                                   the sources of nccl-tests
#   benchmarks/cuda/on_card.sh [OPTIONS]          on the machine: builds, then runs benchmarks/cuda/run.py OPTIONS
#
# The machine needs g++ 12 or newer, cmake, ninja, Python with its headers, NumPy and ml_dtypes, a driver, and NVRTC (of
# pip's nvidia-cuda-nvrtc, as PyTorch brings it, or of a toolkit). A toolkit with nvcc, for nccl-tests, PyTorch, CuPy, matplotlib and compute-sanitizer are used
# if they are found. Results are in benchmarks/results/cuda.json, and are copied to $OUT if that is set.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

if [ "${1:-}" = fetch ]; then
  rm -rf .card
  "$python" -m pip download -q -d .card --only-binary=:all: --python-version "${2:-3.12}" --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
    'nanobind~=3.1' 'click>=8.2,<9' 'rich>=13,<16' 'jsonschema>=4.18,<5' 'defusedxml>=0.7.1,<1' \
    'pytest~=9.2' 'pytest-timeout~=2.4' pytest-xdist
  # Several ranks on a device need NCCL 2.30. The version with PyTorch is often older, and the whole wheel has 250 MB.
  whole=$(mktemp -d)
  trap 'rm -rf "$whole"' EXIT
  "$python" -m pip download -q -d "$whole" --no-deps --only-binary=:all: --platform manylinux_2_18_x86_64 \
    'nvidia-nccl-cu13>=2.30,<3'
  "$python" -m zipfile -e "$whole"/*.whl "$whole"
  "$python" benchmarks/cuda/one_architecture.py "$whole/nvidia/nccl/lib/libnccl.so.2" "${3:-90}" .card/libnccl.so.2.xz
  cp -r "$whole/nvidia/nccl/include" .card/include
  # Without them the stage `overlay` runs only nccl_perf.cc and PyTorch.
  git clone -q --depth 1 https://github.com/NVIDIA/nccl-tests .card/nccl-tests ||
    echo "the sources of nccl-tests cannot be had" >&2
  du -sh .card
  exit
fi

build=build/card
site=$PWD/$build/site
mkdir -p "$site"
# Before the packages of the machine's Python. A virtual environment would hide packages of another one.
if compgen -G '.card/*.whl' >/dev/null; then
  "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" .card/*.whl
fi
if [ -e .card/libnccl.so.2.xz ]; then
  "$python" benchmarks/cuda/one_architecture.py --unpack .card/libnccl.so.2.xz $build/libnccl.so.2
  export GC3_NCCL=$PWD/$build/libnccl.so.2
fi
export PYTHONPATH=$site:$PWD/$build/package
export BENCHMARK_BUILD=$PWD/$build
# Compilers have different warnings, which must not stop a run.
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DGC3_TESTS=OFF -DGC3_BENCHMARKS=ON \
  -DGC3_WARNINGS_ARE_ERRORS=OFF -DPython_EXECUTABLE="$(command -v "$python")" >$build/configure.log ||
  { cat $build/configure.log; exit 1; }
cmake --build $build --target _core gc3_nccl_library gc3_nccl_tuner_library gc3_cuda_benchmark gc3_nccl_perf >$build/build.log || { tail -50 $build/build.log; exit 1; }
rm -rf $build/package
mkdir -p $build/package
cp -r python/gc3 $build/package/
cmake --install $build --prefix $build/package >$build/install.log
toolkit=${CUDA_HOME:-/usr/local/cuda}
if [ -d .card/nccl-tests ] && [ -e $build/libnccl.so.2 ] && [ -x "$toolkit/bin/nvcc" ]; then
  mkdir -p $build/nccl/lib
  card=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  ln -sfn "$PWD/.card/include" $build/nccl/include
  for name in libnccl.so libnccl.so.2; do ln -sf "$PWD/$build/libnccl.so.2" $build/nccl/lib/$name; done
  if make -C .card/nccl-tests -j "$(nproc)" CUDA_HOME="$toolkit" NCCL_HOME="$PWD/$build/nccl" \
    NVCC_GENCODE="-gencode=arch=compute_$card,code=sm_$card" BUILDDIR="$PWD/$build/nccl-tests" >$build/nccl-tests.log 2>&1; then
    export NCCL_TESTS=$PWD/$build/nccl-tests
  else
    tail -5 $build/nccl-tests.log
  fi
fi
status=0
"$python" benchmarks/cuda/run.py "$@" || status=$?
if [ -n "${OUT:-}" ]; then cp benchmarks/results/cuda.* $build/build.log "$OUT"/; fi
exit $status
