# `make help` lists what can be made.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help env venv demo down test check format bench docs

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z ]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env:  ## create .venv with the locked environment; nothing if it is up to date
	@$(PYTHON) tools/install.py

venv: env

demo: env  ## services, a sample fleet (DATA=... for your own), a nightly retraining, a champion; stays up
	@$(BIN)/trackside demo $(if $(DATA),--data "$(DATA)")

down:  ## stop everything that `make demo` or `trackside up` started
	@if [ -x $(BIN)/trackside ]; then $(BIN)/trackside down; fi

test: env  ## all tests
	@$(BIN)/pytest

check: env  ## formatting, lint, types, import rules, and what holds for every DAG file
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/pytest tests/dags

format: env  ## put the code into the one format, and repair what lint can repair
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

bench: env  ## the benchmarks, against a peer in the same run where there is one
	@$(BIN)/trackside bench all

docs: env  ## check the pages: every link, and every make target they name, leads somewhere
	@$(BIN)/python tools/check_docs.py
