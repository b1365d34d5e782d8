# Lockstep. `make help` lists the targets. Needs Go, make and a C compiler (race).

GO ?= go
BENCHSTAT ?= $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
SBOM ?= $(GO) run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
STATICCHECK ?= $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
DATA ?= data
BASE_PORT ?= 4150
NODES ?= 3
FUZZTIME ?= 30s
SEEDS ?= 50000
SEQUENCES ?= 200000
SEED ?= 1
WORLDS ?= 1000
CHANGES ?= 1000
STATES ?= 4000000
ROUNDS ?= 50
ROUND_SECONDS ?= 120
MESSAGES ?= 1000000
BENCHTIME ?= 1s
COUNT ?= 6
BASE ?= .ci/microbench.txt
OUT ?= .
BEFORE ?= 4b75fd6
TIMES ?= 5
ARCH ?= $(shell $(GO) env GOARCH)
DIST ?= dist

PACKAGES = ./...
# The folders whose tests run real processes and judge wall-clock time; no test of the gate is in them.
OUTSIDE = internal/test/verify/e2e internal/test/verify/chaos internal/test/verify/attack internal/test/testkit/e2etest client/e2e bench
BENCHED = $(sort $(dir $(shell grep -rl --include='*_test.go' '^func Benchmark' ./commitlog ./coordinator ./internal ./nsqd ./rpc)))
STORAGE = ./internal/vfs ./nsqd/journal ./nsqd/store ./commitlog ./nsqd/queue ./internal/test/verify/powercut

.DEFAULT_GOAL := help
.PHONY: help build ui run test cost check promises e2e race chaos soak mutants mutation test-packages test-all theme fmt-check vet staticcheck lint test-short tools reference docs completions client-compare bench bench-compare bench-nsqd bench-nats bench-floor bench-check flame sweeps microbench microbench-base scale sim world model storage-faults fuzz figures conformance release deb container-root container supply-chain vulnerabilities outdated sbom migrate walk clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/nsqd and bin/nsqctl (VERSION=1.2.3 names a release)
	$(GO) build -buildvcs=auto $(if $(VERSION),-ldflags '-X $(shell $(GO) list -m)/internal/api.product=$(VERSION)') -o bin/ ./cmd/nsqd ./cmd/nsqctl

ui: ## the console's files, internal/frontend/webui/dist, from its TypeScript sources; needs npm
	npm --prefix internal/frontend/webui/src ci
	npm --prefix internal/frontend/webui/src run --silent check
	npm --prefix internal/frontend/webui/src run --silent build

run: build ## three brokers on this machine until Ctrl-C (NODES, BASE_PORT, DATA)
	bin/nsqctl dev --nodes $(NODES) --base-port $(BASE_PORT) --data-dir $(DATA)

check: fmt-check vet staticcheck lint test-short ## before every commit: a minute and a half

fmt-check:
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then echo "gofmt wanted:"; echo "$$bad"; exit 1; fi

vet:
	$(GO) vet $(PACKAGES)
	$(GO) vet -C client ./...
	$(GO) vet -C client/e2e ./...
	$(GO) vet -C docs/site ./...

staticcheck:
	$(STATICCHECK) $(PACKAGES)
	cd client && $(STATICCHECK) ./...
	cd client/e2e && $(STATICCHECK) ./...

# The documents that a test of each package compares with the code.
reference: ## write the generated documents again: docs/reference, docs/metrics.md, packaging/nsqd.toml
	$(GO) test -count=1 ./internal/config -run 'Template|Reference' -rewrite
	$(GO) test -count=1 ./internal/option -run ConsoleFields -rewrite
	$(GO) test -count=1 ./cmd/nsqctl -run Reference -rewrite
	$(GO) test -count=1 ./internal/frontend/httpapi -run OpenAPI -rewrite
	$(GO) test -count=1 ./internal/frontend/tcp -run 'Reference|TestErrors' -rewrite
	$(GO) test -count=1 ./internal/observe/metrics -run 'TestDocument|TestPanels' -rewrite
	$(GO) test -count=1 ./internal/observe/health -run TestAlerts -rewrite
	$(GO) test -count=1 ./internal/auth/guard -run TestTables -rewrite

docs: ## a static site of all documents in DIST/site, with every link checked
	rm -rf $(DIST)/site
	cd docs/site && $(GO) run . $(CURDIR) $(abspath $(DIST))/site

completions: build ## manual pages and completions of bash, zsh and fish in DIST/man and DIST/completions
	mkdir -p $(DIST)/completions
	bin/nsqctl man $(DIST)/man
	bin/nsqctl completion bash >$(DIST)/completions/nsqctl
	bin/nsqctl completion zsh >$(DIST)/completions/_nsqctl
	bin/nsqctl completion fish >$(DIST)/completions/nsqctl.fish

