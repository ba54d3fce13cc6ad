# Two commands do everything, each with its own set-up:
#   make report [OUT=DIR] [JOBS=N]   run all notebooks; the last line is the path of the gallery page
#   make test                        pass the tests: each promise once, on all tiers that this machine can run
#   make docs [OUT=DIR] [RUNS=DIR]   build the documents as a site, offline; the last line is the path of its first page
# Further: make test-all, make test-area AREA=sizing, make test-quick, make lint, make lock, make help.
# WORKBENCH_VENV=DIR moves the environment out of the checkout; nothing else is written there
# when OUT is given, or the checkout cannot be written.

JOBS ?= 2
OUT ?=
export OUT JOBS JUNIT

# Paths may hold spaces, so they are shell variables in quotes and never targets.
# Python keeps what it has compiled, whatever the shell says: without, each of a thousand processes compiles all again.
SETUP = venv=$$(sh .ci/set-up) && test -n "$$venv" && PATH="$$venv/bin:$$PATH" && export PATH \
    && unset PYTHONDONTWRITEBYTECODE \
    && export PYTHONPYCACHEPREFIX="$$venv/cache/python" \
              RUFF_CACHE_DIR="$$venv/cache/ruff" MYPY_CACHE_DIR="$$venv/cache/mypy" \
              HYPOTHESIS_STORAGE_DIRECTORY="$$venv/cache/hypothesis"
# Files in the order of their times (tests/conftest.py), one worker a file. Three workers on two cores: two of them left
# the cores idle for two fifths of the time, while servers, kernels and JVMs were waited for.
PYTEST = python -m pytest -p no:nbval -n 3 --dist loadscope --no-loadscope-reorder
MARKERS = spark spark4 comet browser notebook postgres ml cluster env peer
QUICK = $(patsubst %,not % and,$(MARKERS)) not slow
LINT = ruff check . && ruff format --check . && mypy
NBVAL = scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT INT TERM \
    && WORKBENCH_OUT="$$scratch" python -m pytest -n 3 --dist loadfile \
       --nbval-lax --nbval-current-env --nbval-kernel-startup-timeout 120 notebooks
# Where pytest writes junit files, for tests/times.txt; nowhere unless it is given.
JUNIT ?=
# Where runs lie whose reports the site of the documents shows.
RUNS ?=
export RUNS

.PHONY: help report docs test test-all test-area test-quick lint lock setup
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed -n '1,7p'

setup:
	@sh .ci/set-up

report:
	@$(SETUP) || exit $$?; status=0; \
	workbench run all --jobs "$$JOBS" $${OUT:+--out "$$OUT"} || status=$$?; \
	workbench gallery $${OUT:+"$$OUT"} || exit $$?; \
	exit $$status

docs:
	@$(SETUP) && python -m docs.site.build "$${OUT:-$$venv/site}" $${RUNS:+--runs "$$RUNS"}

# Each promise once: breadth is left to test-all (tests/tiers.py). The committed notebooks run once as somebody sees them
# who opens them live (nbval); their runs go to a folder that is thrown away.
test:
	@$(SETUP) && $(LINT) && export WORKBENCH_TESTS=most && $(PYTEST) $${JUNIT:+--junitxml="$$JUNIT"} && $(NBVAL)

# Everything: the matrix, all commands of the guides, kills, seeds and coverage, fuzzing, peers, ml, env, KAI, JupyterLab.
test-all:
	@$(SETUP) && $(LINT) && export WORKBENCH_TESTS=all WORKBENCH_FUZZ=$${WORKBENCH_FUZZ:-5} \
	&& $(PYTEST) $${JUNIT:+--junitxml="$$JUNIT"} && $(NBVAL)

# All of one area with the floor: make test-area AREA=sizing
test-area:
	@$(SETUP) && $(LINT) && export WORKBENCH_TESTS=all && $(PYTEST) $$(python -m tests.tiers "$(AREA)")

test-quick:
	@$(SETUP) && $(LINT) && $(PYTEST) -m "$(QUICK)" $$(python -m tests.times --heavy | sed 's/^/--ignore=/')

lint:
	@$(SETUP) && $(LINT)

# Resolved anew outside of the checkout, so that no uv.lock, which names hosts, comes to lie in it.
lock:
	@$(SETUP) && scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT INT TERM \
	&& cp pyproject.toml README.md LICENSE NOTICE "$$scratch" && mkdir "$$scratch/workbench" \
	&& cp workbench/__init__.py "$$scratch/workbench" \
	&& (cd "$$scratch" && uv export --quiet --all-extras --no-emit-project --no-annotate --no-header \
	        --format requirements-txt -o requirements.lock) \
	&& cp "$$scratch/requirements.lock" requirements.lock && echo requirements.lock
