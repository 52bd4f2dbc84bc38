# Two commands are the front door: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test lint types tests adapters other-processor fuzz chaos bounds bench docs release-check clean

demo: $(VENV)/.report
	$(BIN)/spectrograd demo

test: lint types tests

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/mypy

tests: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist=worksteal -p no:cacheprovider

# scanpy, MuData, PyG, UMAP and openTSNE as they are, in an environment of their own: some hold others back
adapters: .venv-adapters/.installed
	.venv-adapters/bin/python -m pytest -p no:cacheprovider tests/adapters tests/docs/test_examples.py

.venv-adapters/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet --upgrade pip
	.venv-adapters/bin/python -m pip install --quiet --editable '.[scverse,umap,pyg,store]' \
		openTSNE igraph polars pytest pytest-timeout pytest-rerunfailures hypothesis plotly duckdb
	touch $@

# a sample under the settings of an old processor: other kernels of BLAS, no wide vectors in compiled code;
# BLAS=Zen CPU=haswell for another one
BLAS ?= Nehalem
CPU  ?= generic
other-processor: $(VENV)/.test
	OPENBLAS_CORETYPE=$(BLAS) NUMBA_CPU_NAME=$(CPU) $(BIN)/python -m pytest -n $(WORKERS) --dist=worksteal \
		-p no:cacheprovider tests/solvers/test_solvers.py tests/solvers/test_few_passes.py \
		tests/engines/test_engines.py tests/kernels/test_multivector.py tests/labels tests/cli/test_cluster_layers.py

# ten thousand random cases, none of which may be certified and wrong; CASES=500 for a look
CASES ?= 10000
# and as many damaged files of every format, each of which is read or refused with one error
READERS ?= 10000
fuzz: $(VENV)/.test
	$(BIN)/python tests/fuzz_readers.py $(READERS)
	$(BIN)/python tests/fuzz.py $(CASES)

# workers of a cluster, commands and conversions that are killed at many moments
chaos: $(VENV)/.test
	$(BIN)/python -m pytest -p no:cacheprovider -m chaos tests/engines tests/cli tests/store tests/test_endurance.py

# every kernel with bounds checks, on graphs large enough to reach it
bounds: $(VENV)/.test
	$(BIN)/python tools/check_bounds.py

bench: $(VENV)/.bench $(VENV)/.primme
	$(BIN)/python -m benchmarks --write

# never --quiet: it hides warnings from --strict
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# wheel and source distribution: built, checked, installed for every Python there is; extras at their lower bounds
release-check: $(VENV)/bin/python
	$(BIN)/python tools/release_check.py

# PRIMME comes as source and is linked to BLAS and LAPACK of the system (Debian: libblas-dev, liblapack-dev)
$(VENV)/.primme: $(VENV)/.bench
	$(BIN)/python -m pip install --quiet 'primme>=3.2' || \
		echo 'PRIMME cannot be built here (it needs BLAS and LAPACK to link to): its rows are left out' >&2
	touch $@

clean:
	rm -rf $(VENV) .venv-adapters demo site dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# One stamp per extra: installing is done once, and again when the requirements change.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.report $(VENV)/.test $(VENV)/.bench $(VENV)/.docs: $(VENV)/.%: $(VENV)/bin/python pyproject.toml
	@echo 'installing into $(VENV), once'
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@
