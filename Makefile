# Every target makes the environment that it needs; nothing has to be installed first but Python 3.11 or newer.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The interpreter of an environment; builds it when it is missing or its requirements have changed.
env = $$(python3 deploy/environment.py $(1))
export HF_HUB_OFFLINE := 1

PYTEST = -m pytest
NOT_FAST = integration or assistant or slow

.PHONY: help demo test test-all check lint types fast generate checkgenerate go floors fuzz-control bench bench-control bench-engine profile run clean soak

INTERLEAVINGS ?= 100000
SEED ?= 1

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

demo: ## answer a typed and a spoken question with real weights, and write demo.wav
	@base=$(call env,base); OMNIFLOW_ENVIRONMENTS_ASSISTANT=$(call env,assistant) $$base -m omniflow_server demo --out demo.wav

run: ## start the assistant and stay in front of it (stop with Ctrl-C)
	@base=$(call env,base); OMNIFLOW_ENVIRONMENTS_ASSISTANT=$(call env,assistant) $$base -m omniflow_server up assistant

check: lint checkgenerate types fast ## lint, types, import rules, contract and generated code, fast tests; under a minute

lint:
	@base=$(call env,base); $$base -m ruff format --check . && $$base -m ruff check . && \
	$$(dirname $$base)/lint-imports

types:
	@base=$(call env,base); $$base -m mypy server/omniflow_core server/omniflow_server clients/python/omniflow \
	  roles/omniflow_roles proto/generate.py deploy/environment.py

fast:
	@base=$(call env,base); HYPOTHESIS_PROFILE=quick $$base $(PYTEST) -n 2 --dist worksteal -m "not ($(NOT_FAST))" \
	  --ignore tests/properties/test_planted_bugs.py  # `make test` has it, with all properties

generate: ## rewrite the generated code from proto/
	@base=$(call env,base); $$base proto/generate.py

checkgenerate: ## generated code is current; contracts lint and do not break the baseline
	@base=$(call env,base); $$base proto/generate.py --check && $$base proto/generate.py --lint

go:
	@base=$(call env,base); export PATH="$$PATH:$$(dirname $$base)"; cd clients/go && go vet ./... && go test ./...

test: check go ## everything but the slow rest: real processes, Go, fixtures
	@base=$(call env,base); $$base $(PYTEST) tests/properties -n 2 --dist worksteal -m "not slow" && \
	  $$base $(PYTEST) -m "integration and not assistant and not slow"

test-all: floors ## the slow rest: models, speech, clusters that are disturbed, long runs, oldest dependencies
	@base=$(call env,base); $$base $(PYTEST) -m "slow and not assistant" --timeout 600; \
	  HYPOTHESIS_PROFILE=long $$base $(PYTEST) tests/roles/engines/scheduling/test_scheduler_properties.py --timeout 900; \
	  $$base -m tests.properties.fuzz_control --interleavings 20000 --seed $(SEED)
	@base=$(call env,base); assistant=$(call env,assistant); \
	  OMNIFLOW_ENVIRONMENTS_ASSISTANT=$$assistant $$base $(PYTEST) -m "assistant" tests/e2e --timeout 600; \
	  $$assistant $(PYTEST) -m "assistant" tests/roles --timeout 600

soak: ## kill and stop every process of a cluster 50 times each, under load; about 20 minutes
	@base=$(call env,base); CHAOS_ROUNDS=$${CHAOS_ROUNDS:-50} $$base $(PYTEST) tests/chaos/test_kills.py -m slow -s

fuzz-control: ## the control core against its second implementation; INTERLEAVINGS=100000 SEED=1
	@base=$(call env,base); $$base -m tests.properties.fuzz_control --interleavings $(INTERLEAVINGS) --seed $(SEED)

floors:
	@floors=$(call env,floors); $$floors $(PYTEST) tests/vectors tests/clients tests/core --ignore tests/properties -m "not ($(NOT_FAST))"

bench: ## figures side by side in one run; see tests/bench/README.md
	@base=$(call env,base); OMNIFLOW_ENVIRONMENTS_ASSISTANT=$(call env,assistant) $$base -m tests.bench all

bench-control: ## hops beside LangGraph, SGLang-Omni, M* and vLLM-Omni, which it installs (11 GB); see tests/bench/README.md
	@base=$(call env,base); $$base -m tests.bench control --peers

profile: ## where the control plane's and a role's CPU time goes: build/profile/{fan5,tokens}.txt
	@base=$(call env,base); $$base -m tests.bench.profiling

bench-engine: ## the torch engine beside generate(), llama.cpp and the speed of memory; see tests/bench/README.md
	@assistant=$(call env,assistant); OMP_NUM_THREADS=1 $$assistant -m tests.bench decoding

clean: ## remove what targets have made
	rm -rf .envs third_party build dist .mypy_cache .ruff_cache .pytest_cache tests/bench/results demo.wav
