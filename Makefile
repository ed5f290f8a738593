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
INTEROP   := $(CURDIR)/.cache
MCP       := $(CURDIR)/.cache/mcp

.PHONY: help build demo demo-drill test unit crash lint bench fuzz fmt clean tools-c tools-softhsm tools-postgres test-interop tck test-mcp conformance

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

# PostgreSQL as a source is tested with a real server, which the test starts for itself.
tools-postgres:
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || { \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq postgresql; \
	  else echo 'PostgreSQL is needed to test the data plane: install postgresql' >&2; exit 1; fi; }

build: tools-c ## build bin/treaty (static), bin/treaty-dataplane and bin/treaty-signer
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/treaty ./cmd/treaty
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o $(BIN)/treaty-dataplane ./cmd/treaty-dataplane
	$(GO) build -ldflags '-X main.version=$(VERSION)' -o $(BIN)/treaty-signer ./cmd/treaty-signer

demo: build ## the main job, end to end, on this machine (KEEP=1 leaves it running)
	$(BIN)/treaty demo $(if $(KEEP),--keep)

demo-drill: build ## keys rotate in live drills while two companies work under load; the last line counts lost requests
	$(BIN)/treaty demo-drill

test: tools-c lint unit crash conformance test-mcp test-interop ## everything, race detector on

# The race detector watches our code, and not every memory access of the C program that SQLite is in Go: sevenfold in the store's tests.
RACE := -race -gcflags='modernc.org/sqlite/lib=-race=false' -gcflags='modernc.org/libc=-race=false'

# The longest first, so that the end does not wait for one of them alone. lint has vetted everything.
LONG := ./node ./node/negotiation ./cmd/treaty

unit: tools-softhsm tools-postgres
	$(GO) test -timeout 5m $(TEST_ARGS) ./metaproto # walks every state of a machine without a goroutine: nothing to race, and twenty times slower watched
	$(GO) test -p 3 -vet=off $(RACE) -timeout 20m $(TEST_ARGS) $(LONG) $$($(GO) list ./... | grep -vE '/treaty/(metaproto|node|node/negotiation|cmd/treaty)$$')

crash: ## SIGKILL each process at every commit point and check that both companies agree
	$(GO) test -tags treaty_crash -timeout 15m -parallel 4 -count=1 -run 'TestCrash|TestDemoDrill' -v ./cmd/treaty ./node

test-interop: ## with the official SDKs of ANP (Python) and A2A (JavaScript, Python), over TLS on loopback (ARGS=-update writes docs/interop.md)
	tools/interop/setup.sh $(INTEROP)
	$(GO) vet -tags interop ./tools/interop
	INTEROP_PYTHON=$(INTEROP)/interop-venv/bin/python INTEROP_NODE=$(INTEROP)/interop-js/node INTEROP_NODE_MODULES=$(INTEROP)/interop-js/node_modules \
	  $(GO) test -tags interop -timeout 5m -count=1 -v ./tools/interop $(if $(ARGS),-args $(ARGS))

conformance: ## the official MCP conformance suite against our HTTP stack (expected failures: tools/conformance)
	tools/conformance/setup.sh $(MCP)
	$(GO) run ./tools/conformance $(MCP)/node $(MCP)/node_modules/@modelcontextprotocol/conformance/dist/index.js \
	  server --url {url} --suite all --expected-failures tools/conformance/expected-failures.yml

test-mcp: tools-c ## the official MCP TypeScript SDK and Inspector use a contract through treaty proxy
	tools/conformance/setup.sh $(MCP)
	$(GO) vet -tags mcpclients ./cmd/treaty
	MCP_CLIENTS=$(MCP) $(GO) test -tags mcpclients -timeout 10m -count=1 -run 'TestStockMCPClients' -v ./cmd/treaty

tck: ## the official A2A TCK from the checkout TCK_DIR (ARGS=-update writes docs/tck.md)
	@test -n "$(TCK_DIR)" || { echo 'TCK_DIR=… names a checkout of a2aproject/a2a-tck, branch 1.0-dev' >&2; exit 1; }
	@cmp -s tools/tck/requirements.txt $(INTEROP)/tck-venv/made-from || { $(or $(PYTHON),python3) -m venv --clear $(INTEROP)/tck-venv && \
	  $(INTEROP)/tck-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input -r tools/tck/requirements.txt && \
	  cp tools/tck/requirements.txt $(INTEROP)/tck-venv/made-from; }
	TCK_DIR=$(abspath $(TCK_DIR)) TCK_PYTHON=$(INTEROP)/tck-venv/bin/python \
	  $(GO) test -tags tck -timeout 10m -count=1 -run TestTCK -v ./node/gateway/a2a $(if $(ARGS),-args $(ARGS))

lint: ## formatting, vet, staticcheck
	@test -z "$$(gofmt -l cmd did hpke metaproto node testvectors tools wellknown *.go | tee /dev/stderr)"
	$(GO) vet ./...
	$(GO) vet -tags tck ./node/gateway/a2a
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
