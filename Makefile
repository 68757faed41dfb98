# Requires Go, git and make. `make deps` installs the other programs that the tests need.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# The tools, the benchmarks, the conformance tests, those of the Helm chart and the Terraform provider are separate modules,
# so that they add nothing to the product's dependencies.
TOOL := $(GO) tool -modfile=$(CURDIR)/tools/tools.mod
MODULES := . bench conformance conformance/dex deploy/helm terraform tools/release
# The go command in each module, in a workspace with the product where the module needs it.
GO_IN = GOWORK=$$(.ci/work $$module) $(GO) -C $$module
# One package more is tested at once than there are processors: the tests of servers wait for a part of their time.
PROCESSORS := $(shell getconf _NPROCESSORS_ONLN)
AT_ONCE := $(shell echo $$(($(PROCESSORS) + 1)))
FUZZTIME ?= 1000x
DURATION ?= 1h
# Everything is built without cgo, as what is released: the binaries are static. Only the race detector
# needs it.
export CGO_ENABLED := 0
# Without the paths of this machine, so that all targets share what they compile.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -trimpath)
# The race detector skips SQLite's C code, which modernc.org translated to Go. That code
# manages its own memory outside of Go's heap, where the detector sees nothing, and would run
# three times as slow. The driver and everything else are checked.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false
# It sleeps a second before each process ends, so that others can still report a race. Less does too. What it keeps about
# memory that is allocated anew is cleared in its old pages up to a megabyte, and not mapped anew from 64 KB on: each mapping
# interrupts all processors, and a goroutine whose stack grows needs several.
export GORACE := atexit_sleep_ms=50 clear_shadow_mmap_threshold=1048576
# Tests add a line to this file when they prove less than their name says, because something came late.
export KEYGATE_LATE_FILE := $(CURDIR)/bin/late

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/keygate.
	@mkdir -p bin
	$(GO) build -o bin/keygate ./cmd/keygate

.PHONY: image
image: ## Build the container image, and archives of it in dist. VERSION=v0.1.0 names another version than git.
	@VERSION="$(VERSION)" GO="$(GO)" deploy/image

.PHONY: release
release: ## Make a release in dist. VERSION=v1.2.3 names another version than git; if not for all systems, TARGETS=linux/amd64,linux/arm64.
	$(GO) build -C tools/release -o ../../bin/release .
	bin/release -version "$(VERSION)" -targets "$(TARGETS)"

.PHONY: run
run: build ## Run a demo: a server with a sample service, and commands to try.
	@exec bin/keygate demo

.PHONY: run-cluster
run-cluster: build ## Run three nodes that share PostgreSQL and Redis, for trying it out.
	@exec deploy/run-cluster bin/keygate

.PHONY: ui
ui: deps ## Build the dashboard (web) into internal/dashboard/dist.
	cd web && npm run --silent types && npm run --silent build

.PHONY: test
test: deps ## Run all tests, with the race detector.
	@mkdir -p bin && rm -f $(KEYGATE_LATE_FILE); trap .ci/late EXIT; $(MAKE) --no-print-directory test-go test-memory test-ui test-client

# Some packages of the product run without the race detector, one at a time beside the others. So do those of the Helm chart
# and of releases, whose dependencies would be compiled again for it. The target vet has the checks that go test would make
# of its own.
.PHONY: test-go
test-go: deps ## Run the tests in Go, with the race detector.
	@without=$$(.ci/without-race); with=$$($(GO) list ./... | grep -vxF "$$without"); status=0; \
	$(GO) test -vet=off -p 1 -timeout 30m $$without & beside=$$!; \
	CGO_ENABLED=1 $(GO) test $(RACE) -vet=off -p $(PROCESSORS) -timeout 30m $$with || status=$$?; \
	wait $$beside || status=$$?; exit $$status
	for module in bench conformance terraform; do CGO_ENABLED=1 $(GO_IN) test $(RACE) -vet=off -p $(AT_ONCE) -timeout 30m ./...; done
	for module in deploy/helm tools/release; do $(GO_IN) test -vet=off -p $(AT_ONCE) ./...; done

