# Needs python3 (3.11 or newer) with pip, and nothing else. Another interpreter: make demo PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# constraints.txt keeps pip from taking a CUDA build of torch; a stamp file stands for "installed since these changed".
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
ASKED := pyproject.toml constraints.txt

.PHONY: demo test lint docs bench bench-gpu environment clean

demo: $(VENV)/.core
	$(BIN)/noisewise demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.core
	$(BIN)/python benchmarks/losses.py

# It needs a build of torch for CUDA, which .venv does not have.
bench-gpu:
	PYTHONPATH="$(CURDIR)/src:$$PYTHONPATH" $(PYTHON) benchmarks/gpu.py $(if $(PAGE),--page $(PAGE))

environment: $(VENV)/.test $(VENV)/.docs

clean:
	rm -rf $(VENV) build dist site demo

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "noisewise needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.core: $(ASKED) | $(BIN)/python
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.test: $(ASKED) | $(BIN)/python
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(ASKED) | $(BIN)/python
	$(INSTALL) --editable '.[docs]'
	@touch $@ $(VENV)/.core
