# Everything happens in .venv, made from the hash-locked requirements/dev.txt; nothing is installed elsewhere.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
FOR    ?=
ARGS   ?=

# Tests start hundreds of processes: without compiled files each of them compiles everpoll again, for 0.3 s of CPU.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo example-test-runner example-website-audit example-shell-query example-dependency-health dashboard dashboard-if-possible test prove check bench newcomer docs lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-25s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) dashboard-if-possible ## Watch everpoll at work in the terminal and in the dashboard, until Ctrl-C (FOR=30s)
	@$(BIN)/everpoll demo $(if $(FOR),--for $(FOR))

example-test-runner: $(READY) ## Replay recordings in Chromium, from a table of your own (ARGS="--url …")
	@$(BIN)/python -m examples.test_runner $(ARGS)

example-website-audit: $(READY) ## Audit sites, from a table of your own (ARGS="--serve")
	@$(BIN)/python -m examples.website_audit $(ARGS)

example-shell-query: $(READY) ## Watch twenty queries in a simulated cloud until they end (ARGS="--speed 30")
	@$(BIN)/python -m examples.shell_query $(ARGS)

example-dependency-health: $(READY) ## Look at sixteen services, some of them in trouble (ARGS="--for 20s")
	@$(BIN)/python -m examples.dependency_health $(ARGS)

dashboard: $(READY) ## Build the dashboard into src/everpoll/server/dashboard, if its sources have changed
	@$(BIN)/python build_dashboard.py

# A machine without a network still runs everything else; what needs the dashboard then says that it is missing.
dashboard-if-possible: $(READY)
	@$(BIN)/python build_dashboard.py --if-possible

# By another name: a recipe that names $(MAKE) is run by `make -n` as well.
CHECKS = $(MAKE) --no-print-directory check docs

# The checks run beside the tests, and tell what they found after them. The order of modules is that of tests/conftest.py.
test: $(READY) dashboard-if-possible ## Run every test and every check (ARGS="-k name" picks tests)
	@$(CHECKS) > $(VENV)/checks.log 2>&1 & checks=$$!; \
	echo "$(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder $(ARGS)"; \
	$(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder $(ARGS); tests=$$?; \
	wait $$checks; checked=$$?; cat $(VENV)/checks.log; exit $$((tests > checked ? tests : checked))

prove: $(READY) ## Run the long proofs that `make test` leaves out (ARGS="-k name" picks some)
	$(BIN)/python -m pytest -m prove -n 2 --dist loadscope $(ARGS)

check: $(READY) ## Lint, formatting, types and imports between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python build_dashboard.py --check --if-possible

bench: $(READY) ## Measure, side by side with a bare reference, and print ratios
	$(BIN)/python -m bench $(ARGS)

newcomer: ## Time the README's way from `pip install` to a job done, in a fresh environment (ARGS="--extra server")
	@$(PYTHON) -m bench.newcomer $(ARGS)

docs: $(READY) ## Build the documentation into site/, failing on a broken link
	$(BIN)/mkdocs build --strict --quiet

COMPILE = uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
  --no-emit-find-links --upgrade --quiet
PEERS   = $(basename $(notdir $(wildcard bench/peers/*.in)))

lock: ## Pin the development and benchmark requirements anew, with hashes (needs uv)
	$(COMPILE) --all-extras pyproject.toml requirements/dev.in -o requirements/dev.txt
	$(foreach peer,$(PEERS),$(COMPILE) bench/peers/$(peer).in -o bench/peers/$(peer).txt && ) true

clean: ## Remove the environment and everything built
	rm -rf $(VENV) bench/.peers site dist build dashboard/node_modules src/everpoll/server/dashboard .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --no-build-isolation: the build backend is locked like everything else.
$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "everpoll needs Python 3.11 or newer; say which one with: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) (once, about half a minute) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
