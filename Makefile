# Two commands do everything, each with its own set-up:
#   make report [OUT=DIR] [JOBS=N]   run all notebooks; the last line is the path of the gallery page
#   make test                        the gate that every change passes: lint, types, tests in process, notebooks
#   make docs [OUT=DIR] [RUNS=DIR]   build the documents as a site, offline; the last line is the path of its first page
# Further: make test-area AREA=sizing, make test-all, make lint, make lock, make help.
# WORKBENCH_VENV=DIR moves the environment out of the checkout; nothing else but byte code is written there
# when OUT is given, or the checkout cannot be written.

JOBS ?= 2
OUT ?=
export OUT JOBS

# Paths may hold spaces, so they are shell variables in quotes and never targets.
# Python keeps what it has compiled, whatever the shell says: without, each of a thousand processes compiles all again.
SETUP = venv=$$(sh .ci/set-up) && test -n "$$venv" && PATH="$$venv/bin:$$PATH" && export PATH \
    && unset PYTHONDONTWRITEBYTECODE \
    && export RUFF_CACHE_DIR="$$venv/cache/ruff" MYPY_CACHE_DIR="$$venv/cache/mypy" \
              HYPOTHESIS_STORAGE_DIRECTORY="$$venv/cache/hypothesis"
# A worker takes a file at a time, whose fixtures are then made once.
PYTEST = python -m pytest -p no:nbval --dist loadfile
# What is on control planes comes after all else, and one test at a time: two of them do not fit two cores. An area
# needs no package index: other systems, another Spark and installations are of test-all.
ALL = -n 2 -m "not cluster"
OF_AREA = -n 2 -m "not cluster and not network"
ON_CLUSTERS = -n 1 -m "cluster and not network"
# An area is a folder of workbench/ with a command; the floor is all that is in none.
AREAS = $(sort $(patsubst workbench/%/command.py,%,$(wildcard workbench/*/command.py)))
FLOOR = tests workbench $(foreach area,$(AREAS),--ignore=tests/$(area) --ignore=workbench/$(area))
PLACES = $(foreach area,$(AREA),$(if $(filter floor,$(area)),$(FLOOR),tests/$(area) workbench/$(area)))
LINT = ruff check . && ruff format --check . && mypy
# Notebooks as somebody sees them who opens them, in a folder that is thrown away with their runs; of those in
# tests/notebooks the text of every output, too.
STRICT = $(wildcard tests/notebooks/*.ipynb)
NB = python -m pytest -c pyproject.toml -n 2 --dist loadfile --nbval-current-env --nbval-kernel-startup-timeout 300
NBVAL = scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT INT TERM && export WORKBENCH_OUT="$$scratch/runs" \
    && mkdir "$$scratch/lax" "$$scratch/strict" && ln -s "$$PWD/data" "$$scratch/data" \
    && cp $(filter-out $(STRICT:tests/%=%),$(wildcard notebooks/*.ipynb)) "$$scratch/lax" \
    && cp $(STRICT) tests/notebooks/conftest.py "$$scratch/strict" \
    && $(NB) --nbval-lax "$$scratch/lax" \
    && $(NB) --nbval --nbval-sanitize-with tests/notebooks/sanitize.cfg "$$scratch/strict"
# Where runs lie whose reports the site of the documents shows.
RUNS ?=
export RUNS

.PHONY: help report docs test test-all test-area lint lock freeze setup
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

# The gate; pyproject.toml says which tests are in it.
test:
	@$(SETUP) && $(LINT) && $(PYTEST) -n 2 && $(NBVAL)

# One area or several, or the floor below them, without what needs a package index: make test-area AREA="sizing lore".
# pytest ends with 5 where there is nothing to run.
test-area:
	@[ -n "$(strip $(AREA))" ] || { echo "make test-area AREA=NAME, of: $(AREAS) floor" >&2; exit 2; }
	@$(SETUP) && $(LINT) && $(PYTEST) $(OF_AREA) $(PLACES) && { $(PYTEST) $(ON_CLUSTERS) $(PLACES) || [ $$? -eq 5 ]; }

# Everything: the matrix, the guides' commands, kills, seeds, peers, other Sparks, fuzzing with five times the inputs.
test-all:
	@$(SETUP) && $(LINT) && export WORKBENCH_FUZZ=$${WORKBENCH_FUZZ:-5} \
	&& $(PYTEST) $(ALL) && $(PYTEST) -n 1 -m cluster && $(NBVAL)

lint:
	@$(SETUP) && $(LINT)

# Contracts and strict notebooks anew, after a change on purpose; git diff shows it.
freeze:
	@$(SETUP) && python -m tests.contracts && python -m tests.notebooks

# Resolved anew outside of the checkout, so that no uv.lock, which names hosts, comes to lie in it.
lock:
	@$(SETUP) && scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT INT TERM \
	&& cp pyproject.toml README.md LICENSE NOTICE "$$scratch" && mkdir "$$scratch/workbench" \
	&& cp workbench/__init__.py "$$scratch/workbench" \
	&& (cd "$$scratch" && uv export --quiet --all-extras --no-emit-project --no-annotate --no-header \
	        --format requirements-txt -o requirements.lock) \
	&& cp "$$scratch/requirements.lock" requirements.lock && echo requirements.lock
