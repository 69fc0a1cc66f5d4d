# One target per habit; `make help` lists them. Every target prepares what it needs and leaves a stamp, so a
# second run starts at once.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BENCH_VENV := .venv-bench
# Test workers share the cores: with more threads each, torch would only wait.
PYTEST := OMP_NUM_THREADS=1 python -m pytest -n 2
PIP_INSTALL := python -m pip install --quiet --disable-pip-version-check

# cmake and ninja come from the environment where it has them, otherwise from the system.
SYSTEM_PATH := $(PATH)
export PATH := $(CURDIR)/$(VENV)/bin:$(SYSTEM_PATH)
# Tests start many processes: without bytecode on disk each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

NATIVE_FILES = $(shell git ls-files -co --exclude-standard 'native/*.cpp' 'native/*.hpp' 'native/*.inl')
CORE_FILES = $(shell git ls-files -co --exclude-standard 'native/core/*.cpp' 'native/envs/*.cpp')
PYTHON_FILES := src tests tools examples
CLANGXX ?= $(firstword $(foreach name,clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14,$(shell command -v $(name))))
# ThreadSanitizer cannot map its shadow memory under the address randomisation of some kernels.
FIXED_ADDRESSES = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: help dev build test test-long test-slow test-oldest test-gpu coverage hooks test-native test-clang test-arm64-compile test-macos-compile check format stubs messages bench bench-train bench-multi bench-dreamer bench-distributed bench-llm bench-learning bench-gpu docs demo wheel check-wheel clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: $(VENV)/package.stamp ## Make .venv with the pinned requirements and an editable install

build: dev ## Compile the native module (an import does the same after a change)
	@python -c "import sharpwave._native"

test: build ## Run the native tests and the quick Python tests (ARGS="-k name" goes to pytest)
	@cmake --preset native --log-level=WARNING
	@cmake --build --preset native
	@ctest --preset native
	@$(PYTEST) $(ARGS)

test-long: build ## Run the Python tests that take more than a moment, and all examples of property tests
	@$(PYTEST) -m "(long or hypothesis) and not slow and not bench and not gpu" --hypothesis-profile=all $(ARGS)

test-slow: build ## Run the Python tests that take minutes: agents learn, long stress
	@$(PYTEST) -m slow $(ARGS)

test-oldest: build ## Try the oldest Gymnasium and NumPy that are supported, and the oldest and newest Python here
	@python tools/test_oldest.py
	@python tools/test_pythons.py

test-gpu: build ## Run the tests that need a CUDA device
	@$(PYTEST) -m gpu $(ARGS)

coverage: build $(VENV)/coverage.stamp ## Say how much of the Python code the quick tests run (a number, no gate; pages in build/coverage)
	@$(PYTEST) --cov=sharpwave --cov-report=html:build/coverage --cov-report=term:skip-covered $(ARGS)

hooks: $(VENV)/hooks.stamp ## Let git run formatting and the quick checks before each commit
	@prek install

test-native: $(VENV)/dev.stamp ## Run the native tests under ASan, UBSan and TSan
	@cmake --preset asan --log-level=WARNING
	@cmake --build --preset asan
	@ctest --preset asan
	@cmake --preset tsan --log-level=WARNING
	@cmake --build --preset tsan
	@$(FIXED_ADDRESSES) ctest --preset tsan

test-clang: $(VENV)/dev.stamp ## Build and run the native tests with clang
ifeq ($(CLANGXX),)
	@echo "test-clang: skipped, no clang++ here"
else
	@CLANGXX=$(CLANGXX) cmake --preset clang --log-level=WARNING
	@cmake --build --preset clang
	@ctest --preset clang
endif

test-arm64-compile: $(VENV)/dev.stamp ## Cross-compile the core and its tests for arm64
	@if command -v aarch64-linux-gnu-g++ >/dev/null; then \
	  cmake --preset arm64 --log-level=WARNING && cmake --build --preset arm64; \
	else \
	  echo "test-arm64-compile: skipped, no aarch64-linux-gnu-g++ here"; \
	fi

test-macos-compile: $(VENV)/dev.stamp ## Cross-compile the core and its tests for macOS, with zig
	@if $(PYTHON) -c "import ziglang" 2>/dev/null; then \
	  PYTHON=$(shell command -v $(PYTHON)) cmake --preset macos --log-level=WARNING && cmake --build --preset macos; \
	else \
	  echo "test-macos-compile: skipped, the package ziglang is not installed"; \
	fi

check: build $(VENV)/tidy.stamp ## Lint, formatting, types, stubs, names of the core, file lengths, layers, branches and words
	@ruff check .
	@ruff format --check .
	@clang-format --dry-run -Werror $(NATIVE_FILES)
	@cmake --preset native --log-level=WARNING
	@clang-tidy -p build/native --quiet $(CORE_FILES) 2>/dev/null  # which has the progress alone
	@python tools/check_file_lengths.py
	@python -m tools.check_layers
	@python -m tools.check_frame
	@python -m tools.check_words
	@python tools/make_stubs.py --check
	@python -m tools.make_messages --check
	@mypy $(PYTHON_FILES)

format: $(VENV)/dev.stamp ## Format Python and C++
	@ruff check --fix --quiet . || true
	@ruff format .
	@clang-format -i $(NATIVE_FILES)

stubs: build ## Write src/sharpwave/_native.pyi anew from the compiled module
	@python tools/make_stubs.py

