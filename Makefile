# What developers and CI run. `make` alone lists the targets. Extra arguments: make test ARGS="-k wheel"

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
WORKFLOWS = $(sort $(wildcard .github/workflows/*.yml .github/workflows/*.yaml))

# A stamp per kind of set-up. They lie in the environment, so that removing it removes them; one whose
# Python is gone (an upgraded machine) is made anew.
INSTALLED := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
ifneq ($(shell [ -x $(BIN)/python ] && echo there),there)
.PHONY: $(INSTALLED)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help smoke test fast lint workflows types wheel clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

$(INSTALLED): pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "edgeproof needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1 || true)." >&2; \
	  echo "Name a newer one: make $(or $(MAKECMDGOALS),smoke) PYTHON=python3.12" >&2; exit 1; }
	"$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# The pip that comes with Python 3.11 does not know dependency groups; the uv that edgeproof needs does.
$(DEV): $(INSTALLED) pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python --group dev
	@touch $@

smoke: $(INSTALLED) ## Prove a small model on every backend
	$(BIN)/edgeproof smoke $(ARGS)

test: $(DEV) ## Run every test (the subjects take several GB on first use)
	$(BIN)/python -m pytest $(ARGS)

fast: $(DEV) ## Run the tests that need no subject
	$(BIN)/python -m pytest -m "not subject" $(ARGS)

lint: $(DEV) ## Check style, workflows and shell scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory workflows

# Without shellcheck actionlint leaves the scripts unread, and says nothing: neither may be missing.
workflows: $(DEV) ## Check the workflows and shell scripts alone
	@for tool in actionlint shellcheck; do \
	  $(BIN)/$$tool --version >/dev/null || { \
	    echo "$$tool is missing or does not run here, so the workflows were NOT linted." >&2; \
	    echo "Install it: make clean && make lint" >&2; exit 1; }; done
	@test -n "$(strip $(WORKFLOWS))" || { echo "there are no workflows to lint" >&2; exit 1; }
	$(BIN)/actionlint -shellcheck $(BIN)/shellcheck -pyflakes= $(WORKFLOWS)
	$(BIN)/shellcheck .ci/run

types: $(DEV) ## Check the types
	$(BIN)/mypy

wheel: $(INSTALLED) ## Build edgeproof's own wheel and sdist into dist/
	$(BIN)/uv build --quiet --clear --out-dir dist

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
