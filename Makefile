# `make demo` and `make test` set everything up by themselves; nothing but Python 3.10+, a C++20 compiler and make is needed.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find cpp bindings -type f -not -name '*_test.cc') CMakeLists.txt pyproject.toml
PRESET := build/tests

.PHONY: demo test bench lint docs build cpp-tests clean

demo: build
	$(BIN)/gc3 demo

test: build cpp-tests
	$(BIN)/ctest --test-dir $(PRESET) --output-on-failure
	$(BIN)/pytest

build: $(VENV)/built

$(VENV)/tools: pyproject.toml
	$(PY) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check "scikit-build-core~=1.1" "nanobind~=3.1" \
	  $$($(BIN)/python -c "import re,pathlib; t=pathlib.Path('pyproject.toml').read_text(); print(' '.join(re.findall(r'\"([^\"]+)\"', re.search(r'^dev = \[(.*)\]', t, re.M).group(1))))")
	touch $@

$(VENV)/built: $(VENV)/tools $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e .
	touch $@

cpp-tests: $(VENV)/tools
	$(BIN)/cmake -S . -B $(PRESET) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DGC3_TESTS=ON -DGC3_PYTHON=OFF >/dev/null
	$(BIN)/cmake --build $(PRESET)

clean:
	rm -rf build $(VENV)
