# On a fresh machine, "make run" and "make test" are all you need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# PyTorch version of the tests; the extra "torch" accepts other versions.
TORCH ?= torch==2.13.0
# KServe's client. It is installed without dependencies, since these include a server and restrict
# pandas to 2 and protobuf to 6. The dependency group "clients" has the packages that it imports.
KSERVE ?= kserve==0.21.0
# Bytecode is compiled on import only; compiling all packages would take another minute.
QUIETLY := --quiet --no-compile
# Number of test processes, each with one thread. Many tests wait for a server, a browser or a clock,
# so two cores are enough for three processes. Bytecode is always written; otherwise the processes
# that tests start would compile the library again.
JOBS ?= 3

# Debian packages of programs that tests start: a browser, Redis and Prometheus. If a program is
# missing, its tests are skipped; if CI is set, it is installed first, so that no test is skipped.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
MISSING = $(if $(shell command -v redis-server 2>/dev/null),,redis-server) \
	$(if $(shell command -v prometheus 2>/dev/null),,prometheus) \
	$(if $(strip $(foreach each,$(BROWSERS),$(shell command -v $(each) 2>/dev/null))),,chromium)

.PHONY: help run test test-all programs pytest check format sanitize core-test core-test-aarch64 wheel engines bench bench-compare peers clean

help:  ## print this list
	@awk -F ':.*## +' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The environment is updated when the package definition changes.
INSTALLED := pyproject.toml setup.py $(wildcard native/*/*)

$(VENV)/.ready: $(INSTALLED)
	@echo "Creating the environment in $(VENV); this takes about a minute."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[light]'
	@touch $@

$(VENV)/.ready-to-test: $(VENV)/.ready
	@echo "Installing PyTorch and the test dependencies into $(VENV)."
	$(BIN)/python -m pip install $(QUIETLY) '$(TORCH)'
	$(BIN)/python -m pip install $(QUIETLY) --editable '.[all]' --group test --group lint
	$(BIN)/python -m pip install $(QUIETLY) --no-deps '$(KSERVE)'
	@touch $@

run: $(VENV)/.ready  ## learn the bundled stream end to end, into runs/flights
	$(BIN)/onepass run flights --model rls,sgd \
		--save runs/flights/model.onepass --restart --report runs/flights

test: $(VENV)/.ready-to-test  ## run everything that CI runs: checks and tests
	@$(MAKE) --no-print-directory --jobs 2 check pytest

test-all: export ONEPASS_TEST_ALL := 1
test-all: test  ## run make test with all parameters of the tests that draw some of them

SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)
programs:  ## install chromium, redis-server and prometheus for the tests, if they are missing
	@test -z '$(strip $(MISSING))' || { echo 'Installing $(strip $(MISSING)).' && \
		$(SUDO) apt-get update -qq && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qq $(MISSING) >/dev/null; }

pytest: $(VENV)/.ready-to-test $(if $(CI),programs)  ## run the tests only
	@for each in $(MISSING); do echo "$$each is not installed; its tests are skipped. Run make programs to install it."; done
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses $(JOBS) --dist worksteal

check: $(VENV)/.ready-to-test  ## check style, types, spelling and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/.ready-to-test  ## format the code and apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Created again for another PYTHON: polars-online needs Python 3.12.
PEERS := $(VENV)-peers/.ready-$(notdir $(PYTHON))

$(PEERS): $(INSTALLED)
	$(PYTHON) -m venv --clear $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-peers/bin/python -m pip install $(QUIETLY) '$(TORCH)'
	$(VENV)-peers/bin/python -m pip install $(QUIETLY) --editable '.[all]' --group peers
	@touch $@

# The core of the compiled loops as a library without Python, and its tests. Other targets: CORE_CC
# is the compiler, and CORE_RUN starts the test, such as an emulator.
CORE := build/core
CORE_CC ?= $(CC)
CORE_AR ?= $(AR)
core-test:  ## build the core of the compiled loops without Python, and run its tests
	mkdir -p $(CORE)
	cd $(CORE) && $(CORE_CC) -std=gnu11 -O3 -fno-math-errno -fno-trapping-math -Wall -Wextra -Wno-psabi \
		-c $(abspath $(wildcard native/core/*.c))
	$(CORE_AR) rcs $(CORE)/libonepass.a $(patsubst native/core/%.c,$(CORE)/%.o,$(wildcard native/core/*.c))
	$(CORE_CC) -std=gnu11 -O2 -Wall -Wextra -Wno-psabi -Inative/core $(CORE_FLAGS) -o $(CORE)/test \
		tests/native/core_test.c $(CORE)/libonepass.a -lm
	$(CORE_RUN) $(CORE)/test

# Debian packages: gcc-aarch64-linux-gnu, qemu-user
core-test-aarch64: CORE := build/core-aarch64
core-test-aarch64: CORE_CC := aarch64-linux-gnu-gcc
core-test-aarch64: CORE_AR := aarch64-linux-gnu-ar
core-test-aarch64: CORE_FLAGS := -static
core-test-aarch64: CORE_RUN := qemu-aarch64
core-test-aarch64: core-test  ## the same for 64-bit ARM, in an emulator

# The compiled loops with checks of memory accesses (ASan) and undefined behaviour (UBSan). These
# libraries must be loaded before Python, and libstdc++ before they intercept its exceptions.
CC ?= cc
SANITIZED := build/sanitize
PRELOADED = $(foreach each,libasan.so libubsan.so libstdc++.so.6,$(shell $(CC) -print-file-name=$(each)))
sanitize: $(VENV)/.ready-to-test  ## run the tests of the compiled loops with ASan and UBSan
	rm -rf $(SANITIZED)
	CFLAGS='-g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' \
		$(BIN)/python setup.py -q build --build-base $(SANITIZED) --build-lib $(SANITIZED)/lib
	LD_PRELOAD='$(PRELOADED)' ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		PYTHONPATH=$(abspath $(SANITIZED)/lib) $(BIN)/python -c \
		'from onepass import native; assert native.__file__.startswith("$(abspath $(SANITIZED))"); assert native.loops'
	LD_PRELOAD='$(PRELOADED)' ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		PYTHONPATH=$(abspath $(SANITIZED)/lib) $(BIN)/python -m pytest -q -p no:cacheprovider \
		tests/native $(wildcard tests/learners/test_rls*.py tests/learners/test_sgd*.py) \
		tests/learners/test_compiled_state.py tests/learners/test_kalman.py

# Each Python from 3.11 on that is found here, once.
PYTHONS ?= $(shell for each in python3.11 python3.12 python3.13 python3.14 \
	$$HOME/.pyenv/versions/*/bin/python; do $$each -c 'import os, sys, sysconfig; \
	sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED") and \
	print(os.path.realpath(sys.executable))' 2>/dev/null; done | sort -u)
