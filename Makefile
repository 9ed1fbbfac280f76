# Two commands do everything on a fresh machine:  make run   and   make test
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What the tests install as PyTorch; users of the extra "torch" have whatever they like.
TORCH ?= torch==2.13.0
# KServe's client as it is, without what its package asks for beside: that is a whole server, and it
# would have pandas 2 and protobuf 6. What the client imports stands among the group "clients".
KSERVE ?= kserve==0.21.0
# For the tests bytecode is made of what is imported, when it is: of all it takes a minute more.
QUIETLY := --quiet --no-compile
# In how many processes the tests run; each keeps to one thread, and many wait for a server, a browser
# or a clock, so that two cores do for three. Bytecode is kept, whatever the environment says: the
# many processes that tests begin would compile the library anew.
JOBS ?= 3

# Debian's programs that tests begin: a browser, and Redis. Where they are missing, their tests are
# skipped; but where CI is set they are installed first, so that nothing goes untested unseen.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
MISSING = $(if $(shell command -v redis-server 2>/dev/null),,redis-server) \
	$(if $(strip $(foreach each,$(BROWSERS),$(shell command -v $(each) 2>/dev/null))),,chromium)

.PHONY: help run test test-all programs pytest check format bench bench-compare peers clean

help:  ## this list
	@awk -F ':.*## +' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The environment is made anew whenever what is installed changes.
INSTALLED := pyproject.toml setup.py $(wildcard native/*)

$(VENV)/.ready: $(INSTALLED)
	@echo "Setting up the environment in $(VENV): a minute or so."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[light]'
	@touch $@

$(VENV)/.ready-to-test: $(VENV)/.ready
	@echo "Adding PyTorch and the tests' own packages to $(VENV)."
	$(BIN)/python -m pip install $(QUIETLY) '$(TORCH)'
	$(BIN)/python -m pip install $(QUIETLY) --editable '.[all]' --group test --group lint
	$(BIN)/python -m pip install $(QUIETLY) --no-deps '$(KSERVE)'
	@touch $@

run: $(VENV)/.ready  ## learn the bundled stream end to end, into runs/flights
	$(BIN)/onepass run flights --model rls,sgd \
		--set rls.forgetting=0.98 --set rls.ridge=10 --set sgd.step_size=0.3 \
		--save runs/flights/model.onepass --restart --report runs/flights

test: $(VENV)/.ready-to-test  ## everything that CI runs: the checks beside the tests
	@$(MAKE) --no-print-directory --jobs 2 check pytest

test-all: export ONEPASS_TEST_ALL := 1
test-all: test  ## the same, with all settings of all learners in the contract tests

SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)
programs:  ## what tests begin: installs chromium and redis-server, if they are missing
	@test -z '$(strip $(MISSING))' || { echo 'Installing $(strip $(MISSING)).' && \
		$(SUDO) apt-get update -qq && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qq $(MISSING) >/dev/null; }

pytest: $(VENV)/.ready-to-test $(if $(CI),programs)  ## the tests alone
	@for each in $(MISSING); do echo "$$each is not installed, so its tests are skipped; make programs installs it."; done
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses $(JOBS) --dist worksteal

check: $(VENV)/.ready-to-test  ## style, types, spelling, and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(VENV)/.ready-to-test  ## put the code into the shape that check asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)-peers/.ready: $(INSTALLED)
	$(PYTHON) -m venv $(VENV)-peers
	$(VENV)-peers/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-peers/bin/python -m pip install $(QUIETLY) '$(TORCH)'
	$(VENV)-peers/bin/python -m pip install $(QUIETLY) --editable '.[all]' --group peers
	@touch $@

bench: $(VENV)-peers/.ready  ## speed, beside other libraries and the machine's limits; half an hour
	$(VENV)-peers/bin/python benchmarks/speed.py
	$(VENV)-peers/bin/python benchmarks/tables.py

BASE ?= main
bench-compare: $(VENV)/.ready  ## accuracy and speed of this folder beside those of BASE=main
	$(BIN)/python benchmarks/compare.py --base $(BASE)

peers: $(VENV)-peers/.ready  ## other libraries beside this one: speed, stability, real streams
	$(VENV)-peers/bin/python benchmarks/peers.py
	$(VENV)-peers/bin/python benchmarks/stability.py
	$(VENV)-peers/bin/python benchmarks/streams.py
	$(VENV)-peers/bin/python benchmarks/tables.py

clean:  ## remove the environment and all that was run
	rm -rf $(VENV) $(VENV)-peers runs
