# Every way to use this project from a clone. CI calls only these targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv
PY := $(VENV)/bin/python
REQUIREMENTS := docker/requirements
SETUP_STAMP := $(VENV)/.setup
# Scripts contain the clone's path: set up again after the clone was moved.
MOVED := $(if $(wildcard $(VENV)/bin/plates),$(shell head -3 $(VENV)/bin/plates | grep -qF '$(CURDIR)/$(VENV)/bin/python' || echo FORCE))
# Photos for `make demo`: files or folders; by default the sample scenes.
PHOTOS ?=
PYTEST_ARGS ?=
SOAK_ARGS ?=
BULK_ARGS ?=
# The files with live tests: collecting all others, too, takes as long as many of the tests.
LIVE = $(notdir $(shell grep -rl --include=*.py 'mark\.live' tests))
# Files in the order of their names: by default those with few tests, which take longest, come last,
# and one process waits for the other.
SHARED := -n 2 --dist loadfile --no-loadscope-reorder
# As in the `plates` command: OpenMP's waiting threads would spin, and starve the servers that tests
# start beside them.
export GOMP_SPINCOUNT ?= 0

.PHONY: FORCE help setup export serve demo test test-fast test-live soak fuzz bulk-test docker-check docker-resolve lint format typecheck check fonts lock requirements kubernetes-render clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | awk -F ':.*  ## ' '{printf "  make %-17s %s\n", $$1, $$2}'

setup: $(SETUP_STAMP)  ## Set up .venv (skipped if nothing has changed)
	@:

# Touched last, so that a failed set-up is repeated.
$(SETUP_STAMP): pyproject.toml $(REQUIREMENTS)/dev.txt $(REQUIREMENTS)/torch.txt Makefile docker/setup.sh $(MOVED)
	@VENV=$(VENV) REQUIREMENTS=$(REQUIREMENTS) docker/setup.sh
	@touch $@

export: $(SETUP_STAMP)  ## Export weights/ into model_repository/ (skipped if nothing has changed)
	@$(VENV)/bin/plates export

serve: export  ## Serve on http://127.0.0.1:8080 in the foreground (PLATES_HOST, PLATES_PORT, PLATES_TRITON_URL)
	@exec $(VENV)/bin/plates serve

demo: export  ## Start the service, read photos, stop it: PHOTOS="a.jpg b.jpg" or a folder (default: the samples)
	@$(VENV)/bin/plates demo $(PHOTOS)

test: export  ## Run all tests, including the live ones
	@# Status 5 means that no test was collected: PYTEST_ARGS may select tests of one part only.
	@$(PY) -m pytest -m "not live" $(SHARED) $(PYTEST_ARGS) || [ $$? -eq 5 ]
	@$(PY) -m pytest -m live $(SHARED) -o python_files="$(LIVE)" $(PYTEST_ARGS) || [ $$? -eq 5 ]

test-fast: $(SETUP_STAMP)  ## Run only the tests that need no server
	@$(PY) -m pytest -m "not live" $(PYTEST_ARGS)

test-live: $(SETUP_STAMP)  ## Run the live tests against a running server: PLATES_URL=... [PLATES_TRITON_URL=... PLATES_TRITON_HTTP_URL=...]
	@test -n "$(PLATES_URL)$(PLATES_TRITON_URL)" || { echo "make test-live needs PLATES_URL=http://host:port (and, for the Triton behind it, PLATES_TRITON_URL=host:port of gRPC and PLATES_TRITON_HTTP_URL=host:port)"; exit 2; }
	@PLATES_URL="$(PLATES_URL)" PLATES_TRITON_URL="$(PLATES_TRITON_URL)" PLATES_TRITON_HTTP_URL="$(PLATES_TRITON_HTTP_URL)" $(PY) -m pytest -m live $(PYTEST_ARGS)

soak: export  ## Load the service with mixed traffic for 20 minutes and check its memory: SOAK_ARGS="--minutes 5"
	@$(VENV)/bin/plates bench soak $(SOAK_ARGS)

bulk-test: export  ## Read an archive of 20,000 photos under kill -9 and verify it: PHOTOS=20000
	@$(VENV)/bin/plates bench bulk --photos $(or $(PHOTOS),20000) --json tests/reports/bulk.json $(BULK_ARGS)

fuzz: export  ## Send hostile requests to a service: FUZZ_REQUESTS=10000 FUZZ_SEED=1 [PLATES_URL=... of a running one]
	@FUZZ_REQUESTS=$(or $(FUZZ_REQUESTS),10000) FUZZ_SEED=$(or $(FUZZ_SEED),1) FUZZ_URL=$(PLATES_URL) PLATES_URL= \
		$(PY) -m pytest -qs tests/fuzzing

docker-check: export  ## Build the images' environments and start their entry points (3 minutes)
	@PLATES_DOCKER_CHECK=1 $(PY) -m pytest tests/docker $(PYTEST_ARGS)

docker-resolve: $(SETUP_STAMP)  ## Write the output of `docker compose config` for the tests (needs docker compose)
	@$(PY) tests/docker/compose_files.py

lint: $(SETUP_STAMP)  ## Check rules and format with ruff
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

format: $(SETUP_STAMP)  ## Fix and format the code with ruff
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

typecheck: $(SETUP_STAMP)  ## Check types with mypy --strict
	@$(VENV)/bin/mypy

check: lint typecheck test  ## Run all that CI runs

fonts:  ## Fetch the typefaces of training's rendered plates into .cache/fonts (needs npm)
	@mkdir -p .cache/fonts
	@cp plate_models/training/synthetic/typefaces.json .cache/fonts/package.json
	@npm install --prefix .cache/fonts --ignore-scripts --no-audit --no-fund

lock:  ## Resolve poetry.lock again and export it (needs poetry)
	poetry lock
	$(MAKE) requirements

requirements:  ## Export docker/requirements/*.txt from poetry.lock
	@python3 docker/requirements.py

kubernetes-render:  ## Render docker/kubernetes/ again (needs kubectl)
	@cd docker/kubernetes && for overlay in cpu gpu gpu-full; do \
		kubectl kustomize overlays/$$overlay --output rendered/$$overlay.yaml || exit 1; done
	@# By these hashes tests without kubectl notice edits that were not rendered.
	@cd docker/kubernetes && find base components overlays -type f | LC_ALL=C sort | xargs sha256sum > rendered/SHA256SUMS

clean:  ## Remove the virtual environment, exported artifacts and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
	rm -f model_repository/*/1/model.{pt,onnx} model_repository/plate_recognition/1/exported.json
