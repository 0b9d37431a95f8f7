# The two commands are `make run` and `make test`; everything they need they install by themselves.

PYTHON ?= $(shell tools/choose-python)
VENV   := .venv
BIN    := $(VENV)/bin
UI_SOURCES := $(shell find ui -path ui/node_modules -prune -o -type f -print 2>/dev/null)
# Test files at a time: they wait for processes and sockets more than they compute.
JOBS   ?= 4
# Cisco's client of the release before: two versions do not fit into one environment.
OLDER_CLIENT := $(VENV)/virl2-client-2.9
# Cisco's command line for CML, whose dependencies are not ours.
VIRLUTILS := $(VENV)/virlutils
# A generator of clients from OpenAPI documents, whose dependencies are not ours either.
OPENAPI_CLIENT := $(VENV)/openapi-python-client
# The lowest versions that pyproject.toml allows.
LOWEST := $(VENV)/lowest
# No process, no socket, virtual time.
UNIT := tests/unit tests/contract/test_kv.py
UI_BUILT := src/lcm/control_plane/static/index.html

# Where this is set, every process compiles all it imports again: half of what its start costs.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test check lint unit explore unit-coverage coverage bench bench-compare fuzz sim sim-coverage sim-hunt soak soak-ha soak-kill soak-class soak-labs soak-clicks screenshots docs dist lock lowest browser
.PHONY: ferretdb prometheus helm clean types page pytest

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/loaded $(UI_BUILT) ## Set up the environment and build the dashboard, nothing else

run: ## Run LCM with a simulated cloud and print the dashboard's URL
	@$(MAKE) --no-print-directory -j2 setup
	@$(BIN)/lcm up --save-context local $(ARGS)

test: ## Run every check and every test
	@$(MAKE) --no-print-directory -j4 types page pytest

check: lint types page ## Lint, types, import rules (Python and dashboard)

types: $(VENV)/ready
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

page: setup
	cd ui && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent check
	cd ui && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent test

pytest: setup $(LOWEST)/ready $(OLDER_CLIENT) $(VIRLUTILS) $(OPENAPI_CLIENT) browser ferretdb prometheus lint $(if $(ARGS),,unit-coverage)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(if $(ARGS),,$(UNIT:%=--ignore=%)) $(ARGS)

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/typos

unit: setup ## The quick tests: no process, no socket, virtual time
	$(BIN)/python -m pytest -q -n auto --dist loadfile $(UNIT) $(ARGS)

lowest: setup $(LOWEST)/ready ## Run the unit tests on the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -q -n auto --dist loadfile -W default::DeprecationWarning $(UNIT) $(ARGS)

explore: setup ## Run the property tests on examples that the suite does not draw
	$(BIN)/python -m pytest -q -n auto --dist loadfile $(UNIT) --hypothesis-profile=explore $(ARGS)

unit-coverage: setup ## The same, measured: they must reach the branch coverage recorded in pyproject.toml
	$(BIN)/python -m pytest -q -n auto --dist loadfile --cov --cov-report= $(UNIT)

coverage: setup $(OLDER_CLIENT) $(VIRLUTILS) $(OPENAPI_CLIENT) browser ferretdb prometheus ## Show which lines and branches of src/lcm the whole suite reaches
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --cov --cov-fail-under=0 $(ARGS)

bench: setup ## Measure what performance claims rest on
	@for script in $(filter-out benchmarks/report.py benchmarks/compare.py benchmarks/fuzz.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script $(ARGS) || exit 1; done

bench-compare: setup ## Run benchmarks on this and another commit in turns: make bench-compare BASE=91fd182 [ARGS="ws_ingest --rounds 5"]
	$(BIN)/python benchmarks/compare.py $(or $(BASE),91fd182) $(ARGS)

fuzz: setup ## Send a control plane with 256 descriptors random requests and bytes: make fuzz [REQUESTS=100000 ARGS=--json]
	@$(BIN)/python benchmarks/fuzz.py --requests $(or $(REQUESTS),100000) $(ARGS)

sim: setup ## Run one simulated seed: make sim SEED=7 [SCENARIO=stop_start PLAN='role:site:nth:act;…']
	@cd tests && ../$(BIN)/python -m simulation --seed $(or $(SEED),0) --scenario $(or $(SCENARIO),wander) --plan '$(PLAN)'

sim-coverage: setup ## Show which faults the exhaustive pass injects at which call site, in how many states
	@cd tests && ../$(BIN)/python -m simulation.coverage

sim-hunt: setup ## Find out after how many random runs each planted bug is caught
	@cd tests && ../$(BIN)/python -m simulation.hunt

soak: setup ## Run many random simulated seeds: make soak [SEEDS=10000 FIRST=0]
	@cd tests && ../$(BIN)/python -m simulation.soak --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)

