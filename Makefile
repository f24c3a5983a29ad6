# Commands for people; `make` lists them. scripts/setup installs what is missing, after saying so.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# With -j two recipes could install at the same time. cargo works in parallel by itself.
.NOTPARALLEL:
.PHONY: help build fleet fleet-test dist dist-check demo check test soak matrix seeds bench instructions docs book lint fmt-check clippy deny fuzz fuzz-coverage miri setup setup-demo setup-labs setup-check setup-test setup-lint setup-fleet

# Prefer rustup's cargo to an older one of the distribution, and tools that scripts/setup built for this checkout.
export PATH := $(CURDIR)/target/tools/bin:$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
# They would replace the flags of .cargo/config.toml, which link statically.
unexport RUSTFLAGS CARGO_ENCODED_RUSTFLAGS

# The folder for binaries that .cargo/config.toml leads to.
BINARY := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release/exitless
# Shown by `exitless --version`.
COMMIT = $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null)
REPORT := exitless-report
# The lab of `make demo`: intel-apicv or amd-avic.
LAB := intel-apicv
# The rounds of `make soak`, and its tests: lab, all, or a filter of nextest.
N := 20
WHAT := lab
export N WHAT
QUICK := not binary(lab) and not test(coverage) and not test(a_browser_shows_)

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: setup ## Build the release binary and the agent for guests of studies
	EXITLESS_COMMIT="$(COMMIT)" cargo build --release --locked --package exitless --package guest --bins
	@echo "The programs, which belong beside each other: $(BINARY) and $(notdir $(BINARY))-agent"

fleet: setup-fleet ## Build exitless-fleet, the program for many hosts (a workspace of its own)
	cd fleet && cargo build --release --locked
	@cd fleet && echo "The program: $$(realpath -m -- "$${CARGO_TARGET_DIR:-target}")/x86_64-unknown-linux-gnu/release/exitless-fleet"

fleet-test: setup-check setup-fleet ## Run the tests of exitless-fleet
	cd fleet && cargo nextest run --locked --no-fail-fast --success-output final

dist: setup ## Make the tarball, the packages and their checksums in target/dist (SIGN_KEY=...: signed by gpg)
	scripts/dist

dist-check: setup ## Check the packages, made of what `make test` builds, with the checkers that are installed
	scripts/dist-check

demo: setup-$(if $(filter intel-apicv,$(LAB)),demo,labs) ## Measure interrupt virtualization in an emulated host and write a report (LAB=amd-avic: AMD's)
	scripts/demo "$(REPORT)" "$(LAB)"

check: setup-check fmt-check clippy ## Check format, lints, and all tests that need no emulated host and no browser
	cargo nextest run --locked --cargo-profile checked --workspace -E "$(QUICK)"

test: setup-test ## Run all tests, including those in emulated hosts
	scripts/test

soak: setup-test ## Run the tests in emulated hosts N times on a busy machine, and count failures (WHAT=all: every test), resumable
	scripts/soak "$$N"

# Finished rows are kept, so that an interrupted matrix continues; remove the folder to start over.
matrix: setup-test ## Check exitless on every kernel of Debian's in labs, and write docs/matrix.md (an hour), resumable
	EXITLESS_MATRIX="$(CURDIR)/target/matrix" cargo test --locked --profile checked --package exitless --test lab -- \
	    --ignored --exact kernels::the_matrix_is_written --nocapture

seeds: setup-labs build ## Measure the published figures that exitless knows in labs (about three hours), resumable
	$(BINARY) experiment run seeds

bench: setup-labs ## Run the benchmarks, including the boot times of the emulated hosts
	EXITLESS_BENCH_LABS=1 cargo bench --workspace --locked --benches

instructions: setup ## Count the instructions of an I/O request, and compare them with the kept figures (KEEP=update: keep them)
	cargo bench --locked --profile checked --config crates/iocm/benches/instructions/profile.toml --workspace \
	    --bench instructions -- $(KEEP)

docs: setup ## Build the crates' documentation; a warning is an error
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --profile checked

book: ## Build the book in docs/ (mdBook is needed: cargo install mdbook)
	@command -v mdbook >/dev/null || { echo "mdbook is not installed; install it with: cargo install mdbook --locked" >&2; exit 1; }
	mdbook build
	@echo "Open it with a browser: $(CURDIR)/book/index.html"

lint: fmt-check clippy deny ## Check format, lints and dependencies

fmt-check: setup-check
	cargo fmt --all --check
	cd fleet && cargo fmt --check

# In the tests' profile, to share procedural macros and build scripts with them.
clippy: setup-check
	cargo clippy --workspace --all-targets --locked --profile checked -- -D warnings

deny: setup-lint
	scripts/deny

# The seconds for each fuzz target, and the targets; all by default.
TIME := 60
TARGETS :=

fuzz: setup ## Run each fuzz target for TIME seconds (TARGETS="names btf": these alone; cargo-fuzz is needed)
	TIME=$(TIME) scripts/fuzz $(TARGETS)

fuzz-coverage: setup ## Show which lines each fuzz target reaches of what it is for (TARGETS="names btf": these alone)
	scripts/fuzz-coverage $(TARGETS)

miri: setup ## Run the tests that Miri can run (a nightly compiler with miri is needed)
	scripts/miri

setup: ## Install what building needs
	@scripts/setup

setup-demo:
	@scripts/setup demo

setup-labs:
	@scripts/setup labs

setup-check:
	@scripts/setup check

setup-test:
	@scripts/setup test

setup-lint:
	@scripts/setup lint

setup-fleet:
	@scripts/setup fleet
