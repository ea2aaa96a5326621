# `make demo` and `make test` do everything on a fresh machine: the virtual environment, the
# installation with exact versions, the job. A second call starts at once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo viewer test packages test-browser dciodvfy test-malformed fuzz chaos check format bench results results-lidc results-compare results-performance results-seeds clean

demo: .venv/installed
	$(BIN)/mue demo

# The page at http://127.0.0.1:8000; ARGS are models and options of `mue serve`.
viewer: .venv/installed
	$(BIN)/mue serve $(ARGS)

# A process for each core, at most eight; the tests of a file stay in one, and files come in their
# order: sorted by their number of tests, the slow ones with a few tests would all come last. Where
# there is a Chromium, the page is tested in it, else these tests are skipped. With CI=true it is
# installed.
CI_PACKAGES := $(if $(filter true,$(CI)),packages)
test: .venv/installed $(CI_PACKAGES) $(if $(CI_PACKAGES)$(shell command -v chromium),.venv/browser)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder --durations 25

# What the tests of the page and of DICOM need of Debian; where it cannot be had, they are skipped.
packages:
	@missing=""; \
	command -v chromium > /dev/null || missing="chromium"; \
	command -v dciodvfy > /dev/null || missing="$$missing dicom3tools"; \
	if [ -n "$$missing" ] && command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ]; then \
		(apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends $$missing) \
		|| echo "could not install $$missing; the tests that need it are skipped" >&2; \
	fi

# Debian's Chromium, and Playwright without a browser of its own. Screenshots go to SHOTS.
SHOTS ?= runs/screenshots
test-browser: .venv/browser
	command -v chromium || (apt-get update && apt-get install --yes chromium)
	MUE_SCREENSHOTS=$(SHOTS) $(BIN)/python -m pytest -m browser tests/service

# The validator of DICOM, of Debian's dicom3tools; without it, the tests that use it are skipped.
dciodvfy:
	command -v dciodvfy || (apt-get update && apt-get install --yes dicom3tools)

# It goes on where the last call ended, and writes docs/reliability.md. ARGS are its options.
fuzz: .venv/installed
	PYTHONPATH=benchmarks $(BIN)/python tests/fuzz/fuzz.py $(ARGS)

# Kills, full disks, little memory, removed files and concurrent processes, by seed; it goes on, too.
chaos: .venv/installed
	PYTHONPATH=benchmarks:tests/fuzz $(BIN)/python tests/chaos/chaos.py $(ARGS)

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/browser: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	touch $@

# COUNT damaged and malicious uploads, to an application in the process.
COUNT ?= 10000
test-malformed: .venv/installed
	$(BIN)/python benchmarks/malformed.py --count $(COUNT)

clean:
	rm -rf .venv .pytest_cache .ruff_cache

# ARGS are options of the script, such as --quick or --only training.
bench: .venv/installed
	$(BIN)/python benchmarks/speed.py $(ARGS)

results: .venv/installed
	$(BIN)/python benchmarks/results.py

# DATA is LIDC-IDRI as `mue data import lidc` prepared it, RUNS holds models too large to bundle.
DATA ?= lidc
RUNS ?= runs/lidc
results-lidc: .venv/installed
	$(BIN)/python benchmarks/lesions.py $(DATA) --runs $(RUNS)

# Here RUNS holds baselines that are not bundled, and comparisons; without DATA it is the game alone.
results-compare: RUNS = runs
results-compare: .venv/installed
	$(BIN)/python benchmarks/baselines.py $(wildcard $(DATA)) --runs $(RUNS)

# BENCH are folders that `make bench` wrote, one for each device.
BENCH ?= runs/bench
results-performance: .venv/installed
	$(BIN)/python benchmarks/performance.py $(BENCH)

# SEEDS holds runs that benchmarks/seeds.py has trained.
SEEDS ?= runs/seeds
results-seeds: .venv/installed
	$(BIN)/python benchmarks/seeds.py --out $(SEEDS)
