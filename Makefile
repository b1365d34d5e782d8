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
OUTSIDE = internal/verify/e2e internal/verify/chaos internal/verify/attack internal/testkit/e2etest client/e2e bench
BENCHED = $(sort $(dir $(shell grep -rl --include='*_test.go' '^func Benchmark' ./commitlog ./coordinator ./internal ./nsqd ./rpc)))
STORAGE = ./internal/vfs ./internal/journal ./internal/store ./commitlog ./nsqd/queue ./internal/verify/powercut

.DEFAULT_GOAL := help
.PHONY: theme help build ui run check fmt-check vet staticcheck reference docs completions lint test-short test client-test client-compare tools test-cores test-race-meet test-race test-long bench bench-compare bench-nsqd bench-nats bench-floor bench-check flame sweeps microbench microbench-base scale sim chaos model mutants mutants-fast storage-faults fuzz figures conformance release deb container-root container test-packages supply-chain vulnerabilities outdated sbom migrate walk attack clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/nsqd and bin/nsqctl (VERSION=1.2.3 names a release)
	$(GO) build -buildvcs=auto $(if $(VERSION),-ldflags '-X $(shell $(GO) list -m)/internal/edge.product=$(VERSION)') -o bin/ ./cmd/nsqd ./cmd/nsqctl

ui: ## the console's files, internal/webui/dist, from its TypeScript sources; needs npm
	npm --prefix internal/webui/src ci
	npm --prefix internal/webui/src run --silent check
	npm --prefix internal/webui/src run --silent build

run: build ## three brokers on this machine until Ctrl-C (NODES, BASE_PORT, DATA)
	bin/nsqctl dev --nodes $(NODES) --base-port $(BASE_PORT) --data-dir $(DATA)

check: fmt-check vet staticcheck lint test-short ## before every commit: at most three minutes

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
reference: ## write the generated documents again: docs/reference, docs/metrics.md, the tables of docs/SECURITY.md, packaging/nsqd.toml
	$(GO) test -count=1 ./internal/config -run 'Template|Reference' -rewrite
	$(GO) test -count=1 ./cmd/nsqctl -run Reference -rewrite
	$(GO) test -count=1 ./internal/httpapi -run OpenAPI -rewrite
	$(GO) test -count=1 ./internal/protocol -run 'Reference|TestErrors' -rewrite
	$(GO) test -count=1 ./internal/metrics -run TestDocument -rewrite
	$(GO) test -count=1 ./internal/guard -run TestTables -rewrite

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
	$(GO) test -short -p $$(($(PROCESSORS) + 1)) -parallel 4 -timeout 170s $(PACKAGES)
	$(GO) test -C client -short -timeout 170s ./...

