# Every target creates what it needs in .venv. `make demo` and `make test` are the two commands of the README.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WORKERS ?= 2
# One thread per process: the suite runs two processes on two cores, and timings in benchmarks stay comparable.
THREADS := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: demo test slow lint soundness bench peers clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: lint
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(ARGS)

# What `make test` leaves out, about ten minutes.
slow: $(READY)
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) -m slow $(ARGS)

lint: $(READY)
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/mypy

soundness: $(READY)
	$(THREADS) $(BIN)/python -m pytest -n $(WORKERS) tests/soundness --soundness=long $(ARGS)

bench: $(READY) peers
	$(BIN)/python benchmarks/run.py $(ARGS)

peers: $(READY)
	$(BIN)/pip install -q -c constraints.txt -e ".[peers]"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
