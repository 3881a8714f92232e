PYTHON ?= python3
SETUP := $(PYTHON) tools/setup.py

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-spark rivals lint lock docs-check site package clean

help: ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run a job on real data on local Spark, ending with a picture
	@$(SETUP) demo $(ARGS)

test: ## run the tests (ARGS="-k name" and the like go to pytest)
	@$(SETUP) test $(ARGS)

test-long: ## run the long tests: more examples, bigger streams
	@$(SETUP) test-long $(ARGS)

test-spark: ## run a few tests on another Spark: VERSION=4.2 [PYTHON=python3.12]
	@$(SETUP) test-spark $(VERSION) $(ARGS)

rivals: ## make the environments of the benchmarks' contestants
	@$(SETUP) rivals

lint: ## check style, format, types and import layers
	@$(SETUP) lint

lock: ## resolve pyproject.toml into requirements.lock, versions and hashes
	@$(SETUP) lock

docs-check: ## run the examples of README and docs, check their links
	@$(SETUP) docs-check

site: ## build the docs as a site in out/site, warnings as errors, links checked
	@$(SETUP) site

package: ## build wheel and sdist in dist, check them, list what they need
	@rm -rf dist
	@$(SETUP) package

clean: ## remove the environment and every cache of the checkout
	@rm -rf .venv .venv-spark-* .venv-rivals .venv-site .venv-package .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find src tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
