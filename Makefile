# Every target makes what it needs first; see README.md.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check bench clean

setup:
	@$(PYTHON) tools/setup.py

demo: setup
	@$(BIN)/inferd demo

test: setup
	@$(BIN)/python -m pytest

check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/regenerate.py --check

bench: setup
	@$(BIN)/python bench/decode.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