WHEEL := $(VENV)-wheel
$(WHEEL)/.ready: pyproject.toml
	$(PYTHON) -m venv --clear $(WHEEL)
	$(WHEEL)/bin/python -m pip install --quiet --upgrade pip
	$(WHEEL)/bin/python -m pip install $(QUIETLY) --group wheel
	@touch $@

wheel: $(WHEEL)/.ready  ## on Linux: build dist/*.whl and the sdist, audit them, try the wheel with each Python here
	rm -rf dist build/wheel
	$(WHEEL)/bin/validate-pyproject pyproject.toml
	LDSHARED='$(CC) -shared -s' $(WHEEL)/bin/python -m build --outdir build/wheel  # no rpath, no symbols
	PATH="$(abspath $(WHEEL)/bin):$$PATH" $(WHEEL)/bin/auditwheel repair --wheel-dir dist build/wheel/*.whl
	mv build/wheel/*.tar.gz dist
	$(WHEEL)/bin/abi3audit --strict dist/*.whl
	$(WHEEL)/bin/twine check --strict dist/*
	$(WHEEL)/bin/check-wheel-contents --toplevel onepass,onepass_experiments dist/*.whl
	@for each in $(PYTHONS); do echo "Installing the wheel with $$each." && $$each -m venv --clear build/wheel/env && \
		CC=false build/wheel/env/bin/python -m pip install --quiet --no-compile dist/*.whl && \
		(cd build/wheel && env/bin/python -W error -c "$$TRY") || exit 1; done

define TRY
import onepass as op
from onepass import native
assert native.loops, "the compiled loops are missing"
model = op.RLSRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
assert abs(model.predict_one([3.0]) - 7.0) < 1e-6
try:
    import onepass.service.http.server
    raise AssertionError("the extra serve is installed")
except op.errors.MissingExtraError as error:
    print(error)
op.show_versions()
endef
export TRY

# Engines whose dependencies conflict with those of other extras, each in an environment of its own.
SEPARATE := $(VENV)-engines $(VENV)-flower
$(VENV)-engines/.ready: PACKAGES := '.[beam,spark]'
$(VENV)-flower/.ready: PACKAGES := '.[flower,privacy]' 'flwr[simulation]'
$(SEPARATE:=/.ready): $(INSTALLED)
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
	$(@D)/bin/python -m pip install $(QUIETLY) $(addprefix --editable ,$(firstword $(PACKAGES))) \
		$(wordlist 2,9,$(PACKAGES)) 'hypothesis>=6.100' 'pytest>=8.0'
	@touch $@

engines: export PYTHONDONTWRITEBYTECODE :=
engines: $(SEPARATE:=/.ready)  ## run the tests of Spark (which needs Java), Beam and Flower
	$(VENV)-engines/bin/python -m pytest -q tests/scale/engines/test_spark_and_beam.py
	$(VENV)-flower/bin/python -m pytest -q tests/scale/engines/test_flower.py

bench: $(PEERS)  ## measure speed against other libraries and the machine's limits; half an hour
	$(VENV)-peers/bin/python benchmarks/speed.py
	$(VENV)-peers/bin/python benchmarks/tables.py

BASE ?= main
bench-compare: $(VENV)/.ready  ## compare accuracy and speed with BASE=main
	$(BIN)/python benchmarks/compare.py --base $(BASE)

peers: $(PEERS)  ## compare with other libraries: speed, stability, real streams
	$(VENV)-peers/bin/python benchmarks/peers.py
	$(VENV)-peers/bin/python benchmarks/stability.py
	$(VENV)-peers/bin/python benchmarks/streams.py
	$(VENV)-peers/bin/python benchmarks/tables.py

clean:  ## remove the environments and the folder runs
	rm -rf $(VENV) $(VENV)-peers $(SEPARATE) runs
