package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/composed"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/runtimes/backends"
	"berth/runtimes/host"
	"berth/runtimes/memory"
	"berth/schema"
	schemaestate "berth/schema/estate"
	"berth/schema/onboard"
	"berth/schema/signature"
	"berth/webhooks/forge"
)

// controller is the loop of one estate with the connections of one configuration.
type controller struct {
	config *Config
	log    *slog.Logger
	loop   *loop.Reconciler
	queues *queueing.Service
	repo   *composed.Composed
	forge  forge.Client        // nil: none configured
	hosts  runtimes.Hosts      // nil: no ssh configured
	nodes  runtimes.NodeReader // nil: neither hosts nor a memory runtime is configured
	reg    *prometheus.Registry
	work   workLog
}

// hooks are the controller's callbacks to its estate. Each may be nil.
type hooks struct {
	reconciling func(reconciler.Item) (ended func(done bool)) // when the loop begins an item
	reporting   func(commit, check string) (reported func())  // when a check is about to be reported
	owed        reconciler.Owed                               // audit records to write besides the loop's own
	peers       loop.Peers                                    // zero: leadership is taken at once
}

// newController connects a controller. The caller closes it.
func newController(ctx context.Context, c *Config, log *slog.Logger, h hooks) (_ *controller, err error) {
	d := &controller{config: c, log: log, reg: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	live, err := d.runtimes()
	if err != nil {
		return nil, err
	}
	queues := queuesOf(live)
	for backend, r := range live {
		live[backend] = recordingRuntime{r, &d.work}
	}
	loader, err := schemaestate.New(schemaestate.Options{Backends: backends.Definitions(), Releases: backends.Releases(),
		Checks: backends.Checks()})
	if err != nil {
		return nil, err
	}
	registerCacheMetrics(d.reg, loader)
	var access forge.Access
	if c.Forge != nil {
		if access, err = c.Forge.Access(); err != nil {
			return nil, err
		}
	}
	repo, err := d.openRepository(ctx, loader, access.Git)
	if err != nil {
		return nil, err
	}
	port, err := d.openForge(access, h)
	if err != nil {
		return nil, err
	}
	d.loop = loop.New(loop.Options{
		Repo: repo, Accept: c.Repository.Accept, Forge: port, Render: d.rendering(),
		Decide: decide.Options{
			Loader: loader, Authority: d.authority(),
			Rules: []decide.Rule{decide.Undated(schema.Lifecycle), decide.Undated(c.Features.gate), decide.Undated(c.Artifacts.secretRule),
				schema.QueueRules(backends.Contract(), backends.QueueNames), decide.Undated(onboard.Gate(backends.Names()))},
		},
		Runtimes: live, Readers: loop.Readers{Artifacts: c.Artifacts.looker(), Nodes: d.nodes},
		Settings: loop.Settings{
			Observe: c.observeLimit(), Interval: time.Duration(c.Interval), Poll: time.Duration(c.Poll),
			Flush:            time.Duration(c.FlushWindow),
			ArtifactInterval: time.Duration(c.Artifacts.Interval), Retention: c.retention(), Workers: c.Workers, MaxAttempts: c.MaxAttempts,
			Usage: time.Duration(c.Usage), Dates: c.API != nil,
			Heartbeat: time.Duration(c.Nodes.Heartbeat), NodeLimits: c.Nodes.limits(),
		},
		Log: log, Metrics: loop.NewMetrics(d.reg), Owed: h.owed, Peers: h.peers,
		Hooks: loop.Hooks{Watch: h.reconciling, QueueMap: queueMapLog(log), Webhook: c.Rules.sender()},
	})
	d.queues = queueing.New(queueing.Options{View: d.loop.View, Stamp: d.stamp, Queues: queues, Usage: d.loop.LiveUsage,
		Submitted: d.submitted})
	return d, nil
}

// registerCacheMetrics registers the use and the size of a loader's cache.
func registerCacheMetrics(reg prometheus.Registerer, loader *schemaestate.Loader) {
	trees := func(result string, count func(schemaestate.CacheStats) int) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "berth_estate_cache_trees_total", Help: "Trees of estates that were loaded, by result (hit: from the cache; miss: read).",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(count(loader.CacheStats())) }))
	}
	trees("hit", func(s schemaestate.CacheStats) int { return s.Hits })
	trees("miss", func(s schemaestate.CacheStats) int { return s.Misses })
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "berth_estate_cache_bytes", Help: "Text of the trees in the younger generation of the cache, in bytes.",
	}, func() float64 { return float64(loader.CacheStats().Bytes) }))
}

// openRepository opens the estate's repository, with those of its tenants.
func (d *controller) openRepository(
	ctx context.Context, loader *schemaestate.Loader, gitToken *forge.GitToken,
) (_ reconciler.Repo, err error) {
	c := d.config
	sign, err := c.signer(d.log)
	if err != nil {
		return nil, err
	}
	var refs reconciler.PullRefs
	if c.kind != nil {
		refs = c.kind.PullRefs
	}
	if d.repo, err = composed.OpenComposed(ctx, gitrepo.Options{
		URL: c.Repository.URL, Dir: c.Repository.Directory, Branch: c.Repository.Branch, Log: d.log,
		KnownHosts: c.Repository.KnownHosts, AllowHTTP: c.Repository.AllowHTTP,
		Sign:     sign,
		PullRefs: refs,
		Auth:     c.repositoryAuth(gitToken),
		Status: gitrepo.StatusRepository{URL: c.Repository.StatusURL,
			Auth: c.gitAuth("repository.status_token", c.Repository.StatusURL, c.Repository.Username, c.Repository.StatusToken)},
	}, c.composition(loader)); err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	if c.isLocal() {
		d.log.Info("local repository in use, for trial; there are no pull requests", "url", c.Repository.URL)
	}
	if c.Repository.Accept != "" {
		return &acceptingRepo{Composed: d.repo, commit: c.Repository.Accept, log: d.log}, nil
	}
	return d.repo, nil
}