soak-ha: setup ## Try failovers of real processes on a real etcd many times, and long outages: make soak-ha [TRIALS=100]
	@LCM_HA_TRIALS=$(or $(TRIALS),100) $(BIN)/python -m pytest -q -rP --timeout=0 tests/integration/ha/test_failover.py | grep -E '^FIGURE|passed|failed'
	@LCM_HA_TRIALS=1 LCM_HA_LEASE_TTL=15 $(BIN)/python -m pytest -q -rP --timeout=0 tests/integration/ha/test_failover.py | grep -E '^FIGURE|passed|failed'
	@LCM_HA_OUTAGE_SECONDS=180 $(BIN)/python -m pytest -q -rP --timeout=0 tests/integration/ha/test_lost_engines.py | grep -E '^FIGURE|passed|failed'

soak-kill: setup ## Kill a control plane under load many times: make soak-kill [KILLS=1000 KILL_SEED=1]
	@LCM_KILLS=$(or $(KILLS),1000) LCM_KILL_SEED=$(or $(KILL_SEED),1) $(BIN)/python -m pytest -q -rP --timeout=0 tests/integration/test_kill_under_load.py | grep -E '^FIGURE|passed|failed'

soak-labs: setup ## Bring labs up and down in the simulation, each cut by a crash at a random call: make soak-labs [SESSIONS=1000]
	@cd tests && ../$(BIN)/python -m simulation.lab_crashes --sessions $(or $(SESSIONS),1000)

soak-class: setup ## Bring a class up and end it, and kill the lablet controller in both: make soak-class [SEATS=30]
	@LCM_CLASS_SEATS=$(or $(SEATS),30) $(BIN)/python -m pytest -q -rP --timeout=0 tests/integration/ha/test_class_story.py | grep -E '^FIGURE|passed|failed'

soak-clicks: setup browser ## Click every control of a worker many times in a slow browser: make soak-clicks [CLICKS=200 SLOWDOWN=20]
	@LCM_CLICKS=$(or $(CLICKS),200) LCM_SLOWDOWN=$(or $(SLOWDOWN),20) $(BIN)/python -m pytest -q tests/e2e/test_steady_panel.py -k every_click_counts

screenshots: setup browser ## Take a picture of each page of the dashboard on a simulated fleet: make screenshots [ARGS=--docs]
	@cd tests && ../$(BIN)/python -m e2e.screenshots $(ARGS)

dist: docs ## Build wheel and sdist, with the dashboard and the man pages in both
	@rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel

docs: setup ## Generate docs/reference, docs/man and ui/src/generated from the code
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python -m tools.generate_man
	$(BIN)/python -m tools.generate_ui
	$(BIN)/python -m tools.generate_client

lock: $(VENV)/uv ## Resolve the dependencies anew and pin them
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --all-extras --group unit --resolution lowest-direct --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements-lowest.lock
	echo virlutils | $(BIN)/uv pip compile - --python-version 3.11 --universal --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate -o requirements-virlutils.lock
	echo openapi-python-client | $(BIN)/uv pip compile - --python-version 3.11 --universal --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate -o requirements-openapi-python-client.lock

audit: $(VENV)/ready ## Look the locked packages up in advisory databases, where they can be reached
	@$(BIN)/python -m tools.audit $(CURDIR)/$(BIN)/uv

browser: ## Install Chromium for the end-to-end tests where that is possible
	@tools/install-browser

ferretdb: $(VENV)/ready ## Build FerretDB, on which the store is tested as on MongoDB, where that is possible
	@tools/install-ferretdb

prometheus: $(VENV)/ready ## Take Prometheus out of Debian's package, with which the alert rules are tested, where there is apt
	@tools/install-prometheus

helm: setup ## Build Helm, with which the chart is checked where it is present, and where there is Go
	GOBIN=$(CURDIR)/$(BIN) go install helm.sh/helm/v3/cmd/helm@v3.16.4

clean: ## Remove everything that was built or installed
	rm -rf $(VENV) ui/node_modules src/lcm/control_plane/static .mypy_cache .ruff_cache .pytest_cache .coverage

$(VENV)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "LCM needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@touch $@

$(VENV)/ready: $(VENV)/uv requirements.lock pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

# The first start of all would compile what it loads; here that is done beside the build of the dashboard.
$(VENV)/loaded: $(VENV)/ready
	$(BIN)/python -c 'import lcm.cli.up, lcm.simulator.main, lcm.simulator.aws.server'
	@touch $@

$(LOWEST)/ready: $(VENV)/ready requirements-lowest.lock
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --require-hashes -r requirements-lowest.lock
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --no-build-isolation -e .
	@touch $@

$(OLDER_CLIENT): $(VENV)/ready requirements-virl2-2.9.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps --target $@ -r requirements-virl2-2.9.lock
	@touch $@

$(VIRLUTILS): $(VENV)/ready requirements-virlutils.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps --target $@ -r requirements-virlutils.lock
	@touch $@

$(OPENAPI_CLIENT): $(VENV)/ready requirements-openapi-python-client.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps --target $@ -r requirements-openapi-python-client.lock
	@touch $@

$(UI_BUILT): $(VENV)/ready $(UI_SOURCES)
	cd ui && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --silent --no-audit --no-fund
	cd ui && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent build -- --logLevel warn
	@touch $@