.PHONY: soak
soak: deps ## Run three nodes under load while stores and nodes fail, for DURATION (1h). Flags: ARGS="-seed 7".
	$(GO) test -count=1 -v -timeout 0 -run TestFaults ./e2e/cluster -duration $(DURATION) $(ARGS)

.PHONY: test-memory
test-memory: ## Run the tests that the race detector would disturb: they measure memory.
	$(GO) test -run 'Memory|Alloca|Hostile' ./internal/document ./internal/http2 ./internal/proxy/h1 ./internal/proxy/h2 ./internal/upstream

.PHONY: test-packages
test-packages: ## Try the deb, the rpm and the apk in containers with a new Debian (root; some minutes). ARGS=rpm for one.
	.ci/test-packages $(ARGS)

.PHONY: test-ui
test-ui: deps ## Run the tests of the dashboard, in a real browser. Flags: ARGS="keys.spec.ts".
	cd web && npm run --silent lint && npm run --silent check && npm run --silent test && npm run --silent e2e -- $(ARGS)

.PHONY: test-client
test-client: deps ## Run the tests of the TypeScript client, in Node.js and in a real browser.
	cd clients/typescript && npm run --silent lint && npm run --silent test

.PHONY: ui-current
ui-current: deps ## Fail if internal/dashboard/dist is not what web builds.
	@before=$$(.ci/tree-hash internal/dashboard/dist web/src/api/schema.gen.ts); $(MAKE) --no-print-directory ui; \
	after=$$(.ci/tree-hash internal/dashboard/dist web/src/api/schema.gen.ts); \
	if [ "$$before" != "$$after" ]; then git status --short internal/dashboard/dist web; echo "the built dashboard was out of date: commit what make ui wrote"; exit 1; fi

.PHONY: test-times
test-times: deps ## Run all tests, and print the time of each package.
	CGO_ENABLED=1 .ci/test-times $(RACE) ./...

.PHONY: check
check: deps fmt vet platforms lint generated ui-current lint-api tidy units fuzz-short test ## Run everything that CI runs.

.PHONY: bench
bench: ## Run the Go benchmarks.
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-peers
bench-peers: build ## Compare with nginx, HAProxy and Caddy (Debian). Flags: ARGS="-rounds 1".
	$(GO) build -C bench -o ../bin/bench-peers ./peers
	bin/bench-peers $(ARGS)

.PHONY: bench-keys
bench-keys: build ## Measure a million keys and large OpenAPI documents. Flags: ARGS="-rounds 1".
	$(GO) build -C bench -o ../bin/bench-keys ./keys
	bin/bench-keys $(ARGS)

.PHONY: bench-hooks
bench-hooks: build ## Measure the delivery of events while another endpoint hangs. Flags: ARGS="-rounds 1".
	$(GO) build -C bench -o ../bin/bench-hooks ./hooks
	bin/bench-hooks $(ARGS)

.PHONY: bench-cluster
bench-cluster: build ## Measure three nodes beside one alone, and revocations. Flags: ARGS="-rounds 1".
	$(GO) build -C bench -o ../bin/bench-cluster ./cluster
	bin/bench-cluster $(ARGS)

.PHONY: bench-tenancy
bench-tenancy: build ## Measure what one account can do to another. Flags: ARGS="-run pushes".
	$(GO) build -C bench -o ../bin/bench-tenancy ./tenancy
	bin/bench-tenancy $(ARGS)

.PHONY: bench-targets
bench-targets: build ## Measure upstreams with several targets: killed, refusing, flapping, slow ones. Flags: ARGS="-run kill".
	$(GO) build -C bench -o ../bin/bench-targets ./targets
	bin/bench-targets $(ARGS)

.PHONY: bench-accounting
bench-accounting: build ## Load a server and check its traffic report to the last request. Flags: ARGS="-duration 10s".
	$(GO) build -C bench -o ../bin/bench-accounting ./accounting
	bin/bench-accounting $(ARGS)

.PHONY: bench-dashboard
bench-dashboard: build ## Measure the dashboard in a browser, over a large installation. Flags: ARGS="-rounds 3 -stay 10m".
	$(GO) build -C bench -o ../bin/bench-dashboard ./dashboard
	bin/bench-dashboard $(ARGS)

