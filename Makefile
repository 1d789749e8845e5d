# One command for each task; `make help` lists them. Every target installs what it needs.

CARGO_BIN := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin
export PATH := $(CARGO_BIN):$(PATH)
SHELL := /bin/bash
FUZZ_SECONDS ?= 60
ARGS ?=
NAMES ?=

.PHONY: help demo test soak bench results lint docs deb fuzz setup clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## build, then record, play and load a file system at once; ARGS="--seconds 20" and the like
	@tools/setup demo
	cargo build --release --locked -p clockwise
	cargo run --quiet --release --locked -p clockwise -- demo $(ARGS)

test: ## everything that can be right or wrong, the slowest and the skipped; ARGS="media::cameras kill" for some
	@tools/setup test
	tools/test $(ARGS)

soak: ## full searches and long random runs, which take hours; writes docs/results/soak.md; ARGS=... for some
	@tools/setup test
	tools/test --soak $(ARGS)

bench: ## numbers: decisions, admission, NBD against its peers, latencies on emulated drives
	@tools/setup bench
	cargo bench --workspace --locked --benches

results: ## measure docs/results/ again; NAMES="nbd decision" for some of it
	@tools/setup bench
	tools/results $(NAMES)

lint: ## formatting, clippy, fuzz targets, rustdoc, shell scripts, where unsafe is, who may import whom
	@tools/setup lint
	tools/lint

docs: ## the API of every crate, in target/doc, and manual pages, in target/man
	@tools/setup build
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --locked --no-deps
	cargo run --quiet --locked -p clockwise -- man target/man

deb: ## a Debian package with the service, in target/debian
	@tools/setup deb
	cargo build --profile packaged --locked -p clockwise
	tools/deb target/packaged/clockwise target/debian

fuzz: ## clients' bytes, disks' bytes and drive profiles on new input, FUZZ_SECONDS=60 each
	@tools/setup fuzz
	tools/fuzz $(FUZZ_SECONDS)

setup: ## install what every other target needs
	@tools/setup test lint bench fuzz deb

clean: ## remove what was built
	cargo clean
	rm -rf fuzz/target
