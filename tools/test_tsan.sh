#!/usr/bin/env bash
# The C++ tests of the runtime under ThreadSanitizer. `make test-tsan` runs this.
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset tsan >/dev/null
cmake --build --preset tsan
ctest --preset tsan
