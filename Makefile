# Two commands do everything, each with its own set-up:
#   make report [OUT=DIR] [JOBS=N]   run all notebooks; the last line is the path of the gallery page
#   make test                        pass the tests: every tier that this machine can run
# Further: make test-quick, make lint, make lock, make help.
# WORKBENCH_VENV=DIR moves the environment out of the checkout; nothing else is written there
# when OUT is given, or the checkout cannot be written.

JOBS ?= 2
OUT ?=
export OUT JOBS

# Paths may hold spaces, so they are shell variables in quotes and never targets.
# Python keeps what it has compiled, whatever the shell says: without, each of a thousand processes compiles all again.
SETUP = venv=$$(sh .ci/set-up) && test -n "$$venv" && PATH="$$venv/bin:$$PATH" && export PATH \
    && unset PYTHONDONTWRITEBYTECODE \
    && export PYTHONPYCACHEPREFIX="$$venv/cache/python" \
              RUFF_CACHE_DIR="$$venv/cache/ruff" MYPY_CACHE_DIR="$$venv/cache/mypy" \
              HYPOTHESIS_STORAGE_DIRECTORY="$$venv/cache/hypothesis"
# Files in the order of tests/conftest.py, the long ones first. A third worker on two cores gains nothing: whatever waits
# less computes longer.
PYTEST = python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
TIERS = spark spark4 comet browser notebook postgres ml cluster env peer
QUICK = $(patsubst %,not % and,$(TIERS)) not slow
LINT = ruff check . && ruff format --check . && mypy

.PHONY: help report test test-quick lint lock setup
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed -n '1,6p'

setup:
	@sh .ci/set-up

report:
	@$(SETUP) || exit $$?; status=0; \
	workbench run all --jobs "$$JOBS" $${OUT:+--out "$$OUT"} || status=$$?; \
	workbench gallery $${OUT:+"$$OUT"} || exit $$?; \
	exit $$status

# Left out are six queries that the whole matrix runs, too. The committed notebooks run once more as somebody sees them
# who opens them live (nbval); their runs go to a folder that is thrown away.
test:
	@$(SETUP) && $(LINT) && $(PYTEST) --ignore=tests/lore/test_matrix_quick.py \
	&& scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT INT TERM \
	&& WORKBENCH_OUT="$$scratch" $(PYTEST) --nbval-lax --nbval-current-env --nbval-kernel-startup-timeout 120 notebooks

test-quick:
	@$(SETUP) && $(LINT) && $(PYTEST) -m "$(QUICK)" $$(sed 's/^/--ignore=/' tests/heavy.txt)

lint:
	@$(SETUP) && $(LINT)

# Resolved anew outside of the checkout, so that no uv.lock, which names hosts, comes to lie in it.
lock:
	@$(SETUP) && scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT INT TERM \
	&& cp pyproject.toml README.md LICENSE NOTICE "$$scratch" && mkdir "$$scratch/workbench" \
	&& (cd "$$scratch" && uv export --quiet --all-extras --no-emit-project --no-annotate --no-header \
	        --format requirements-txt -o requirements.lock) \
	&& cp "$$scratch/requirements.lock" requirements.lock && echo requirements.lock
