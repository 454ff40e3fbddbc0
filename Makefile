# dibs: the commands. Python 3.11 or newer, pip and make are all they need.

PYTHON = python3
JOBS = 4
PROOF_JOBS = 5
ARGS =
BIN = .venv/bin
BENCH = core claims limits worker http workflows dashboard
STRESS_EXAMPLES = 2000
MINUTES = 30
SEED =
FAULTS =

unexport PYTHONDONTWRITEBYTECODE # or each process compiles dibs and the tests anew

.PHONY: help setup demo test proof matrix stress faults check format coverage bench clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PYTHON=python3.13 chooses the Python of a new .venv; ARGS="-k claim" is passed to pytest; JOBS=4 runs more at once.'

setup: .venv/.installed ## make .venv with everything installed, unless it is up to date

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("dibs needs Python 3.11 or newer: make setup PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --upgrade 'pip>=25.3'
	$(BIN)/python -m pip install -qq --no-compile --group dev -e '.[all]' -c constraints.txt --build-constraint constraints.txt
	@touch .venv/.installed

demo: setup ## start a server with its dashboard and three workers on a lively sample; ARGS="--port 9000" is passed to it
	@$(BIN)/dibs demo $(ARGS)

test: setup ## run the tests, on SQLite and on a real PostgreSQL: under five minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

proof: setup ## run what CI proves beyond `make test`: other engines and modes, faults, browser, Prometheus, frameworks, other Pythons
	@$(MAKE) --no-print-directory -j 2 proof-tests proof-environments

.PHONY: proof-tests proof-environments
proof-tests: setup
	$(BIN)/python -m pytest -n $(PROOF_JOBS) --suite proof $(ARGS)

proof-environments: setup # nice: tests of faults measure time, and the core on other Pythons does not
	nice $(BIN)/python -m tests.frameworks
	nice $(BIN)/python -m tests.pythons

matrix: setup ## print which tests run on which engine and in which mode, in make test, proof and stress
	@$(BIN)/python -m tests.matrix

stress: setup ## run every test in every way, with a million rows; the API, the model and claims for longer (STRESS_EXAMPLES=2000 each); then the faults
	STRESS_EXAMPLES=$(STRESS_EXAMPLES) $(BIN)/python -m pytest -n $(JOBS) --suite stress tests/server/test_schemathesis.py tests/contract/test_model.py tests/contract/test_many_claims.py $(ARGS)
	$(BIN)/python -m pytest -n $(JOBS) --suite stress $(ARGS)
	$(MAKE) faults

faults: setup ## inject every fault of docs/reliability.md and print its table, MINUTES=30 in all (SEED=7: a run again)
	$(BIN)/python -m tests.stress --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(FAULTS)

check: setup ## check format, lint, types, imports, names, and that every fence is tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.names
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check-types check-fences

.PHONY: check-types check-fences
check-types: setup
	$(BIN)/mypy

check-fences: setup
	@if [ -f tests/mutate.py ]; then $(BIN)/python -m tests.mutate --check; fi

format: setup ## format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: setup ## run make test and make proof with coverage, and fail below 80 %
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(JOBS) $(ARGS)
	$(BIN)/coverage run -m pytest -n $(JOBS) --suite proof $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: setup ## measure dibs beside the bare database drivers and other queues (BENCH=worker: only that)
	$(BIN)/python -m pip install -qq --group bench -c constraints.txt
	@for each in $(BENCH); do $(BIN)/python -m bench.$$each $(ARGS) || exit 1; done

clean: ## remove what the other commands made: .venv, .bench, caches, builds, coverage data
	rm -rf .venv .pythons .frameworks .bench .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist htmlcov .coverage .coverage.*
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
