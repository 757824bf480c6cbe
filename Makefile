# Lattice: what a developer does every day. `make help` lists it.

SHELL       := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Flags of the service for `make run`: make run ARGS="--store memory"
ARGS ?=
# Seeds per randomised test under `make soak`, and how long one package may take.
SEEDS        ?= 200
SOAK_TIMEOUT ?= 6h
# The longest that one package may take under `make test`.
TEST_TIMEOUT ?= 20m

# Unit tests live beside the code. Under tests/ are those that need real parts;
# of them only the rules of the house are quick enough for `make test-fast`.
UNIT = $$(go list ./... | grep -v '/tests/') ./tests/architecture

.PHONY: help run test test-fast bench lint soak build package fmt setup clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' Makefile

run: ## start the service on 127.0.0.1:8080 with its data in ./lattice-data
	@echo 'building; the first time takes a while'
	@go build -o bin/local ./cmd/local
	@exec bin/local $(ARGS)

test: setup ## every test, with the race detector, against real storage
	go test -race -timeout $(TEST_TIMEOUT) ./...

test-fast: ## the unit tests, in under a minute
	go test -short -timeout 60s $(UNIT)

bench: setup ## the benchmarks, as a table
	./scripts/bench.sh

lint: ## formatting, go vet, staticcheck, the rules of the house
	./scripts/gofmt-check.sh
	go vet ./...
	go tool staticcheck ./...
	go test ./tests/architecture

soak: setup ## the randomised tests with many seeds (SEEDS=200)
	LATTICE_SOAK=1 LATTICE_SEEDS=$(SEEDS) go test -race -count=1 -timeout $(SOAK_TIMEOUT) ./...

build: ## static binaries of every program into ./bin
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/... ./functions/azurefunc ./functions/awslambda

package: ## what the cloud hosts deploy, into ./dist
	./scripts/package.sh

fmt: ## format the code
	gofmt -w $$(./scripts/go-files.sh)

setup: ## install what the tests need, once
	@./scripts/setup.sh

clean: ## remove what was built; data and tools stay
	rm -rf bin dist coverage
