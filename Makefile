# `make run` and `make test` do all their set-up themselves, in .venv, and nothing outside the
# checkout but the cache of downloads and build stages (SPECCOMPILE_CACHE, ~/.cache/speccompile).
#
# torch on PyPI is a CUDA build of several gigabytes on Linux. To save that, let pip find a CPU
# build first, for example with PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS in the environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARTIFACT ?= artifacts/smollm2-135m-distilled
PROMPT ?= Write a Python function that returns the n-th Fibonacci number.

.PHONY: run test coverage check style types-mypy types-pyright bench gpu-check clean

run: $(ARTIFACT)/manifest.json
	$(BIN)/speccompile run $(ARTIFACT) "$(PROMPT)"

$(ARTIFACT)/manifest.json: $(VENV)/installed
	$(BIN)/speccompile build $(notdir $(ARTIFACT)) -o $(ARTIFACT)

# On two processes, file by file: what the tests of a file build, they build once. They go in the
# order of their names, in which what takes minutes comes first, not in that of their numbers of
# tests. Each process has one core, and so one thread of OpenMP.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

coverage: $(VENV)/installed
	$(BIN)/pytest --cov

# The two type checkers side by side: each takes a core for more than a minute.
check: style
	$(MAKE) --jobs 2 --output-sync types-mypy types-pyright

style: $(VENV)/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types-mypy: $(VENV)/installed
	$(BIN)/mypy

types-pyright: $(VENV)/installed
	$(BIN)/pyright

bench: $(ARTIFACT)/manifest.json
	$(BIN)/speccompile bench $(ARTIFACT)

# On a host with an NVIDIA GPU. It installs nothing: it takes .venv where there is one, or else
# PYTHON with what that has, such as a torch for CUDA; whatever is missing is said and skipped.
# GPU_CHECK has further options: GPU_CHECK='--only kernels,graphs --report gpu.json'.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

gpu-check:
	PYTHONPATH=compiler:runtime:plugins $(GPU_PYTHON) -m tests.gpu.check $(GPU_CHECK)

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[compiler,report,tensorrt-rtx,dev]'
	touch $@

clean:
	rm -rf $(VENV) artifacts/smollm2-135m
