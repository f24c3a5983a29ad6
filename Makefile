# Commands for people. `make` lists them. What is missing is installed by scripts/setup, which says so first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build demo test bench docs lint fmt-check clippy deny fuzz setup setup-test setup-lint

# rustup's cargo before an older one of the distribution; tools that scripts/setup built for this checkout.
export PATH := $(CURDIR)/target/tools/bin:$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Where .cargo/config.toml makes cargo put the binary.
BINARY := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release/exitless
REPORT := exitless-report

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: setup ## Build the release binary
	cargo build --release --locked --package exitless
	@echo "The binary: $(BINARY)"

demo: build ## Measure interrupt virtualization in an emulated Intel host and write a report
	$(BINARY) prove --lab intel-apicv --output $(REPORT)
	@echo "Open it with a browser: $(CURDIR)/$(REPORT)/report.html"

test: setup-test ## Run all tests, those in emulated hosts included
	scripts/test

bench: setup ## Run the benchmarks; how long the emulated hosts take to boot is one of them
	EXITLESS_BENCH_LABS=1 cargo bench --workspace --locked --benches

docs: setup ## Build the crates' documentation; a warning is an error
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --profile checked

lint: fmt-check clippy deny ## Check format, lints and dependencies

fmt-check: setup-lint
	cargo fmt --all --check

# In the profile of the tests, whose procedural macros and build scripts serve here too.
clippy: setup-lint
	cargo clippy --workspace --all-targets --all-features --locked --profile checked -- -D warnings

deny: setup-lint
	scripts/deny

# A stable compiler will do with RUSTC_BOOTSTRAP; fuzz/README.md says more.
fuzz: setup ## Run each fuzz target for a minute (cargo-fuzz is needed)
	@command -v cargo-fuzz >/dev/null || \
		{ echo "Needs cargo-fuzz: cargo install --locked cargo-fuzz --target x86_64-unknown-linux-gnu"; exit 1; }
	@export RUSTC_BOOTSTRAP=1; \
	for target in $$(cargo fuzz list --fuzz-dir fuzz); do \
		echo "== $$target"; \
		mkdir -p "fuzz/corpus/$$target"; \
		dictionary="fuzz/dictionaries/$$target.dict"; \
		options=(-max_total_time=60); \
		[[ ! -e $$dictionary ]] || options+=("-dict=$$dictionary"); \
		cargo fuzz run --fuzz-dir fuzz "$$target" "fuzz/corpus/$$target" "fuzz/seeds/$$target" -- "$${options[@]}"; \
	done

setup: ## Install what building needs
	@scripts/setup

setup-test:
	@scripts/setup test

setup-lint:
	@scripts/setup lint
