#!/usr/bin/env bash
# Compiles the library and its C++ tests for aarch64 with Debian's cross compiler, and runs the tests in qemu's emulation of
# a process, where the machine has both: apt-get install g++-aarch64-linux-gnu qemu-user-static. `make test-aarch64` runs
# this. An emulator runs the instructions, but orders memory as this processor does: it finds no missing fence.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/aarch64

compiler=$(command -v aarch64-linux-gnu-g++ || true)
if [ -z "$compiler" ]; then
  echo "skipped: this machine has no aarch64-linux-gnu-g++"
  exit 0
fi
emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
cmake -G Ninja -B "$build" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Release -DGC3_PYTHON=OFF -DGC3_TESTS=ON \
  -DCMAKE_CROSSCOMPILING_EMULATOR="$emulator;-L;/usr/aarch64-linux-gnu" >/dev/null
cmake --build "$build"
if [ -z "$emulator" ]; then
  echo "compiled; nothing ran, because this machine has no qemu-aarch64"
  exit 0
fi
# What needs the kernel's view of a process, which the emulator shows of itself, is left out: GC3_AARCH64_TESTS.
ctest --test-dir "$build" --output-on-failure -R "${GC3_AARCH64_TESTS:-^(base|model|ir|compiler|verify|sim|synth|runtime_interp|runtime_select|nccl|corpus)$}"
