# What a newcomer runs: `make demo`, `make test`. Both install what they need.

GO      ?= go
BIN     := bin
LDFLAGS := -s -w

# What `berth version` prints. A source tree without Git leaves it empty.
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
DATE    := $(shell git log -1 --format=%cI 2>/dev/null)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
STAMP   := -X main.buildVersion=$(VERSION) -X main.buildCommit=$(COMMIT) -X main.buildDate=$(DATE)

.PHONY: build man reference deps root test flakes test-long test-slurm test-slurm-next truth jobs sim crash crash-slurm baddays soak mutants test-machines images check demo bench lab clean

build: ## berth, berth-host and berth-lab into bin/
	@test -e $(BIN)/berth || echo "Building berth, berth-host and berth-lab. The first build downloads the modules and compiles them: 2 to 8 minutes on two cores."
	$(GO) build -trimpath -ldflags '$(STAMP)' -o $(BIN)/berth ./cmd/berth
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth-host ./cmd/berth-host
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth-lab ./cmd/berth-lab

man: build ## man pages into deploy/man/
	$(BIN)/berth docs man deploy/man

reference: build ## the generated pages of deploy/reference/
	$(BIN)/berth docs commands > deploy/reference/commands.md
	$(BIN)/berth docs configuration > deploy/reference/configuration.md
	$(BIN)/berth docs slurm > deploy/reference/slurm-options.md
	$(BIN)/berth schema docs > deploy/reference/kinds.md
	$(BIN)/berth schema docs slurm > deploy/reference/slurm-config.md
	$(GO) test ./runtimes/slurm/boundary -run TestContractPage -update
	$(GO) test ./cmd/berth -run TestConditionsAndReasonsAreNamed -update

deps: ## the Debian packages the lab and the tests use; installs them when root
	@deploy/prepare

# What explores draws its cases by the seed, the date unless set; PART=yes tries some of them.
export BERTH_SEED := $(or $(SEED),$(BERTH_SEED))
export BERTH_PART := $(or $(PART),$(BERTH_PART))

# How tests run: compiled into bin/tests, with their files in memory, and with a report of what was
# not run. COMPLETE=yes fails where this machine could not run a test.
TESTRUN = BERTH_TARGET=$@ deploy/in-memory $(GO) run ./cmd/internal/testrun $(DRAW) $(if $(COMPLETE),-complete) $(if $(TALLY),-tally "$(TALLY)" -stage $@)

test: ## every test that this machine can run, as root with real Git, SSH and Slurm
	@deploy/prepare --optional
	@$(TESTRUN) ./...

flakes: ## the tests N times beside load, AT_ONCE of them side by side; the runs of one commit add up
	@deploy/prepare --optional
	@deploy/in-memory $(GO) run ./cmd/internal/testrun -flakes $(or $(N),20) -at-once $(or $(AT_ONCE),1) ./...

# The packages that have tests which explore.
LONG = $(shell grep -rl --include='*_test.go' '^//go:build long' . | xargs -n1 dirname | sort -u)

test-long: root deps ## what explores: random schedules and histories, garbled answers, kills; SEED=n, PART=yes, RUN=TestLongX; needs root
	@$(TESTRUN) -tags long -timeout 2h -run '^$(or $(RUN),TestLong)' $(LONG)

# With PART=yes these targets run a part of their tests.
test-long: DRAW = $(if $(PART),-part 3)
test-slurm test-slurm-next: DRAW = $(if $(PART),-part 3)
test-machines: DRAW = $(if $(PART),-part 2)

test-slurm: root deps ## the tests of the Slurm runtime on hosts of Debian 13, which has Slurm 24.11; needs root
	@BERTH_LAB_IMAGE=trixie $(TESTRUN) -tags long -timeout 2h ./runtimes/slurm

test-slurm-next: root deps build ## the short ones of them on Debian's next release, which has Slurm 26.05, where its packages can be had; needs root
	@if $(BIN)/berth-lab image forky; then BERTH_LAB_IMAGE=forky $(TESTRUN) ./runtimes/slurm; \
	else echo "not run: Slurm 26.05, as the image of forky cannot be built" >&2; test -z "$(COMPLETE)"; fi

baddays: root deps ## the faults in runtimes/slurm/testdata/faults: when Berth reports each, in which words, when it is right, and the jobs; IMAGE=trixie on Slurm 24.11, RUN=regexp of faults; needs root
	BERTH_LAB_IMAGE=$(IMAGE) BERTH_FAULTS="$(RUN)" deploy/in-memory $(GO) test -tags long,baddays -run '^TestLongBadDays$$' -v -count=1 -timeout 60m ./runtimes/slurm