// openForge connects the forge; nil: none is configured.
func (d *controller) openForge(access forge.Access, h hooks) (_ reconciler.Forge, err error) {
	if access.Open == nil {
		return nil, nil
	}
	d.forge, err = access.Open(forge.Options{Estate: d.config.Estate, Limiter: d.config.limiter, Log: d.log, Registry: d.reg})
	if err != nil {
		return nil, fmt.Errorf("forge: %w", err)
	}
	return &reportingForge{d.repo.Forge(d.forge), h.reporting}, nil
}

// authority returns the permission checks; nil: every user with push access to the
// branch may change everything.
func (d *controller) authority() *decide.Authority {
	a := d.config.Authority
	switch {
	case a.TrustLocalCommits:
		d.log.Info("authority.trust_local_commits: every user who can commit to the local repository can change everything", "url",
			d.config.Repository.URL)
		return nil
	case a.TrustMain:
		d.log.Warn("authority.trust_main: every user who can push to the branch can change everything")
		return nil
	}
	return &decide.Authority{Administrators: a.Administrators, AdministratorKeys: a.AdministratorKeys, NoForge: d.config.Forge == nil}
}

// signer returns the signer of commits on berth/status and berth/in-force; nil: they
// are not signed.
func (c *Config) signer(log *slog.Logger) (func([]byte) ([]byte, error), error) {
	file := c.Repository.SigningKey
	if file == "" && c.isLocal() { // a trial
		return nil, nil
	}
	if file == "" {
		log.Warn("status commits are not signed; set repository.signing_key to an SSH private key")
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("repository.signing_key: %w; let the daemon's user read it", err)
	}
	key, err := signature.ParseSigningKey(data)
	if err != nil {
		return nil, fmt.Errorf("repository.signing_key: %s: %w", file, err)
	}
	log.Info("status commits are signed", "key", key.Fingerprint())
	return key.SignCommit, nil
}

// runtimes returns the runtimes that the configuration has hosts or a directory for.
func (d *controller) runtimes() (map[string]runtimes.Runtime, error) {
	live := map[string]runtimes.Runtime{}
	var err error
	if d.hosts, err = d.config.Hosts(d.hostKey, d.log); err != nil {
		return nil, err
	}
	if d.hosts != nil {
		d.nodes = runtimes.NodeHosts{Hosts: d.hosts}
		for _, b := range backends.All() {
			live[b.Name()] = b.New(d.hosts, d.config.SSH.limits())
		}
	}
	if c := d.config.MemoryRuntime; c != nil {
		world, err := memory.OpenWorld(c.Directory)
		if err != nil {
			return nil, fmt.Errorf("memory_runtime: %w", err)
		}
		for _, backend := range c.Backends {
			live[backend] = memory.NewFor(world, backends.Rules(backend))
		}
		if d.nodes == nil {
			d.nodes = world
		}
		d.log.Info("memory runtime in use; instances of these backends exist in files only", "backends", c.Backends, "directory",
			c.Directory)
	}
	if len(live) == 0 {
		d.log.Warn("no runtime configured; add ssh: {key: /PATH, known_hosts: /PATH} for hosts, or memory_runtime: {directory: PATH, " +
			"backends: [" + backends.Names()[0] + "]} for a trial without hosts")
	}
	return live, nil
}

// Hosts returns the hosts that the section ssh reaches, with no connection yet; nil: there is no
// such section. hostKey returns the key that the Node document of a node pins, or "".
func (c *Config) Hosts(hostKey func(node string) string, log *slog.Logger) (runtimes.Hosts, error) {
	if c.SSH == nil {
		return nil, nil
	}
	limit := c.SSH.limits().Command
	hosts, err := host.NewSSH(host.SSHOptions{
		User: c.SSH.User, KeyFile: c.SSH.Key, KnownHosts: c.SSH.KnownHosts, HostKey: hostKey,
		DialTimeout: limit, KeepAlive: limit, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("ssh: %w", err)
	}
	return hosts, nil
}

// observeLimit returns the limit of one observation of an instance: a few commands on hosts
// that do not answer; 0: the default.
func (c *Config) observeLimit() time.Duration {
	if c.SSH == nil {
		return 0
	}
	return 4 * c.SSH.limits().Command
}

// hostKey returns the key that a Node document in force pins, or "".
func (d *controller) hostKey(node string) string {
	if n := d.loop.Node(node); n != nil {
		return n.Spec.HostKey
	}
	return ""
}

// close releases the resources of newController. It ignores errors: no caller can
// act on them.
func (d *controller) close() {
	if d.hosts != nil {
		_ = d.hosts.Close()
	}
	if d.repo != nil {
		_ = d.repo.Close()
	}
}

// ready reports whether the loop has taken leadership and decided a commit.
func (d *controller) ready() bool {
	select {
	case <-d.loop.Ready():
		return true
	default:
		return false
	}
}

// reportingForge is a forge that calls hooks.reporting around each report.
type reportingForge struct {
	reconciler.Forge
	reporting func(commit, check string) (reported func())
}

func (f *reportingForge) Report(ctx context.Context, commit string, c plan.Check) error {
	reported := func() {}
	if f.reporting != nil {
		reported = f.reporting(commit, c.Name)
	}
	err := f.Forge.Report(ctx, commit, c)
	if err == nil {
		reported()
	}
	return err
}
