# Every command makes .venv first, once. A torch that PYTHON can import is
# inherited; without one, torch is installed. `make help` lists the commands.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
LINT_READY := $(VENV)/.ready-lint
# MODE=quick|full|nightly, MACHINE=name and ARGS="..." go to `make bench`; without
# MODE a machine with a GPU measures in full and one without measures quickly.
BENCH_FLAGS = $(if $(MODE),--mode $(MODE)) $(if $(MACHINE),--machine $(MACHINE)) $(ARGS)

# The environment inherits what PYTHONPATH names when it is made; later commands
# run without it, so that nothing shadows the environment.
RUN := env -u PYTHONPATH $(PY)

.PHONY: help env test test-python test-gpu guards lint format types smoke bench gate false-alarms planted noise report trace \
        pages preview contribute pull-results push-results push-pages clean

help:
	@echo "make test      every test, each pytest-benchmark once as a test"
	@echo "make test-python  the library's tests again, without its compiled loops"
	@echo "make test-gpu  the tests that need a GPU; fails if none could run"
	@echo "make guards    remove each guarded line of the library and see a test fail"
	@echo "make lint      ruff: format and lint"
	@echo "make types     mypy --strict on the library"
	@echo "make smoke     both suites on this tree in seconds; nothing is saved"
	@echo "make bench     measure this commit, publish the pages, print the gains"
	@echo "               [MODE=quick|full|nightly] [MACHINE=name] [ARGS='--commits ALL']"
	@echo "make gate      is this commit slower than BASE (default: main)? [BASE=commit] [HEAD=commit]"
	@echo "               exits 0: no; 1: yes; 2: it could not be measured"
	@echo "make false-alarms  the gate on a commit and itself [TIMES=10]"
	@echo "make planted   plant regressions in a scratch clone: does the tracking find them?"
	@echo "make noise     which metrics are steady? [ARGS='results-1 results-2 ...']"
	@echo "make pull-results, push-results, push-pages   branches results and gh-pages of origin"
	@echo "make report    the table of gains, pictures and pages from results/"
	@echo "make trace     trace steps under two policies, for Perfetto and as a picture"
	@echo "               MACHINE=name"
	@echo "make pages     build the site from results/: start page, graphs, regressions"
	@echo "make preview   serve the site on this machine [ARGS='--port 8080']"
	@echo "make contribute  one file of a machine's results, to be sent in: MACHINE=name"
	@echo "make clean     remove the environments (not the results)"
	@echo "PYTHON=/path/to/python chooses the Python, and with it the torch"

env: $(READY)

$(READY): pyproject.toml setup.py $(wildcard asyncout/csrc/*) benchmarks/runner/bootstrap.py benchmarks/runner/requirements.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: '$(PYTHON)' is not a Python of version 3.10 or later; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m benchmarks.runner.bootstrap $(VENV) bench test
	@touch $@

$(LINT_READY): $(READY)
	$(PYTHON) -m benchmarks.runner.bootstrap $(VENV) lint
	@touch $@

test: $(READY)
	$(RUN) -m pytest $(ARGS)

# The library's tests again without the compiled loops, as where there is no compiler.
test-python: $(READY)
	ASYNCOUT_PURE_PYTHON=1 $(RUN) -m pytest -q tests/test_async_output.py tests/test_hot.py \
	  tests/test_landing.py tests/test_outputs.py tests/test_pooling_output.py \
	  tests/test_step_timing.py tests/test_worker.py $(ARGS)

test-gpu: $(READY)
	ASYNCOUT_REQUIRE_GPU=1 ASYNCOUT_BENCH_MODE=smoke $(RUN) -m pytest -m gpu $(ARGS)

guards: $(READY)
	$(RUN) -m tests.mutate

lint: $(LINT_READY)
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .

format: $(LINT_READY)
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

types: $(LINT_READY)
	$(RUN) -m mypy

smoke: $(READY)
	$(RUN) -m benchmarks.runner.smoke

bench: $(READY)
	$(RUN) -m benchmarks.runner $(BENCH_FLAGS)

# A failed recipe makes make exit with 2. It exits with 1 only when it gets SIGQUIT,
# which says "slower" here; where that is ignored (a shell's background job), slower is 2.
# A name that is given but empty, as by a variable that a CI job lacks, is no default: 2.
gate: $(READY)
	@$(foreach name,BASE HEAD,$(if $($(name)),,$(if $(filter undefined,$(origin $(name))),, \
	  $(error $(name) is given but empty; name a commit, or leave $(name) out))))
	@$(RUN) -m benchmarks.gate $(if $(BASE),--base "$$BASE") $(if $(HEAD),--head "$$HEAD") $(ARGS); \
	status=$$?; if [ $$status = 1 ]; then kill -QUIT $$PPID; fi; exit $$status

# How often the gate calls a commit slower than itself, noted in results/.
false-alarms: $(READY)
	$(RUN) -m benchmarks.gate.false_alarms $(if $(TIMES),--times $(TIMES)) $(ARGS)

# Do asv's regressions find what is planted, and nothing else? Noted in results/.
planted: $(READY)
	$(RUN) -m benchmarks.planted $(if $(MODE),--mode $(MODE)) $(if $(MACHINE),--machine $(MACHINE)) $(ARGS)

noise: $(READY)
	$(RUN) -m benchmarks.noise $(or $(ARGS),results)

# For a machine that measures by itself: results and pages live on branches of their own.
pull-results: $(READY)
	$(RUN) -m benchmarks.runner.branches pull results results

push-results: $(READY)
	$(RUN) -m benchmarks.runner.branches push results results

push-pages: $(READY)
	$(RUN) -m benchmarks.runner.branches push .asv/site gh-pages

# --json is for the table alone: what is drawn says nothing on the standard output.
report: $(READY)
	$(RUN) -m benchmarks.report $(ARGS)
	$(RUN) -m benchmarks.pictures $(filter-out --json,$(ARGS))

trace: $(READY)
	@test -n "$(MACHINE)" || { echo "error: name the machine: make trace MACHINE=name" >&2; exit 1; }
	$(RUN) -m benchmarks.trace --out results/$(MACHINE)/pictures $(ARGS)

pages: $(READY)
	$(RUN) -m benchmarks.pages build $(ARGS)

preview: $(READY)
	$(RUN) -m benchmarks.pages preview $(ARGS)

contribute: $(READY)
	@test -n "$(MACHINE)" || { echo "error: name the machine: make contribute MACHINE=name" >&2; exit 1; }
	$(RUN) -m benchmarks.contributions make $(MACHINE) $(ARGS)

clean:
	rm -rf $(VENV) .asv build asyncout.egg-info