truth: root deps ## 100 random changes on a busy cluster, predicted and actual; SEED=n draws others, N=n as many, IMAGE=trixie on Slurm 24.11; needs root
	BERTH_LAB_IMAGE=$(IMAGE) BERTH_TRUTH_SEED=$(or $(SEED),1) BERTH_TRUTH_CHANGES=$(or $(N),100) deploy/in-memory $(GO) test -tags long -run '^TestLongTruth$$' -v -count=1 -timeout 60m ./runtimes/slurm

sim: ## 100,000 random schedules of the reconciler against modelled Git, hosts and clocks; SEED=n draws others, N=n as many
	BERTH_SCHEDULES=$(or $(N),100000) $(GO) test -run '^TestSimulatedSchedules$$' -v -count=1 -timeout 10h ./reconciler/sim

crash: ## 900 SIGKILLs of the daemon on simulated hosts with real Git, at effects, at requests and at any time; SEED=n draws others, N=n as many
	BERTH_TARGET=crash BERTH_CRASHES=$(or $(N),900) $(GO) test -tags crash -run '^TestCrashes$$' -v -count=1 -timeout 10h ./cmd/internal/daemon

crash-slurm: root deps ## 100 SIGKILLs of the daemon on real Slurm with real Git, at effects, at pushes and at any time, while users submit jobs; SEED=n draws others, N=n as many, IMAGE=trixie on Slurm 24.11; needs root
	BERTH_TARGET=crash-slurm BERTH_LAB_IMAGE=$(IMAGE) BERTH_CRASHES=$(or $(N),100) deploy/in-memory $(GO) test -tags long,crash -run '^TestCrashesOnSlurm$$' -v -count=1 -timeout 10h ./cmd/berth-lab

jobs: root deps ## the shapes of jobs in runtimes/slurm/testdata/jobs: what Berth says of each and what Slurm says; IMAGE=trixie on Slurm 24.11, RUN=regexp of shapes; needs root
	BERTH_LAB_IMAGE=$(IMAGE) deploy/in-memory $(GO) test -tags long,jobs -run '^TestLongJobs$$$(if $(RUN),/^clusters$$/./^jobs$$/$(RUN))' -v -count=1 -timeout 60m ./runtimes/slurm

# The packages that have tests on emulated machines.
MACHINES = $(shell grep -rl --include='*_test.go' '^//go:build machines' . | xargs -n1 dirname | sort -u)

test-machines: export BERTH_LAB_IMAGE := $(IMAGE)
test-machines: root ## real Slurm on emulated machines with systemd, which reboot and lose power; IMAGE=trixie on Debian 13; needs root
	@deploy/prepare --machines
	@$(TESTRUN) -tags long,machines -run '^TestMachine' $(MACHINES)

soak: ## everything that explores, whole, on each release of Slurm, and the mutants; takes hours; needs root
	$(MAKE) -k test-long test-slurm test-slurm-next test-machines truth jobs baddays mutants

mutants: root deps ## takes the effect of each requirement out of a copy and asks for the test that fails; RUN=regexp of ids
	@deploy/in-memory $(GO) run ./cmd/internal/mutants $(if $(RUN),-run '$(RUN)')

images: root build ## the images that test-slurm, test-slurm-next and test-machines build otherwise; needs root
	@deploy/prepare --machines
	$(BIN)/berth-lab image bookworm --machines
	$(BIN)/berth-lab image trixie
	-$(BIN)/berth-lab image forky

root:
	@test "$$(id -u)" = 0 || { echo "this needs root, which makes the hosts; \`make test\` and \`make demo\` run without it what they can" >&2; exit 1; }

check: ## formatting, vet, staticcheck, import law, documentation
	@out=$$(gofmt -l cmd examples reconciler runtimes schema webhooks); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }
	$(GO) vet -tags long,machines,jobs,baddays,crash ./...
	$(GO) tool staticcheck -tags long,machines,jobs,baddays,crash ./...
	$(GO) test -count=1 -run '^Test(ImportLaw|NoTestServerInBerth|HostHelperIsSmall|NoSchedulerInCore|DaemonNamesNoForge|PackageDocs|ExportedDocs|ModuleFloors|TopLevel|Requirements|MakeRunsTheTests|InstallPageShowsAValidConfiguration|DocumentationLinksResolve|OperatePageExplainsEachWarning|ReferencePagesAreCurrent)$$' ./cmd/berth ./cmd/internal/daemon

demo: build ## the end-to-end demo on a temporary estate
	@deploy/prepare --optional
	$(BIN)/berth-lab demo

bench: deps ## figures, each with its peer in the same run
	@GO="$(GO)" deploy/bench

lab: root deps build ## a Slurm playground from examples/lab, with IMAGE=trixie of that Debian suite; `bin/berth-lab down` removes it
	$(BIN)/berth-lab up examples/lab $(if $(IMAGE),--image $(IMAGE))

clean:
	rm -rf $(BIN)
