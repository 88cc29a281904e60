# `make demo` and `make test` install all that they need. They require only Python 3.10+, a C++20 compiler and make.
#   make demo    compile, prove, run and time      make lint    formatters, types, layers, generated files, lines
#   make test    the C++ and the Python tests      make docs    the documentation, into site/
#   make check   format, types and the tests of what was changed since main: two minutes at most
#   make nccl    the libraries that stand in front of NCCL
#   make bench   the benchmarks                    make build   .venv with the compiled core, nothing else
#   make wheel   wheels for this processor, into build/wheels/, for the Pythons of this machine (WHEEL_PYTHONS)
#   make test-clang   each source alone through clang; CLANG=--commits=50: those that the newest 50 commits changed
#   make test-wheels   the wheels of the oldest and the newest Python in empty environments
#   make test-aarch64   cross-compiles for aarch64, and runs the C++ tests in an emulator (both from Debian)
#   make bench-vs   compares gc3 with MPI and Gloo, 20 minutes (QUICK=1: a short comparison)
#   make demo-hosts   a collective on two simulated hosts; make bench-hosts compares on such hosts, an hour (QUICK=1: a minute)
#   make evidence    the errors of the simulator on public measurements; writes benchmarks/results/evidence.json
#   make reproduce   the papers' claims through the simulator; writes benchmarks/results/papers.json
#   make bench-cuda  the CUDA engine on this machine's device: checks, times, writes benchmarks/results/cuda.json
#   make stubs   regenerate _core.pyi              make generated-docs   regenerate docs/reference/ and the tables of docs/performance.md, docs/evidence.md
#   make test-asan, make test-tsan   the tests under sanitizers
#   make cuda-check   compiles the CUDA kernels for all architectures and checks their resources; needs no GPU
#   make test-torch   all tests of the PyTorch backend, of which make test runs some; PyTorch is in build/peers/gloo, 1.5 GB
#   make test-browser  the pages in chromium (Debian: apt-get install chromium)
#   make readme  measures what README.md and docs/runtime.md print of this machine, and writes it there; on a quiet machine
#   make nightly  what make test runs a share of, 4,000 random machines (NIGHTLY_MACHINES), kernels for CUDA, wheels: two hours
#   make nightly-hosts  simulated hosts: 64 that meet, the whole library, 300 random faults (NIGHTLY_FAULTS), 40 minutes
#   make fuzz    mutates files for the readers, for FUZZ_MINUTES=10; new inputs go to build/fuzz/found
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/release
# The tools of .venv come first, so that no cmake or ninja of the machine is needed or used.
export PATH := $(abspath $(BIN)):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# ninja starts two more jobs than there are cores, which takes a tenth more of the processor's time.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

# Most tests use one core, or wait, so that three keep two cores busy.
PYTEST_WORKERS ?= -n 3 --dist worksteal

PEERS := openmpi mpich gloo

# Shows that something happens, and how far it is: $(STEP) "what" COMMAND
STEP := @$(PY) tools/progress.py
COMPILE = $(STEP) "Compiling $(1)" cmake --build $(BUILD) --target
SITE = "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
INSTALL = @cmake --install $(BUILD) --strip --prefix $(SITE) >$(BUILD)/install.log --component

FUZZ_MINUTES ?= 10
WHEEL_TESTS ?= oldest newest
NIGHTLY_MACHINES ?= 4000
NIGHTLY_FAULTS ?= 300
FUZZ_SEED ?= $(shell date +%s)

.PHONY: nccl check check-format wheel readme test-clang test-wheels test-aarch64 demo demo-hosts bench-hosts test python-tests test-torch torch-tests test-browser nightly nightly-hosts bench bench-vs reproduce evidence bench-cuda fuzz lint docs build cpp-tests stubs generated-docs test-asan test-tsan cuda-check cuda-check-if-changed clean \
  lint-python lint-types lint-cpp lint-tree lint-generated lint-headers

demo: build
	@$(BIN)/gc3 demo

# Where the system forbids namespaces it says so.
demo-hosts: build
	$(BIN)/python tests/hosts.py -n 2 -k 2 -- $(BIN)/python examples/hosts.py

test: $(VENV)/.group-test nccl cpp-tests
	ctest --preset release
	$(MAKE) python-tests

# The CI has the C++ tests under sanitizers only.
python-tests: $(VENV)/.group-test nccl
	$(call COMPILE,what the Python tests start) gc3_fake_cuda gc3_fake_nccl gc3_collectives
	$(BIN)/pytest $(PYTEST_WORKERS)
	$(MAKE) torch-tests PYTEST_ARGS='-m "not slow" $(PYTEST_WORKERS)'

# After `make build`. A commit hook calls check-format: .pre-commit-config.yaml.
check: $(VENV)/.group-lint build
	@$(BIN)/python tools/check.py

check-format: $(VENV)/.group-lint
	@$(BIN)/python tools/check.py --format

test-browser: $(VENV)/.group-test $(VENV)/.group-browser build
	$(BIN)/python -m pytest tests/report $(PYTEST_ARGS)