messages: $(VENV)/dev.stamp ## Write the Python module of env.proto anew
	@python -m tools.make_messages

bench: $(BENCH_VENV)/wheel ## Run the benchmarks beside their peers, in .venv-bench
	@$(BENCH_VENV)/bin/python benchmarks/run.py --json benchmarks/results.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/report.py

bench-train: $(BENCH_VENV)/wheel ## Train beside the peers, for minutes
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area train off_policy --json benchmarks/results_train.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area sb3_names --json benchmarks/results_sb3_names.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/report.py

bench-multi: $(BENCH_VENV)/wheel ## Several agents beside mpe2 and a plain script in torch
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area multi --json benchmarks/results_multi.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/report.py

bench-dreamer: $(BENCH_VENV)/wheel ## Gradient steps and actions of DreamerV3 beside its definitions in torch
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area dreamer --json benchmarks/results_dreamer.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/report.py

bench-distributed: $(BENCH_VENV)/wheel ## Actors, remote environments, replay shards and several learners, beside Ray where it is installed
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area distributed remote_envs simulated_actors --json benchmarks/results_distributed.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area shards learners fleet_ends --json benchmarks/results_shards.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/report.py

bench-llm: $(BENCH_VENV)/wheel ## Train and sample language models beside TRL and transformers
	@$(BENCH_VENV)/bin/python benchmarks/run.py --area llm --json benchmarks/results_llm.json $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/report.py

bench-learning: $(BENCH_VENV)/wheel ## Learn beside Stable-Baselines3: what is left of the grid, or ARGS='--seconds 3600 --jobs 15'
	@$(BENCH_VENV)/bin/python benchmarks/side_by_side.py --results benchmarks/results_learning.jsonl --jobs 2 $(ARGS)
	@$(BENCH_VENV)/bin/python benchmarks/learning_page.py

bench-gpu: build ## Check and time the kernels and language models on a CUDA device
	@python benchmarks/gpu/run.py --out benchmarks/results_gpu.json $(ARGS)
	@python benchmarks/gpu/llm.py --out benchmarks/results_llm_gpu.json
	@python benchmarks/report.py

docs: build $(VENV)/docs.stamp ## Build the site into build/site/html: warnings are errors, links are checked, no network
	@python -m tools.site

demo: build ## Show what the library does and how fast
	@python examples/demo.py

wheel: dev ## Build a wheel into dist/
	@rm -rf dist
	@python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist

check-wheel: $(VENV)/wheel.stamp ## Build a wheel for other machines, and run it where there is neither torch nor a compiler
	@python tools/check_wheel.py

clean: ## Remove builds and caches (the environments stay; delete .venv to renew them)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)/package.stamp

$(VENV)/bin/python:
	@echo "Making $(VENV); the first time takes a few minutes"
	@PATH="$(SYSTEM_PATH)" $(PYTHON) -m venv $(VENV)

# torch comes first and alone: what depends on it would otherwise bring another one.
$(VENV)/torch.stamp: requirements/torch.txt requirements/constraints.txt | $(VENV)/bin/python
	@$(PIP_INSTALL) -r requirements/torch.txt -c requirements/constraints.txt
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt requirements/cmake.txt $(VENV)/torch.stamp
	@$(PIP_INSTALL) -r requirements/dev.txt -c requirements/constraints.txt
	@python tools/has_cmake.py || $(PIP_INSTALL) -r requirements/cmake.txt
	@touch $@

$(VENV)/tidy.stamp: requirements/tidy.txt $(VENV)/dev.stamp
	@$(PIP_INSTALL) -r requirements/tidy.txt
	@touch $@

$(VENV)/wheel.stamp: requirements/wheel.txt $(VENV)/dev.stamp
	@$(PIP_INSTALL) -r requirements/wheel.txt
	@touch $@

$(VENV)/coverage.stamp: requirements/coverage.txt $(VENV)/dev.stamp
	@$(PIP_INSTALL) -r requirements/coverage.txt
	@touch $@

$(VENV)/hooks.stamp: requirements/hooks.txt $(VENV)/dev.stamp
	@$(PIP_INSTALL) -r requirements/hooks.txt
	@touch $@

$(VENV)/docs.stamp: requirements/docs.txt $(VENV)/dev.stamp
	@$(PIP_INSTALL) -r requirements/docs.txt -c requirements/constraints.txt
	@touch $@

$(VENV)/package.stamp: pyproject.toml $(VENV)/dev.stamp
	@$(PIP_INSTALL) --no-build-isolation -c requirements/constraints.txt -e .
	@touch $@

$(BENCH_VENV)/bin/python:
	@PATH="$(SYSTEM_PATH)" $(PYTHON) -m venv $(BENCH_VENV)

$(BENCH_VENV)/peers.stamp: requirements/bench.txt requirements/torch.txt | $(BENCH_VENV)/bin/python
	@$(BENCH_VENV)/bin/$(PIP_INSTALL) -r requirements/torch.txt
	@$(BENCH_VENV)/bin/$(PIP_INSTALL) -r requirements/bench.txt -c requirements/torch.txt
	@touch $@

.PHONY: $(BENCH_VENV)/wheel
$(BENCH_VENV)/wheel: wheel $(BENCH_VENV)/peers.stamp
	@$(BENCH_VENV)/bin/$(PIP_INSTALL) --force-reinstall --no-deps dist/*.whl