.PHONY: fuzz-short
fuzz-short: ## Run every fuzz target for FUZZTIME (1000x means 1000 inputs).
	.ci/fuzz $(FUZZTIME)

.PHONY: fmt
fmt: ## Fail if a file is not formatted.
	@unformatted=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: chart
chart: ## Lint and render the Helm chart by Helm itself, which this builds for minutes at the first time.
	GOBIN=$(CURDIR)/bin $(GO) install helm.sh/helm/v3/cmd/helm@v3.22.0
	$(GO) -C deploy/helm test -count=1 -run Helm . -helm $(CURDIR)/bin/helm

.PHONY: tofu
tofu: ## Test the Terraform provider with OpenTofu itself, which this builds for a quarter of an hour at the first time.
	$(GO) build -modfile=$(CURDIR)/tools/tofu.mod -o bin/tofu github.com/opentofu/opentofu/cmd/tofu
	module=terraform; $(GO_IN) test -count=1 -run OpenTofu ./internal/provider -tofu $(CURDIR)/bin/tofu

.PHONY: vet
vet: ## Run go vet.
	for module in $(MODULES); do $(GO_IN) vet ./...; done

.PHONY: platforms
platforms: ## Check the types for the other systems: the product and its tests compile there.
	$(GO) run ./tools/platforms darwin freebsd windows

.PHONY: units
units: deps ## Check the systemd units.
	.ci/units

.PHONY: lint
lint: ## Run golangci-lint.
	for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint run ./...); done

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities of dependencies. Needs vuln.go.dev, or a copy: VULNDB=file:///path.
	@GO="$(GO)" .ci/vulnerabilities $(MODULES)

.PHONY: generate
generate: ## Regenerate api/openapi.yaml, the clients, the dashboard's list of settings, the schema of the Terraform provider and docs/errors.md.
	$(GO) run ./tools/openapi document > api/openapi.yaml.new
	mv api/openapi.yaml.new api/openapi.yaml
	$(GO) run ./tools/openapi client-document > client/openapi-3.0.yaml
	$(TOOL) oapi-codegen -config client/oapi-codegen.yaml client/openapi-3.0.yaml
	rm client/openapi-3.0.yaml
	$(GO) run ./tools/openapi comments < client/record.gen.go > client/record.gen.go.new
	mv client/record.gen.go.new client/record.gen.go
	$(GO) run ./tools/openapi client-patch > client/patch.gen.go.new
	mv client/patch.gen.go.new client/patch.gen.go
	$(GO) run ./tools/openapi form > web/src/api/settings.gen.ts
	$(GO) run ./tools/openapi typescript > clients/typescript/src/resources.gen.ts
	$(GO) run ./tools/openapi terraform > terraform/internal/provider/schema.gen.json.new
	mv terraform/internal/provider/schema.gen.json.new terraform/internal/provider/schema.gen.json
	$(GO) run ./tools/openapi errors > docs/errors.md

.PHONY: generated
generated: ## Fail if generated files are out of date.
	@before=$$(cat api/openapi.yaml client/*.gen.go web/src/api/settings.gen.ts clients/typescript/src/resources.gen.ts terraform/internal/provider/schema.gen.json docs/errors.md | sha256sum); \
	$(MAKE) --no-print-directory generate; \
	after=$$(cat api/openapi.yaml client/*.gen.go web/src/api/settings.gen.ts clients/typescript/src/resources.gen.ts terraform/internal/provider/schema.gen.json docs/errors.md | sha256sum); \
	if [ "$$before" != "$$after" ]; then echo "generated files were out of date: commit what make generate wrote"; exit 1; fi

.PHONY: lint-api
lint-api: deps ## Lint api/openapi.yaml.
	cd tools && REDOCLY_SUPPRESS_UPDATE_NOTICE=true npx --no-install redocly lint ../api/openapi.yaml

.PHONY: tidy
tidy: ## Fail if go.mod is not tidy.
	for module in $(MODULES); do $(GO) -C $$module mod tidy -diff; done

.PHONY: deps
deps: ## Install missing programs that the tests need (as root or with sudo).
	@.ci/deps

.PHONY: clean
clean: ## Remove build output.
	rm -rf bin dist tools/node_modules web/node_modules clients/typescript/node_modules clients/typescript/dist