# The simulator and the model fill the machine for minutes; most other packages wait for much of their
# time, so one package more than there are processors runs at a time.
#
# Tests of real processes and of wall-clock promises run last: beside the simulator on two
# cores they would measure the simulator. They wait for most of their time, so four groups
# run side by side. MEASURED has the themes of e2e whose tests hold times against promises, nearly all one
# test after the other. The other themes are in WAITING and in the third group; two tests of each group run at a
# time, not three as alone. The floods of attack, which fill the machine, run alone.
# In cmd/nsqd and coordinator the tests that measure run one after the other, before those that only wait,
# which run in parallel; their times may last three times as long here, as those of e2e may. All use the brokers of bin/, so that no package links its own. Their
# results never come from the cache, which does not include the sources of these brokers.
PROCESSES = LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -count=1 -p 1 -timeout 30m
THEMES = LOCKSTEP_PORTS=20000-27000 $(PROCESSES) -parallel 2
E2E = $(patsubst %/,./%,$(sort $(dir $(wildcard internal/verify/e2e/*/*.go))))
MEASURED = $(addprefix ./internal/verify/e2e/,kills loss metadata partitions speed stops)
WAITING = $(addprefix ./internal/verify/e2e/,alerts channels disks stock)
CLIENT = $(GO) test -C client -timeout 10m ./... && LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -C client/e2e -count=1 -timeout 10m ./...
SITE = $(GO) test -C docs/site -count=1 ./...
PROCESSORS = $$(getconf _NPROCESSORS_ONLN)
test: build tools ## all tests of a change, including clusters of real processes
	$(GO) test -timeout 30m -p $$(($(PROCESSORS) + 1)) -parallel 4 $$($(GO) list $(PACKAGES) | grep -vE '/lockstep/(internal/verify/(e2e/[a-z]+|chaos(/[a-z]+)?|attack|console)|cmd/nsqd|coordinator)$$')
	.ci/together '$(THEMES) $(MEASURED)' '$(THEMES) $(WAITING)' '$(THEMES) $(filter-out $(MEASURED) $(WAITING),$(E2E)) && $(PROCESSES) ./internal/verify/console && $(CLIENT) && $(SITE)' 'LOCKSTEP_SLACK=$${LOCKSTEP_SLACK:-3} $(PROCESSES) ./internal/verify/chaos/... ./cmd/nsqd ./coordinator'
	$(PROCESSES) ./internal/verify/attack
	$(MAKE) fuzz FUZZTIME=3s

theme: build ## the tests of one theme of internal/verify/e2e (THEME=mirror; TESTFLAGS)
	$(PROCESSES) -v ./internal/verify/e2e/$(THEME) $(TESTFLAGS)

client-test: build ## the modules of the Go client, alone and with brokers that are killed
	$(CLIENT)

client-compare: build ## the Go client and go-nsq in turn while brokers are killed: docs/results/client.md
	LOCKSTEP_LONG=1 LOCKSTEP_BINARIES=$(CURDIR)/bin $(GO) test -C client/e2e -v -count=1 -timeout 30m -run 'CompareGoNSQ|ThroughFaults' .

tools: ## install the programs for tests with their own networks and disks, if root may
	@{ command -v nft && command -v ip && command -v curl && command -v promtool && command -v chromium && command -v python3 && command -v node && command -v npm; } >/dev/null || .ci/tools || echo "no nft, ip, curl, promtool, chromium, python3, node or npm: the tests that need them are skipped, or fail with LOCKSTEP_CI=1"
	@[ -d $(STOCK) ] || $(GO) build -C "$$(cd / && $(GO) mod download -json github.com/nsqio/nsq@v1.3.0 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" -o $(CURDIR)/$(STOCK)/ $(addprefix ./apps/,nsqlookupd nsqadmin nsq_tail nsq_to_file to_nsq) || echo "no stock NSQ: internal/verify/smoke builds it, or is skipped"
	@npm --prefix $(WALK) ls >/dev/null 2>&1 || npm --prefix $(WALK) ci --prefer-offline >/dev/null || echo "no packages of npm: internal/verify/console installs them, or is skipped"

# Tests of the gate have no network: what they need from others is built and installed before them.
STOCK = bin/nsq-v1.3.0
WALK = internal/verify/console/walk

# The packages in which goroutines meet, and a test that kills leaders. On two
# processors there is one core loop: GOMAXPROCS=8 makes several.
MEET = ./coordinator/... ./internal/store ./internal/journal ./nsqd/... ./rpc
test-cores: build ## the packages in which goroutines meet, and kills of leaders, with GOMAXPROCS=8
	GOMAXPROCS=8 $(GO) test -count=1 -timeout 20m $(MEET)
	GOMAXPROCS=8 $(GO) test -count=1 -timeout 20m -p 1 -run 'LeaderKills|KillInEveryRole' ./internal/verify/e2e/channels ./internal/verify/e2e/kills

# In the second lines the brokers have the detector, and not the clients: go-nsq has races of its own.
test-race-meet: build ## the same under the race detector
	LOCKSTEP_SLACK=3 $(GO) test -race -short -timeout 30m $(MEET)
	LOCKSTEP_RACE=1 LOCKSTEP_SLACK=10 $(GO) test -count=1 -timeout 20m -p 1 -run LeaderKills ./internal/verify/e2e/channels ./internal/verify/e2e/kills

test-race: build tools ## everything under the race detector: an hour
	LOCKSTEP_RACE=1 LOCKSTEP_SLACK=10 $(GO) test -race -timeout 60m $$($(GO) list $(PACKAGES) | grep -vE '/internal/verify/(e2e/[a-z]+|chaos(/[a-z]+)?|attack|console)$$')
	LOCKSTEP_RACE=1 LOCKSTEP_SLACK=10 $(GO) test -count=1 -p 1 -timeout 60m ./internal/verify/e2e/... ./internal/verify/chaos/... ./internal/verify/attack ./internal/verify/console

test-long: ## hours: all long runs below, one after the other
	$(MAKE) test-race
	$(MAKE) sim
	$(MAKE) storage-faults
	$(MAKE) model
	$(MAKE) mutants
	$(MAKE) fuzz FUZZTIME=10m
	$(MAKE) attack
	$(MAKE) conformance
	$(MAKE) migrate
	$(MAKE) walk
	$(MAKE) bench-check
	$(MAKE) chaos

bench: build ## measure a fresh cluster of three brokers with every workload; bench.svg (BENCHFLAGS)
	bin/nsqctl bench --cluster --svg bench.svg $(BENCHFLAGS)

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

flame: build ## draw the processor time of a leader, a follower and a consumer's broker into docs/flame (FLAMEFLAGS)
	$(GO) build -C bench -o ../bin/bench-flame ./flame
	mkdir -p docs/flame
	bin/bench-flame -out docs/flame $(FLAMEFLAGS)

sweeps: build ## curves by connections, partitions, topics, size, backlog, channels: OUT/sweep-*.svg (OUT, BENCHFLAGS)
	@mkdir -p $(OUT)
	@set -e; for sweep in connections partitions topics size backlog channels; do \
		bin/nsqctl bench --cluster --sweep $$sweep --svg $(OUT)/sweep-$$sweep.svg $(BENCHFLAGS); \
	done

microbench: ## benchmarks of the hot paths into microbench.txt, beside BASE (BENCHTIME, COUNT)
	$(GO) test -run '^$$' -bench . -skip Scale -benchmem -benchtime $(BENCHTIME) -count $(COUNT) $(BENCHED) >microbench.txt || { cat microbench.txt; exit 1; }
	@if [ -f $(BASE) ]; then $(BENCHSTAT) -ignore cpu $(BASE) microbench.txt; else cat microbench.txt; fi

microbench-base: ## make the last figures the base of later comparisons (BASE)
	grep -v '^cpu:' microbench.txt >$(BASE)

scale: ## cost of many partitions and brokers (docs/scale.md; LOCKSTEP_LONG=1: 100,000 keys)
	$(GO) test -run '^$$' -bench Scale -benchtime 1x -timeout 1h $(BENCHED)

sim: ## simulated clusters under faults (SEEDS)
	GOGC=400 $(GO) test -count=1 -timeout 24h ./internal/verify/sim -sim.seeds=$(SEEDS)

storage-faults: ## storage on a crashing disk (SEQUENCES)
	LOCKSTEP_SEQUENCES=$(SEQUENCES) $(GO) test -count=1 -timeout 24h $(STORAGE)

model: ## every interleaving of small clusters (STATES per configuration)
	LOCKSTEP_LONG=1 LOCKSTEP_STATES=$(STATES) $(GO) test -v -count=1 -timeout 24h -run 'TestModel$$' ./internal/verify/model

mutants: tools ## each rule removed once: check that all its witnesses fail, real processes too (MUTANTS: names and flags)
	$(GO) run ./internal/verify/mutants/cmd/mutants score $(MUTANTS)

mutants-fast: ## each rule of the protocol removed once: check that its fastest witness fails
	$(GO) run ./internal/verify/mutants/cmd/mutants fast

chaos: build ## real processes killed, stopped and partitioned (ROUNDS of ROUND_SECONDS)
	LOCKSTEP_LONG=1 LOCKSTEP_CLOCKS=1 LOCKSTEP_ROUNDS=$(ROUNDS) LOCKSTEP_SECONDS=$(ROUND_SECONDS) $(GO) test -v -count=1 -p 1 -timeout 24h -run Chaos ./internal/verify/chaos/...

figures: ## failover, hand-over, hung disks, flapping links, dead followers: what clients notice, with an older build (BEFORE: a commit) and this one (TIMES)
	.ci/figures $(BEFORE) $(TIMES)

attack: tools ## floods, bad logins and scans at every port of real brokers, with figures (a quarter of an hour)
	LOCKSTEP_LONG=1 $(GO) test -v -count=1 -timeout 2h ./internal/verify/attack

migrate: ## a stock NSQ cluster under load moved to Lockstep (MESSAGES; from 100,000 on 20 topics, 60 channels)
	LOCKSTEP_MIGRATE=$(MESSAGES) $(GO) test -v -count=1 -timeout 3h -run 'TestMigrate$$' ./internal/verify/e2e/stock

walk: ## each failure of docs/OPERATIONS.md caused: the page, nsqctl and the alert; LOCKSTEP_WALK=file, LOCKSTEP_SHOTS=folder
	LOCKSTEP_LONG=1 $(GO) test -v -count=1 -timeout 1h -p 1 -run 'TestWalk|TestAlert|TestDamagedEverywhere|TestDamageOf|TestOldDisk|TestEachSign' $(addprefix ./internal/verify/e2e/,alerts disks walk)

conformance: build ## stock clients' own suites, and every pair of implementations
	LOCKSTEP_LONG=1 $(GO) test -count=1 -timeout 1h -run Conformance $(PACKAGES)

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

test-packages: ## releases, packages, images and manifests, installed and run (root, Debian; a quarter of an hour)
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