lint: # layers, package comments, forbidden constructs
	$(GO) test -count=1 ./internal/lint

# Most of these tests wait for brokers in their process, so one package more than there
# are processors runs at a time.
test-short:
	$(GO) test -short -skip '^TestPromise' -p $$(($(PROCESSORS) + 1)) -parallel 4 -timeout 170s $(GATE)
	$(GO) test -C client -short -skip '^TestPromise' -timeout 170s ./...

# The gate. Each test binary has a network and a file system of its own (.ci/isolated); vet has its place in make check,
# and without debug information (-w) the linker is faster. The longest begin first. The results never come from the
# cache, which does not include the brokers of bin/.
PROCESSORS = $$(getconf _NPROCESSORS_ONLN)
GATE = $$($(GO) list $(PACKAGES) | grep -vE '/lockstep/($(subst $() ,|,$(OUTSIDE)))(/|$$)')
LONGEST = $(addprefix ./,internal/test/verify/console internal/test/verify/smoke cmd/nsqd coordinator/metadata/etcd coordinator internal/test/verify/sim internal/test/verify/model)
GATE_FLAGS = -exec $(CURDIR)/.ci/isolated -vet=off -ldflags=-w -count=1 -skip '^TestPromise' -timeout 30m -parallel 4
# Acknowledgements, duplicates, histories, elections, rollbacks, truncation: one rule of each; make mutants has them all.
GATE_MUTANTS = ack-verified dedupe-whole divergence elect-head-start rollback-whole truncate-committed
test: fmt-check build tools ## the gate: everything deterministic, a smoke of real processes, the console in its browser
	LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test $(GATE_FLAGS) -p $$(($(PROCESSORS) + 1)) $(LONGEST) $(GATE)
	$(GO) test -C client $(GATE_FLAGS) ./...
	$(GO) test -C docs/site $(GATE_FLAGS) ./...
	$(GO) run ./internal/test/verify/mutants/cmd/mutants run -witness script $(GATE_MUTANTS)
	.ci/cost

cost: build ## processor time, allocations and memory of a broker, in turns with the commit in .ci/cost-base; the last step of the gate
	.ci/cost

