# Everything a contributor runs. `make` alone lists the targets.
#
# Tests, benches and the binary share one build profile (release), so dependencies are compiled once.

CARGO ?= cargo
BENCH_NODES ?= 500 5000
BENCH_PODS ?= 5000
BENCH_ROUNDS ?= 2
BENCH_WINDOWS ?= 400
BENCH_SEEDS ?= 3
TRACES ?= ../shared/traces
N ?= 1000
SEED ?= 1
# Where bench-lstm keeps a Python with Keras, and which Python makes it and the one below.
PYTHON ?= python3
KERAS_VENV ?= $(or $(CARGO_TARGET_DIR),target)/venv-keras
# The other forecasters that bench-forecast runs beside ours.
PEERS_VENV ?= $(or $(CARGO_TARGET_DIR),target)/venv-peers

.DEFAULT_GOAL := help
.PHONY: help build test unit e2e parity lint fmt schema controlplane bench bench-e2e bench-parvagpu bench-pack bench-lstm bench-churn bench-fgd bench-forecast weights require-rust

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

require-rust:
	@command -v $(CARGO) >/dev/null || { echo "error: cargo is missing; install Rust 1.95 or newer" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: no C compiler (cc); install gcc or clang" >&2; exit 1; }

build: require-rust ## Build the binary, target/release/mig-scheduler
	@echo "==> building; the first time compiles all dependencies (about 8 minutes on two cores)"
	$(CARGO) build --release --locked

test: require-rust controlplane ## Run every test, end-to-end ones on a real control plane included
	@echo "==> compiling and running the tests; the first time compiles all dependencies (about 10 minutes on two cores)"
	$(CARGO) test --release --locked

unit: require-rust ## Run the tests that need no control plane
	$(CARGO) test --release --locked --lib --test it

e2e: require-rust controlplane ## Run the end-to-end tests alone
	$(CARGO) test --release --locked --test e2e

parity: require-rust controlplane ## Compare with kube-scheduler on random clusters: N=1000 SEED=1
	PARITY_N=$(N) PARITY_SEED=$(SEED) $(CARGO) test --release --locked --test e2e -- parity:: --nocapture

lint: require-rust ## Check format and lints
	$(CARGO) fmt --check
	$(CARGO) clippy --release --locked --all-targets -- -D warnings

fmt: ## Format the code
	$(CARGO) fmt

schema: require-rust ## Write scheduler-config/schema.json anew
	$(CARGO) run --release --locked --quiet -- config schema > scheduler-config/schema.json.new
	mv scheduler-config/schema.json.new scheduler-config/schema.json

weights: require-rust ## Train the network that the program brings along, on generated weeks
	$(CARGO) run --release --locked --quiet -- forecast train --weeks 6 --seed 101 --out weights

controlplane: ## Build the control plane that the end-to-end tests start (needs Go; about 11 minutes once)
	@tests/controlplane/build.sh

bench: require-rust ## Measure one decision at 1,000, 5,000 and 15,000 nodes
	$(CARGO) bench --locked --bench cycle

# stdout is for the JSON lines alone.
bench-e2e: require-rust ## Measure throughput beside kube-scheduler: BENCH_NODES="500 5000" BENCH_PODS=5000 BENCH_ROUNDS=2
	@tests/controlplane/build.sh >&2
	@$(CARGO) bench --locked --bench end_to_end -- --nodes $(BENCH_NODES) --pods $(BENCH_PODS) --rounds $(BENCH_ROUNDS)

bench-parvagpu: require-rust ## Size ParvaGPU's scenarios: TRACES=DIR is the folder that holds parvagpu/
	@$(CARGO) bench --locked --bench parvagpu -- --traces $(TRACES)

bench-pack: require-rust ## Measure packing of 100 to 100,000 GPUs: BENCH_GPUS="1000 10000" for some sizes only
	@$(CARGO) bench --locked --bench pack -- $(if $(BENCH_GPUS),--gpus $(BENCH_GPUS))

$(KERAS_VENV)/ready: benches/peers/keras-requirements.txt
	@echo "==> installing Keras into $(KERAS_VENV); about 1.5 GB, once" >&2
	@$(PYTHON) -m venv $(KERAS_VENV) >&2
	@$(KERAS_VENV)/bin/pip install --quiet --requirement $< >&2
	@touch $@

bench-lstm: require-rust $(KERAS_VENV)/ready ## Measure the LSTM beside Keras (needs Python 3.11 to 3.13 with venv)
	@RAYON_NUM_THREADS=2 $(CARGO) bench --locked --bench lstm -- --python $(abspath $(KERAS_VENV)/bin/python)

# Options go through CHURN, for example CHURN="--seeds 4 --loads 0.95".
bench-churn: require-rust ## Measure waits under churn against greedy rules and the limit (about 10 minutes)
	@$(CARGO) bench --locked --bench churn -- $(CHURN)

bench-fgd: require-rust ## Fill the openb cluster by known rules: TRACES=DIR is the folder that holds openb/
	@$(CARGO) bench --locked --bench fgd -- --traces $(TRACES)

$(PEERS_VENV)/ready: benches/peers/requirements.txt
	@echo "==> installing other forecasters into $(PEERS_VENV); about 1.5 GB, once" >&2
	@$(PYTHON) -m venv $(PEERS_VENV) >&2
	@$(PEERS_VENV)/bin/pip install --quiet --requirement $< >&2
	@touch $@

bench-forecast: require-rust $(PEERS_VENV)/ready ## Measure forecasts beside other forecasters (needs Python 3.11): BENCH_WINDOWS=400 BENCH_SEEDS=3 TRACES=DIR
	@$(CARGO) bench --locked --bench forecast -- --traces $(TRACES) --python $(abspath $(PEERS_VENV)/bin/python) --windows $(BENCH_WINDOWS) --seeds $(BENCH_SEEDS)
