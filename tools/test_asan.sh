#!/usr/bin/env bash
# The C++ and the Python tests under AddressSanitizer and UndefinedBehaviorSanitizer. `make test-asan` runs this.
#
# The Python tests run in a separate environment, build/asan-ubsan/venv. It has a gc3 with an instrumented core, and all
# other packages are those of .venv. Python itself is not instrumented, so the sanitizer's library is preloaded, and
# libstdc++ with it, because AddressSanitizer looks up its exception functions only once, at the start.
#   detect_leaks=0          CPython never frees much of its memory; the C++ tests look for leaks
#   allocator_may_return_null  a test that requests too much memory expects an error, not the end of the process
# Arguments go to pytest. Tests marked slow are left out, because they run the same code for longer, and those marked
# python_only, because the instrumented code that they reach is reached by other tests.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/asan-ubsan
python=.venv/bin/python

cmake --preset asan-ubsan -DPython_EXECUTABLE="$PWD/$python" >/dev/null
cmake --build --preset asan-ubsan
ctest --preset asan-ubsan

# The packages of .venv are used by path and not through its .pth files, which would add its gc3.
rm -rf "$build/venv"
$python -m venv --without-pip "$build/venv"
site=$("$build/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
$python -c 'import sysconfig; print(sysconfig.get_path("platlib"))' >"$site/borrowed.pth"
cmake --install "$build" --prefix "$site" >/dev/null
cp -r python/gc3 "$site/"
printf '#!%s\nimport sys\nfrom gc3.__main__ import main\nsys.exit(main())\n' \
  "$PWD/$build/venv/bin/python" >"$build/venv/bin/gc3"
chmod +x "$build/venv/bin/gc3"

compiler=${CXX:-g++}
export LD_PRELOAD="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libstdc++.so.6)"
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
exec "$build/venv/bin/python" -m pytest -m "not slow and not python_only" "$@"
