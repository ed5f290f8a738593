# Treaty. `make demo` shows the main job, `make test` runs everything.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

GO        ?= go
BIN       := $(CURDIR)/bin
VERSION   := $(shell git describe --always --dirty 2>/dev/null || echo unknown)
LDFLAGS   := -X github.com/treaty-node/treaty/node.Version=$(VERSION)
KEEP      ?=
FUZZTIME  ?= 30s
TEST_ARGS ?=
INTEROP   := $(CURDIR)/.cache/interop-venv

.PHONY: help build demo test unit crash lint bench fuzz fmt clean tools-c tools-softhsm test-interop

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The data plane links DuckDB and the signer a PKCS#11 library, which needs a C compiler; nothing else does.
tools-c:
	@command -v cc >/dev/null || command -v gcc >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq gcc g++ libc6-dev; \
	  else echo 'a C compiler is needed for the data plane (DuckDB): install gcc or clang' >&2; exit 1; fi; }

# The signer is tested with a real token.
tools-softhsm:
	@command -v softhsm2-util >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq softhsm2; \
	  else echo 'SoftHSM is needed to test treaty-signer: install softhsm2 (Debian, Ubuntu) or softhsm (Fedora, Homebrew)' >&2; exit 1; fi; }

build: tools-c ## build bin/treaty (static), bin/treaty-dataplane and bin/treaty-signer
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/treaty ./cmd/treaty
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o $(BIN)/treaty-dataplane ./cmd/treaty-dataplane
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o $(BIN)/treaty-signer ./cmd/treaty-signer

demo: build ## the main job, end to end, on this machine (KEEP=1 leaves it running)
	$(BIN)/treaty demo $(if $(KEEP),--keep)

test: tools-c lint unit crash test-interop ## everything, race detector on

unit: tools-softhsm
	$(GO) test -race -timeout 20m $(TEST_ARGS) ./...

crash: ## SIGKILL each process at every commit point and check that both companies agree
	$(GO) test -tags treaty_crash -timeout 15m -parallel 4 -count=1 -run 'TestCrash' -v ./cmd/treaty ./node

test-interop: ## against the official ANP Python SDK, both ways, over TLS on loopback (ARGS=-update writes docs/interop.md)
	tools/interop/setup.sh $(INTEROP)
	$(GO) vet -tags interop ./tools/interop
	INTEROP_PYTHON=$(INTEROP)/bin/python $(GO) test -tags interop -timeout 5m -count=1 -v ./tools/interop $(if $(ARGS),-args $(ARGS))

lint: ## formatting, vet, staticcheck
	@test -z "$$(gofmt -l cmd did hpke metaproto node testvectors tools wellknown *.go | tee /dev/stderr)"
	$(GO) vet ./...
	$(GO) tool -modfile=tools/lint/go.mod staticcheck ./...

bench: ## our cost beside the floor, in one run
	$(GO) run ./tools/bench

fuzz: ## every fuzz target, FUZZTIME each
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p; done; done

fmt: ## gofmt everything
	gofmt -w cmd did hpke metaproto node testvectors tools wellknown *.go

clean: ## remove what was built
	rm -rf $(BIN)
