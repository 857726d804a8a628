# Every target makes what it needs first; see README.md.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo docs test test-fast test-all test-accelerator test-vulkan check bench bench-guard fuzz torture attack proof install rollback verify uninstall deb clean

# Tests and commands start some thousand processes: none compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

setup:
	@$(PYTHON) -m tools.setup

demo: setup
	@$(BIN)/inferd demo

# All anew, as the list of pages is on each. Warnings are errors: links and headings that are not there, and pages that no list has.
docs: setup
	@$(BIN)/python -m sphinx -E -a -W --keep-going -q -b html -d build/doctrees -c tools/site . build/site
	@echo "open build/site/index.html"

# More processes than cores: some tests wait for a process or a bound.
WORKERS ?= 3
PARALLEL := -n $(WORKERS) --dist worksteal
ELSEWHERE := root or systemd or short_version or long
# The others of sixteen thousand need not be collected again.
ALONE_IN = $$(grep -rl --include='test_*.py' 'mark\.alone' tests)
ELSEWHERE_IN = $$(grep -rlE --include='test_*.py' 'mark\.(root|systemd|short_version|long)|needs_root' tests)
# Tests that share users, paths or a container are one scope; see tests/scheduling.py.
SCOPED := -n 3 --dist loadscope

test: setup
	@$(BIN)/python -m pytest $(PARALLEL) -m "not ($(ELSEWHERE) or alone or accelerator)"
	@$(BIN)/python -m pytest -m "alone and not ($(ELSEWHERE))" $(ALONE_IN)

test-fast: setup
	@$(BIN)/python -m pytest $(PARALLEL) -m "not ($(ELSEWHERE) or alone or slow or model)" tests/unit tests/architecture

test-all: setup
	@$(BIN)/python -m pytest $(SCOPED) -m "($(ELSEWHERE)) and not (alone or accelerator)" $(ELSEWHERE_IN)
	@$(BIN)/python -m pytest -m "($(ELSEWHERE)) and alone" $(ELSEWHERE_IN)

# With the llama.cpp that CMAKE_ARGS names, such as -DGGML_CUDA=ON; docs/accelerators.md.
test-accelerator: setup
	@$(BIN)/python -m pytest -m "accelerator and not systemd" tests/accelerator

# On Mesa's driver: mesa-vulkan-drivers, vulkan-tools, libvulkan-dev, spirv-headers and glslc.
VULKAN = CMAKE_ARGS="-DGGML_VULKAN=ON -DVulkan_INCLUDE_DIR=$$($(PYTHON) -m tools.vulkan_headers)"
test-vulkan:
	@$(VULKAN) $(MAKE) test-accelerator
	@$(VULKAN) $(BIN)/python -m pytest -m "accelerator and systemd" tests/accelerator

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.regenerate --check

bench: setup
	@$(BIN)/python -m bench

bench-guard: setup
	@$(BIN)/python -m bench.guard $(if $(REVISION),--revision $(REVISION))

fuzz: setup
	@$(BIN)/python -m fuzz.lines 10000000 --processes 2
	@$(BIN)/python -m fuzz.headers 100000
	@$(BIN)/python -m fuzz.socket 100000
	@$(BIN)/python -m fuzz.truncation
	@$(BIN)/python -m fuzz.large
	@$(BIN)/python -m fuzz.coverage -max_total_time=60

torture: setup
	@$(BIN)/python -m torture

attack: setup
	@$(BIN)/python -m attack

# PROOF names some of them, SEED has one drawn again.
PROOF ?=
proof: setup
	@$(BIN)/python -m proofs $(PROOF) $(if $(SEED),--seed $(SEED))

install:
	@$(PYTHON) -m tools.install install

rollback:
	@$(PYTHON) -m tools.install rollback

verify:
	@$(PYTHON) -m tools.install verify

uninstall:
	@$(PYTHON) -m tools.install uninstall

# Of Debian: dpkg-dev, debhelper, fakeroot.
deb:
	@$(PYTHON) -m tools.debian

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
