# Lockstep. `make help` lists the targets. Needs Go, make and a C compiler (race).

GO ?= go
BENCHSTAT ?= $(GO) run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
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
BENCHTIME ?= 1s
COUNT ?= 6
BASE ?= .ci/microbench.txt
OUT ?= .

PACKAGES = ./...
BENCHED = $(sort $(dir $(shell grep -rl --include='*_test.go' '^func Benchmark' ./commitlog ./coordinator ./internal ./nsqd ./rpc)))
STORAGE = ./internal/vfs ./internal/journal ./internal/store ./commitlog ./nsqd/queue ./internal/powercut

.DEFAULT_GOAL := help
.PHONY: help build run check fmt-check vet staticcheck lint test-short test tools test-race test-long bench bench-compare bench-nsqd bench-nats bench-floor bench-check flame sweeps microbench microbench-base scale sim sim-mutations chaos model model-mutations storage-faults fuzz conformance clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/nsqd and bin/nsqctl
	$(GO) build -o bin/ ./cmd/nsqd ./cmd/nsqctl

run: build ## three brokers on this machine until Ctrl-C (NODES, BASE_PORT, DATA)
	bin/nsqctl dev --nodes $(NODES) --base-port $(BASE_PORT) --data-dir $(DATA)

check: fmt-check vet staticcheck lint test-short ## before every commit: at most three minutes

fmt-check:
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then echo "gofmt wanted:"; echo "$$bad"; exit 1; fi

vet:
	$(GO) vet $(PACKAGES)

staticcheck:
	$(STATICCHECK) $(PACKAGES)

lint: # layers, package comments, constructs we do without
	$(GO) test -count=1 ./internal/lint

test-short:
	$(GO) test -short -timeout 170s $(PACKAGES)

# Real processes and wall-clock promises come last and alone: beside the
# simulator on two cores they would measure the simulator. They are never taken
# from the cache, which does not know what the brokers they build are made of.
PROCESSES = ./internal/e2e ./internal/chaos ./cmd/nsqd ./coordinator
test: build tools ## everything that proves a change: also clusters of real processes
	$(GO) test -timeout 30m $$($(GO) list $(PACKAGES) | grep -vE '/lockstep/(internal/e2e|internal/chaos|cmd/nsqd|coordinator)$$')
	$(GO) test -count=1 -p 1 -timeout 30m $(PROCESSES)
	$(MAKE) fuzz

tools: ## nft and ip for internal/chaos, if root may install them; else its tests are skipped
	@{ command -v nft && command -v ip; } >/dev/null || .ci/tools || echo "no nft: the tests of internal/chaos are skipped"

test-race: build ## the same under the race detector
	LOCKSTEP_RACE=1 LOCKSTEP_SLACK=10 $(GO) test -race -timeout 60m $(PACKAGES)

test-long: ## hours: all of the long runs below, one after the other
	$(MAKE) test-race
	$(MAKE) sim
	$(MAKE) sim-mutations
	$(MAKE) storage-faults
	$(MAKE) model
	$(MAKE) model-mutations
	$(MAKE) fuzz FUZZTIME=10m
	$(MAKE) conformance
	$(MAKE) bench-check
	$(MAKE) chaos

bench: build ## measure a fresh cluster of three brokers with every workload; bench.svg (BENCHFLAGS)
	bin/nsqctl bench --cluster --svg bench.svg $(BENCHFLAGS)

bench-compare: build ## the same, and in turn with another broker (PEER=host:port, PEER_PIDS)
	bin/nsqctl bench --cluster --compare $(PEER) --compare-pids "$(PEER_PIDS)" $(BENCHFLAGS)

bench-nsqd: build ## the same, with a stock nsqd that is built for it (NSQD=path: with that one; NSQD_FLAGS)
	bench/nsqd.sh $(BENCHFLAGS)

bench-nats: build ## in turn with NATS JetStream, three replicas, by the same rows (NATSFLAGS)
	$(GO) build -C bench -o ../bin/bench-nats ./nats
	bin/bench-nats -nsqd bin/nsqd $(NATSFLAGS)

bench-floor: build ## in turn with a bare chain of three processes: what the machine allows (FLOORFLAGS, BENCHFLAGS)
	$(GO) build -C bench -o ../bin/bench-floor ./floor
	bin/bench-floor $(FLOORFLAGS) -- $(BENCHFLAGS)

bench-check: ## the module of the peers builds, and measures
	$(GO) vet -C bench ./...
	$(GO) test -C bench -timeout 10m ./...

flame: build ## where the processor time of a leader, a follower and a consumer's broker goes, into docs/flame (FLAMEFLAGS)
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

microbench-base: ## the last figures become those that later ones are compared with (BASE)
	grep -v '^cpu:' microbench.txt >$(BASE)

scale: ## what many partitions and brokers cost, one by one (docs/scale.md; LOCKSTEP_LONG=1: 100,000 keys)
	$(GO) test -run '^$$' -bench Scale -benchtime 1x -timeout 1h $(BENCHED)

sim: ## simulated clusters under faults (SEEDS)
	GOGC=400 $(GO) test -count=1 -timeout 24h ./internal/sim -sim.seeds=$(SEEDS)

sim-mutations: ## ten safety-critical lines switched off: who notices
	LOCKSTEP_LONG=1 $(GO) test -v -count=1 -timeout 24h -run TestScore ./internal/mutation

storage-faults: ## storage on a crashing disk (SEQUENCES)
	LOCKSTEP_SEQUENCES=$(SEQUENCES) $(GO) test -count=1 -timeout 24h $(STORAGE)

model: ## every interleaving of small clusters (STATES per configuration)
	LOCKSTEP_LONG=1 LOCKSTEP_STATES=$(STATES) $(GO) test -v -count=1 -timeout 24h -run 'TestModel$$' ./internal/model

model-mutations: ## each rule of the protocol removed once: what catches it
	LOCKSTEP_LONG=1 $(GO) test -v -count=1 -timeout 24h -run TestModelMutations ./internal/model

chaos: build ## real processes killed, stopped and cut off (ROUNDS of ROUND_SECONDS)
	LOCKSTEP_ROUNDS=$(ROUNDS) LOCKSTEP_SECONDS=$(ROUND_SECONDS) $(GO) test -v -count=1 -timeout 24h -run Chaos ./internal/chaos

conformance: build ## stock clients' own suites, and every pair of implementations
	LOCKSTEP_LONG=1 $(GO) test -count=1 -timeout 1h -run Conformance $(PACKAGES)

fuzz: ## every fuzz target in turn (FUZZTIME each)
	.ci/fuzz $(FUZZTIME)

clean: ## remove what was built (data stays)
	rm -rf bin
	$(GO) clean -testcache