# accelerate and Lightning without PyTorch, which is there; where they cannot be had, their tests are skipped.
test-torch: build/peers/gloo/.installed
	-$(BIN)/pip --python build/peers/gloo/bin/python install -q --no-deps --group torch-frameworks --group torch-tests
	$(MAKE) torch-tests

# In the environment of the peer that is PyTorch's, with the packages of .venv beside its own. The backend in C++ is
# compiled before the tests: under load that takes longer than a test may.
torch-tests: $(VENV)/.group-test build build/peers/gloo/.installed
	if [ ! -e build/peers/gloo/.installed ]; then echo "tests/pytorch is skipped: the reason is above"; exit; fi; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')')" \
	  >"$$(build/peers/gloo/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/gc3-venv.pth"; \
	$(PY) tools/progress.py "Compiling the backend of PyTorch" \
	  env GC3_CACHE=build/torch_backends build/peers/gloo/bin/python -m gc3.torch build && \
	build/peers/gloo/bin/python -m pytest tests/pytorch $(PYTEST_ARGS)

# A second or a minute, 1.5 GB. Where it cannot be had, one line says why, and the next call tries again.
build/peers/gloo/.installed: $(VENV)/.pip tools/lean_torch.py
	$(BIN)/python -m venv build/peers/gloo
	-$(BIN)/python tools/lean_torch.py build/peers/gloo && touch $@

nightly: $(VENV)/.group-test nccl cpp-tests
	ctest --preset release
	$(BUILD)/gc3_runtime_cpu_test --no-skip --test-case='nightly*'
	$(BUILD)/gc3_verify_test --no-skip --test-case='nightly*'
	$(BIN)/pytest $(PYTEST_WORKERS) --nightly -m nightly
	$(BIN)/pytest tests/synth/test_synth_random.py --random-machines $(NIGHTLY_MACHINES)
	$(MAKE) cuda-check test-torch test-clang test-wheels

nightly-hosts: $(VENV)/.group-test build cpp-tests
	$(BUILD)/gc3_runtime_core_test --no-skip --test-case='64 hosts*,control traffic*'
	LIBRARY_SHARES=1 $(BIN)/pytest --nightly tests/comm/test_hosts.py -k library
	$(BIN)/python tests/random_faults.py --count $(NIGHTLY_FAULTS) --jobs 2

bench: build
	cmake --build $(BUILD) --target gc3_interpreter_benchmark
	$(BIN)/python benchmarks/compile_time.py
	$(BUILD)/gc3_interpreter_benchmark

# Takes 20 minutes, and some more for the first installation of the peers, and writes benchmarks/results and docs/performance.md;
# with QUICK=1 a minute, and writes nothing. What is interrupted keeps the points that are done.
bench-vs: build $(VENV)/.group-test $(PEERS:%=build/peers/%/.installed)
ifdef QUICK
	$(BIN)/python benchmarks/versus.py -f 32 -e 1MiB --turns 1 --minutes 1
else
	$(BIN)/python benchmarks/versus.py --record --minutes 14 --turns 2; status=$$?; \
	for conditions in sessions loaded; do $(BIN)/python benchmarks/versus.py --record --conditions $$conditions --vs openmpi,gloo \
	  --collectives allreduce,alltoall -e 1KiB --minutes 1 || status=$$?; done; \
	$(BIN)/python tools/gen_docs.py; exit $$status
endif

# An environment for each, because Open MPI and MPICH both have a bin/mpicc. One that cannot be installed is left out of the
# comparison, which says so, and tried again next time.
build/peers/%/.installed: $(VENV)/.pip
	$(PY) -m venv build/peers/$*
	-$(BIN)/pip --python build/peers/$*/bin/python install -q --group peer-$* && touch $@

readme: build
	cmake --build $(BUILD) --target gc3_interpreter_benchmark
	$(BIN)/python tools/readme.py

# Half a minute; writes benchmarks/results/papers.json and its part of docs/performance.md. Exits with 1 for claims that fail.
reproduce: build
	$(BIN)/python benchmarks/reproduce.py -o benchmarks/results/papers.json; status=$$?; \
	$(BIN)/python tools/gen_docs.py; exit $$status

# Two minutes; writes benchmarks/results/evidence.json, docs/evidence.md, and what gc3 says of its predictions.
evidence: build
	$(BIN)/python benchmarks/evidence.py -o benchmarks/results/evidence.json --ship
	$(BIN)/python tools/gen_docs.py

# On simulated hosts. All points take an hour; QUICK=1 takes a minute, and writes nothing.
bench-hosts: build $(VENV)/.group-test $(PEERS:%=build/peers/%/.installed)
ifdef QUICK
	$(BIN)/python benchmarks/on_hosts.py --hosts 2x1 --rates none --collectives allreduce -f 32 -e 1MiB --turns 1
else
	$(BIN)/python benchmarks/on_hosts.py --record
	$(BIN)/python tools/gen_docs.py
endif

# Needs a device. Takes 9 minutes at most; with QUICK=1 a minute. Without a network: benchmarks/cuda/on_card.sh.
bench-cuda: build $(VENV)/.group-test
	cmake --build $(BUILD)
	$(BIN)/python benchmarks/cuda/run.py $(if $(QUICK),--quick)

build: $(VENV)/.editable
	$(call COMPILE,the core) _core
	$(INSTALL) core

# What stands in front of NCCL, and NCCL's tuner plugin. `gc3 nccl` uses them.
nccl: build
	$(call COMPILE,the libraries for NCCL) gc3_nccl_library gc3_nccl_tuner_library
	$(INSTALL) nccl

wheel: $(VENV)/.group-wheel nccl
	$(BIN)/python tools/wheel.py $(WHEEL_PYTHONS)

test-clang: $(VENV)/.group-clang build
	$(BIN)/python tools/test_clang.py $(CLANG)

test-wheels: $(VENV)/.group-wheel nccl
	tools/test_wheel.sh $(WHEEL_TESTS)

test-aarch64: $(VENV)/.group-build
	tools/test_aarch64.sh

cpp-tests: build
	$(call COMPILE,the C++ tests) all

# Each check is a separate target, so that `make -k lint` reports everything at once.
# From the first `make lint` on a tree is a developer's: warnings are errors in it. A user's build never stops at one.
lint: WERROR := -D GC3_WARNINGS_ARE_ERRORS=ON
lint: lint-python lint-types lint-cpp lint-tree lint-generated lint-headers

lint-python: $(VENV)/.group-lint
	ruff check
	ruff format --check

lint-types: build $(VENV)/.group-lint
	pyright

lint-cpp: $(VENV)/.group-lint
	clang-format --dry-run -Werror $$(find cpp bindings python examples tests/fuzz $(wildcard benchmarks) -name '*.cc' -o -name '*.h')

lint-tree: $(VENV)/.pip
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_files.py
	$(BIN)/python tools/check_history.py
	$(BIN)/python tools/check_lines.py
	$(BIN)/python tools/mutants.py --check
	@$(BIN)/python tools/cuda_check.py --is-checked || echo 'make cuda-check: until it renews tools/cuda_checked.txt, each CI runs it'

lint-generated: build
	$(BIN)/python tools/gen_stubs.py --check
	$(BIN)/python tools/gen_docs.py --check

lint-headers: build
	cmake -D GC3_WARNINGS_ARE_ERRORS=ON $(BUILD) >$(BUILD)/configure.log
	$(call COMPILE,the core and each header alone) _core all_verify_interface_header_sets

# --strict: a broken link is an error. The variable switches off an advertisement for the successor of the theme.
docs: generated-docs $(VENV)/.group-docs
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

stubs: build
	$(BIN)/python tools/gen_stubs.py

generated-docs: build
	$(BIN)/python tools/gen_docs.py

test-asan: $(VENV)/.group-build $(VENV)/.group-test
	tools/test_asan.sh $(PYTEST_WORKERS)

test-tsan: $(VENV)/.group-build
	tools/test_tsan.sh

cuda-check: $(VENV)/.group-cuda build
	cmake --build $(BUILD) --target gc3_runtime_cuda_test
	$(BIN)/python tools/cuda_check.py

cuda-check-if-changed: build
	@$(BIN)/python tools/cuda_check.py --is-checked || $(MAKE) cuda-check

# An editable installation: Python files are used in place. It is repeated only when the project file changes, or a
# package, because its table of modules is wrong when a package takes the place of one. `build` keeps the compiled core
# up to date, which takes a fraction of a second if nothing has changed.
$(VENV)/.editable: $(VENV)/.group-build pyproject.toml $(shell find python/gc3 -name __init__.py)
	@mkdir -p $(BUILD) && cmake --preset release -D Python_EXECUTABLE=$(abspath $(BIN))/python $(WERROR) >$(BUILD)/configure.log
	$(call COMPILE,the core) _core
	$(STEP) "Installing gc3 and what it needs" $(BIN)/pip install -q --no-build-isolation -C build-dir=$(BUILD) \
	  -C cmake.args=--preset=release -C build.targets=_core -C install.components=core -e .
	@touch $@

# Groups are defined in pyproject.toml.
$(VENV)/.group-%: $(VENV)/.pip pyproject.toml
	$(STEP) "Installing tools: $*" $(BIN)/pip install -q --group $*
	@touch $@

# The pip of Python 3.10 does not support dependency groups.
$(VENV)/.pip:
	$(STEP) "Making .venv" $(PY) -m venv $(VENV)
	$(STEP) "Installing pip" $(BIN)/python -m pip install -q "pip>=25.1"
	@touch $@

fuzz: $(VENV)/.group-build
	cmake --preset fuzz
	cmake --build --preset fuzz
	build/fuzz/gc3_fuzz $(FUZZ_MINUTES) $(FUZZ_SEED) tests/corpus build/fuzz/found

clean:
	rm -rf build site $(VENV)