# Real processes whose wall-clock times are judged: one test at a time, with the brokers of bin/.
PROCESSES = LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -count=1 -p 1 -timeout 60m
E2E = $(patsubst %/,./%,$(sort $(dir $(wildcard internal/test/verify/e2e/*/*_test.go))))
MEASURED = $(addprefix ./internal/test/verify/e2e/,kills loss metadata partitions speed stops)
promises: build tools ## wall-clock promises, slack 1: on an idle machine, after a change of timing and before a release
	LOCKSTEP_SLACK=1 $(PROCESSES) -parallel 1 -run '^TestPromise' $(GATE)
	LOCKSTEP_SLACK=1 $(PROCESSES) -parallel 1 $(MEASURED)

e2e: build tools ## each theme with real processes: after a change that brokers show to others, and before a release
	$(PROCESSES) -parallel 2 $(filter-out $(MEASURED),$(E2E))
	$(PROCESSES) ./internal/test/verify/chaos/... ./internal/test/verify/attack
	LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -C client/e2e -count=1 -timeout 10m ./...

theme: build ## the tests of one theme of internal/test/verify/e2e (THEME=mirror; TESTFLAGS)
	$(PROCESSES) -v ./internal/test/verify/e2e/$(THEME) $(TESTFLAGS)

# On two processors there is one core loop: GOMAXPROCS=8 makes several. In the last line the brokers
# have the detector, and not the clients: go-nsq has races of its own.
race: build tools ## the gate's packages under the race detector, with eight processors, and kills of leaders: after a change of locks or goroutines
	GOMAXPROCS=8 $(GO) test -race -skip '^TestPromise' -timeout 60m $(GATE)
	GOMAXPROCS=8 $(PROCESSES) -run 'LeaderKills|KillInEveryRole' ./internal/test/verify/e2e/channels ./internal/test/verify/e2e/kills
	LOCKSTEP_RACE=1 LOCKSTEP_SLACK=10 $(GO) test -count=1 -timeout 20m -p 1 -run LeaderKills ./internal/test/verify/e2e/channels ./internal/test/verify/e2e/kills

test-all: ## everything, for hours, one after the other: before a release
	$(MAKE) test
	$(MAKE) promises
	$(MAKE) e2e
	$(MAKE) race
	$(MAKE) mutants
	$(MAKE) soak
	$(MAKE) chaos
	$(MAKE) sim
	$(MAKE) world
	$(MAKE) storage-faults
	$(MAKE) model
	$(MAKE) fuzz FUZZTIME=10m
	$(MAKE) conformance
	$(MAKE) migrate
	$(MAKE) walk
	$(MAKE) bench-check
	$(MAKE) test-packages

client-compare: build ## the Go client and go-nsq in turn while brokers are killed; prints two tables
	LOCKSTEP_LONG=1 LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -C client/e2e -v -count=1 -timeout 30m -run 'CompareGoNSQ|ThroughFaults' .

tools: ## install what the tests need from Debian, npm and the Go module proxy, as root
	@.ci/tools || echo "not everything could be installed: the tests that need it are skipped, or fail with LOCKSTEP_CI=1"

bench: build ## measure a fresh cluster of three brokers with every workload (BENCHFLAGS)
	bin/nsqctl bench --cluster $(BENCHFLAGS)

bench-compare: build ## the same, and in turn with another broker (PEER=host:port, PEER_PIDS)
	bin/nsqctl bench --cluster --compare $(PEER) --compare-pids "$(PEER_PIDS)" $(BENCHFLAGS)

bench-nsqd: build ## the same, with a new build of a stock nsqd (NSQD=path: with that one; NSQD_FLAGS)
	bench/nsqd.sh $(BENCHFLAGS)

bench-nats: build ## in turn with NATS JetStream, three replicas, with the same rows (NATSFLAGS)
	$(GO) build -C bench -o ../bin/bench-nats ./nats
	bin/bench-nats -nsqd bin/nsqd $(NATSFLAGS)

bench-floor: build ## in turn with a bare chain of three processes, the limit of the machine (FLOORFLAGS, BENCHFLAGS)
	$(GO) build -C bench -o ../bin/bench-floor ./floor
	bin/bench-floor $(FLOORFLAGS) -- $(BENCHFLAGS)

bench-check: ## build and test the module bench/
	$(GO) vet -C bench ./...
	$(GO) test -C bench -timeout 10m ./...

flame: build ## the processor time of a leader, a follower and a consumer's broker: OUT/*.svg (OUT, FLAMEFLAGS)
	$(GO) build -C bench -o ../bin/bench-flame ./flame
	@mkdir -p $(OUT)
	bin/bench-flame -out $(OUT) $(FLAMEFLAGS)

sweeps: build ## curves by connections, partitions, topics, size, backlog, channels: OUT/sweep-*.svg, and their figures (OUT, BENCHFLAGS)
	$(GO) build -C bench -o ../bin/bench-curves ./curves
	@mkdir -p $(OUT)
	@set -e; for sweep in connections partitions topics size backlog channels; do \
		bin/nsqctl -o json bench --cluster --sweep $$sweep $(BENCHFLAGS) >$(OUT)/sweep-$$sweep.json; \
		bin/bench-curves <$(OUT)/sweep-$$sweep.json >$(OUT)/sweep-$$sweep.svg; \
	done

microbench: ## benchmarks of the hot paths into microbench.txt, beside BASE (BENCHTIME, COUNT)
	$(GO) test -run '^$$' -bench . -skip Scale -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(BENCHED) >microbench.txt || { cat microbench.txt; exit 1; }
	@if [ -f $(BASE) ]; then $(BENCHSTAT) -ignore cpu $(BASE) microbench.txt; else cat microbench.txt; fi

microbench-base: ## make the last figures the base of later comparisons (BASE)
	grep -v '^cpu:' microbench.txt >$(BASE)

scale: ## cost of many partitions and brokers (LOCKSTEP_LONG=1: 100,000 keys)
	$(GO) test -run '^$$' -bench Scale -benchtime 1x -timeout 1h $(BENCHED)

sim: ## simulated clusters under faults (SEEDS)
	GOGC=400 $(GO) test -count=1 -timeout 24h ./internal/test/verify/sim -sim.seeds=$(SEEDS)

world: ## whole brokers and their clients in virtual time, seed by seed (SEED, WORLDS): after any change of what clients see
	$(GO) run ./internal/test/verify/world/cmd/world -seed $(SEED) -n $(WORLDS)

storage-faults: ## storage on a crashing disk (SEQUENCES)
	LOCKSTEP_SEQUENCES=$(SEQUENCES) $(GO) test -count=1 -timeout 24h $(STORAGE)

model: ## every interleaving of small clusters (STATES per configuration)
	LOCKSTEP_LONG=1 LOCKSTEP_STATES=$(STATES) $(GO) test -v -count=1 -timeout 24h -run 'TestModel$$' ./internal/test/verify/model

mutation: ## random changes of the code: how many do the tests notice? (SEED, CHANGES, PART): after new tests or packages
	$(GO) run ./internal/test/verify/mutation/cmd/mutation -seed $(SEED) -n $(CHANGES) $(PART)

mutants: tools ## each rule removed once: all its witnesses must fail (MUTANTS: names and flags): after a change of rules or of their tests
	$(GO) run ./internal/test/verify/mutants/cmd/mutants score $(MUTANTS)

chaos: build ## real processes killed, stopped and partitioned (ROUNDS of ROUND_SECONDS): after a change of replication, storage or metadata
	LOCKSTEP_LONG=1 LOCKSTEP_CLOCKS=1 LOCKSTEP_ROUNDS=$(ROUNDS) LOCKSTEP_SECONDS=$(ROUND_SECONDS) $(GO) test -v -count=1 -p 1 -timeout 24h -run Chaos ./internal/test/verify/chaos/...

figures: ## failover, hand-over, hung disks, flapping links, dead followers: what clients notice, with an older build (BEFORE: a commit) and this one (TIMES)
	.ci/figures $(BEFORE) $(TIMES)

soak: tools ## floods, bad logins, scans, and one user's unread and trickling clients at real brokers, with figures: 20 minutes; after a change of limits
	LOCKSTEP_LONG=1 $(GO) test -v -count=1 -timeout 2h ./internal/test/verify/attack

migrate: ## a stock NSQ cluster under load moved to Lockstep (MESSAGES; from 100,000 on 20 topics, 60 channels)
	LOCKSTEP_MIGRATE=$(MESSAGES) $(GO) test -v -count=1 -timeout 3h -run 'TestMigrate$$' ./internal/test/verify/e2e/stock

walk: ## each failure of docs/operations caused: the page, nsqctl and the alert; LOCKSTEP_WALK=file, LOCKSTEP_SHOTS=folder
	LOCKSTEP_LONG=1 $(GO) test -v -count=1 -timeout 1h -p 1 -run 'TestWalk|TestAlert|TestDamagedEverywhere|TestDamageOf|TestOldDisk|TestEachSign' $(addprefix ./internal/test/verify/e2e/,alerts disks walk)

conformance: build tools ## stock clients' own suites, and every pair of implementations
	LOCKSTEP_LONG=1 LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -count=1 -timeout 1h -run Conformance $(PACKAGES)

fuzz: ## every fuzz target in turn (FUZZTIME each)
	.ci/fuzz $(FUZZTIME)

release: ## all files of a release, from the commit: archives, packages, SHA256SUMS, SBOMs (VERSION, DIST)
	packaging/release.sh "$(VERSION)" $(DIST)

deb: ## the Debian package of this checkout (VERSION, ARCH, DIST)
	BUILDVCS=auto packaging/build.sh $(DIST)/stage-$(ARCH)/bin linux $(ARCH) "$(VERSION)"
	packaging/stage.sh $(DIST)/stage-$(ARCH) "$(VERSION)"
	packaging/deb.sh $(DIST)/stage-$(ARCH) $(ARCH) "$(VERSION)" $(DIST)

container-root: ## the files of the container image in DIST/container-root (VERSION, ARCH, DIST)
	BUILDVCS=auto packaging/build.sh $(DIST)/stage-$(ARCH)/bin linux $(ARCH) "$(VERSION)"
	packaging/container-root.sh $(DIST)/stage-$(ARCH)/bin $(DIST)/container-root

container: ## the container image, by docker or another engine (VERSION, ENGINE)
	$(or $(ENGINE),docker) build -f packaging/Dockerfile --build-arg VERSION=$(VERSION) -t lockstep:$(VERSION) .

test-packages: ## releases, packages, images and manifests, installed and run (root, Debian): a quarter of an hour; after a change of packaging
	packaging/tools
	$(GO) test -count=1 -tags portable ./internal/vfs
	$(GO) vet -C packaging ./...
	$(GO) test -C packaging -count=1 -timeout 1h ./...

supply-chain: ## modules of the daemon, licences, known vulnerabilities; for information newer versions
	$(GO) test -count=1 -run 'Modules|Licences' ./internal/lint
	.ci/vulnerabilities
	$(MAKE) outdated

vulnerabilities: ## look the dependencies up in the Go vulnerability database (DB: a copy, file:///…); fails if it is not reachable
	.ci/vulnerabilities

outdated: ## direct dependencies that have a newer version (information)
	$(GO) list -m -u -e -f '{{if and .Update (not .Indirect)}}{{.Path}} {{.Version}} -> {{.Update.Version}}{{end}}' all

sbom: build ## bills of materials of bin/nsqd and bin/nsqctl, CycloneDX (DIST); make release has them, too
	mkdir -p $(DIST)
	$(SBOM) bin -json -std -output $(DIST)/nsqd.cdx.json bin/nsqd
	$(SBOM) bin -json -std -output $(DIST)/nsqctl.cdx.json bin/nsqctl

clean: ## remove built files (data remains)
	rm -rf bin dist
	$(GO) clean -testcache
