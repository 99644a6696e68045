# Every target creates what it needs in .venv. `make demo` and `make test` are the two commands of the README.
ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN    := .venv/Scripts
else
PYTHON ?= python3
BIN    := .venv/bin
endif
PIP     := $(BIN)/python -m pip install -q -c constraints.txt
# What is installed so far: the package alone, what the tests need, what the documentation needs.
BASE    := .venv/base.ready
DEV     := .venv/dev.ready
DOCS    := .venv/docs.ready
WORKERS ?= 2
# One thread per process: the suite runs two processes on two cores, and timings in benchmarks stay comparable.
THREADS := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo test slow gpu lint soundness liar formal coq browser docs bench peers clean

demo: $(BASE)
	$(BIN)/python examples/demo.py

test: lint
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not browser and not coq" $(ARGS)

# What `make test` leaves out, about ten minutes.
slow: $(DEV)
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) -m slow $(ARGS)

# What needs a GPU; skipped where there is none. `make gpu PYTHON=python3` takes that interpreter as it is, with the torch
# of the machine, and installs nothing.
GIVEN := $(filter command environment,$(firstword $(origin PYTHON)))
gpu: $(if $(GIVEN),,$(DEV))
	$(if $(GIVEN),PYTHONPATH="src:$$PYTHONPATH" $(PYTHON),$(BIN)/python) -m pytest -m gpu $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/mypy

# Both ways of Taylor arithmetic: by compiled kernels, and the plain one. Then the whole suite in six hostile states of the process.
soundness: $(DEV)
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) tests/soundness --soundness=long $(ARGS)
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) tests/soundness tests/taylor --arithmetic=plain $(ARGS)
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) tests/soundness --hostile $(ARGS)

# Random attacks on everything that is proved or accepted, for an hour: docs/liar.md.
liar: $(DEV)
	PYTHONPATH=tests $(THREADS) $(BIN)/python -m liar $(ARGS)

# The theorems of docs/theory.md, compiled by Coq in formal/, and the tests of that folder.
formal: coq $(DEV)
	cd formal && coq_makefile -f _CoqProject -o CoqMakefile && $(MAKE) -s -f CoqMakefile
	$(THREADS) $(BIN)/python -m pytest -n 0 -m "not slow" tests/formal $(ARGS)

# Coq with its library of real analysis and the tactic interval; installed where root and apt are to be had.
COQ := coq libcoq-coquelicot libcoq-interval libcoq-flocq
coq:
	@command -v coqc > /dev/null || { test "$$(id -u)" = 0 && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(COQ) > /dev/null; } \
	  || { echo "coqc is missing and cannot be installed from here; as root: apt-get install $(COQ)"; exit 1; }

# The web pages in Debian's Chromium, driven by Playwright; installed where root and apt are to be had, else a loud skip.
BROWSER := chromium
browser: $(DEV)
	@command -v $(BROWSER) > /dev/null || { test "$$(id -u)" = 0 && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BROWSER) > /dev/null; } || true
	@if command -v $(BROWSER) > /dev/null && $(PIP) -e ".[browser]"; then \
	  $(THREADS) $(BIN)/python -m pytest -n 0 -m browser tests $(ARGS); \
	else echo "SKIPPED: NO BROWSER TEST WAS RUN. $(BROWSER) or playwright is missing and cannot be installed from here"; fi

# The documentation as a site in site/; a broken link or an undocumented reference is an error.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(DEV) peers
	$(BIN)/python benchmarks/run.py $(ARGS)

peers: $(DEV)
	$(PIP) -e ".[peers]"

$(BASE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@echo ready > $@

$(DEV): $(BASE)
	$(PIP) -e ".[dev]"
	@echo ready > $@

$(DOCS): $(BASE)
	$(PIP) -e ".[docs]"
	@echo ready > $@

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache
