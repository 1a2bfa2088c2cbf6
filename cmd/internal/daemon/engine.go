package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/loop"
	"berth/reconciler/patch"
	"berth/reconciler/pulls"
	"berth/reconciler/report"
	"berth/runtimes"
	"berth/runtimes/backends"
	"berth/runtimes/host"
	"berth/runtimes/memory"
	"berth/schema"
	schemaestate "berth/schema/estate"
	"berth/schema/signature"
	"berth/webhooks/github"
)

// daemon is everything wired together for one estate.
type daemon struct {
	config *config
	log    *slog.Logger
	loop   *loop.Reconciler
	repo   *gitrepo.Composed
	forge  *github.Forge  // nil: none configured
	hosts  runtimes.Hosts // nil: no ssh configured
	reg    *prometheus.Registry

	work       workLog     // what was done to instances
	deliveries *deliveries // nil: nobody is told of what is shown
}

// newDaemon wires it. looking, if not nil, is told what the loop looks at; owed, if
// not nil, is what it has to record besides.
func newDaemon(ctx context.Context, c *config, log *slog.Logger, looking func(reconciler.Item) func(bool), owed reconciler.Owed) (d *daemon, err error) {
	made := &daemon{config: c, log: log, reg: prometheus.NewRegistry()}
	d = made
	defer func() {
		if err != nil {
			made.close() // d is nil by now
		}
	}()

	live, err := d.runtimes()
	if err != nil {
		return nil, err
	}
	for backend, r := range live {
		live[backend] = recordingRuntime{r, &d.work}
	}
	loader, err := schemaestate.New(schemaestate.Options{Backends: backends.Definitions()})
	if err != nil {
		return nil, err
	}
	tokens := &forgeTokens{}
	if c.GitHub != nil {
		if tokens, err = c.forgeTokens(); err != nil {
			return nil, err
		}
	}
	sign, err := c.signing(log)
	if err != nil {
		return nil, err
	}
	if d.repo, err = gitrepo.OpenComposed(ctx, gitrepo.Options{
		URL: c.Repository.URL, Dir: c.Repository.Directory, Branch: c.Repository.Branch, Log: log,
		StatusURL: c.Repository.StatusURL, KnownHosts: c.Repository.KnownHosts, AllowHTTP: c.Repository.AllowHTTP,
		Sign:       sign,
		Auth:       c.repositoryAuth(tokens.git),
		StatusAuth: c.gitAuth("repository.status_token", c.Repository.StatusURL, c.Repository.Username, c.Repository.StatusToken),
	}, c.composition(loader)); err != nil {
		return nil, fmt.Errorf("repository: %w", err)
	}
	var repo reconciler.Repo = d.repo
	if c.Repository.Accept != "" {
		repo = &accepting{Composed: d.repo, commit: c.Repository.Accept, log: log}
	}
	var forge reconciler.Forge
	if gh := c.GitHub; gh != nil {
		if d.forge, err = github.New(github.Options{
			BaseURL: gh.APIURL, Owner: gh.Owner, Repo: gh.Repository, Estate: c.Estate, Login: gh.Login, Report: github.Report(gh.Report), Token: tokens.speak, App: tokens.app, Pacer: tokens.pacer,
			Log: log, Registry: d.reg,
		}); err != nil {
			return nil, fmt.Errorf("github: %w", err)
		}
		forge = &telling{d.repo.Forge(d.forge), d}
	}
	if c.isLocal() {
		log.Info("local repository in use, for trial; there are no pull requests", "url", c.Repository.URL)
	}
	var who *decide.Authority
	switch {
	case c.Authority.TrustLocalCommits:
		log.Warn("authority.trust_local_commits: whoever can commit to the local repository may change everything", "url", c.Repository.URL)
	case c.Authority.TrustMain:
		log.Warn("authority.trust_main: whoever can push to the branch may change everything")
	default:
		who = &decide.Authority{Administrators: c.Authority.Administrators, AdministratorKeys: c.Authority.AdministratorKeys, NoForge: c.GitHub == nil}
	}
	d.loop = loop.New(loop.Options{
		Authority: who, Accept: c.Repository.Accept,
		Rules:     []func(before, after *schema.Desired) []schema.Diagnostic{schema.Lifecycle, c.Features.gate},
		Artifacts: c.Artifacts.looker(), ArtifactInterval: c.Artifacts.interval(), Dates: c.API != nil, Retention: c.retention(),
		Repo: repo, Forge: forge, Render: rendering(), Loader: loader, Runtimes: live,
		Interval: time.Duration(c.Interval), Poll: time.Duration(c.Poll), Flush: time.Duration(c.FlushWindow),
		Workers: c.Workers, MaxAttempts: c.MaxAttempts, Log: log, Metrics: loop.NewMetrics(d.reg), Looking: looking, Owed: owed,
	})
	return d, nil
}

// retention is for how long deleted instances can be read; without the read API
// nobody reads them.
func (c *config) retention() time.Duration {
	if c.API == nil {
		return -1
	}
	return time.Duration(c.Retention)
}

// signing is how commits on berth/status and berth/in-force are signed; nil: they
// are not, which is logged.
func (c *config) signing(log *slog.Logger) (func([]byte) ([]byte, error), error) {
	file := c.Repository.SigningKey
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

// rendering is how the loop says at the forge what it knows.
func rendering() pulls.Render {
	return pulls.Render{Checks: report.Checks, Key: report.Key, Plan: report.Plan, Rollout: report.Rollout, Answer: report.Answer, Lines: patch.Lines}
}

// runtimes are those the configuration gives something to work with.
func (d *daemon) runtimes() (map[string]runtimes.Runtime, error) {
	live := map[string]runtimes.Runtime{}
	if c := d.config.SSH; c != nil {
		var err error
		d.hosts, err = host.NewSSH(host.SSHOptions{User: c.User, KeyFile: c.Key, KnownHosts: c.KnownHosts, HostKey: d.hostKey, Log: d.log})
		if err != nil {
			return nil, fmt.Errorf("ssh: %w", err)
		}
		for _, b := range backends.All() {
			live[b.Name()] = b.New(d.hosts)
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
		d.log.Warn("memory runtime in use; instances of these backends exist in files only", "backends", c.Backends, "directory", c.Directory)
	}
	if len(live) == 0 {
		d.log.Warn("no runtime configured; add ssh: {key: /PATH, known_hosts: /PATH} for hosts, or memory_runtime: {directory: PATH, backends: [" + backends.Names()[0] + "]} for a trial without hosts")
	}
	return live, nil
}

// hostKey is the key a Node document pins, as it is in force.
func (d *daemon) hostKey(node string) string {
	if n := d.loop.Node(node); n != nil {
		return n.Spec.HostKey
	}
	return ""
}

// close gives up what newDaemon took. Errors at this point help nobody.
func (d *daemon) close() {
	if d.hosts != nil {
		_ = d.hosts.Close()
	}
	if d.repo != nil {
		_ = d.repo.Close()
	}
}

// ready: the daemon leads and has decided a commit.
func (d *daemon) ready() bool {
	select {
	case <-d.loop.Ready():
		return true
	default:
		return false
	}
}

// Why sync --once ends although something is not converged.
var (
	errStuck   = errors.New("waiting does not help")
	errTimeout = errors.New("the timeout passed")
)

// once runs the loop until nothing is left to do, waiting does not help or the
// timeout passed; then it returns what is left.
func (d *daemon) once(ctx context.Context, timeout time.Duration) ([]loop.Left, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- d.loop.Run(run) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return d.loop.Unsettled(), errTimeout
			}
			if err == nil {
				err = ctx.Err()
			}
			return nil, err
		case <-tick.C:
		}
		if err := d.loop.OperatorError(); err != nil {
			stop()
			return nil, errors.Join(err, <-ended)
		}
		left := d.loop.Unsettled()
		stuck := !slices.ContainsFunc(left, func(l loop.Left) bool { return !l.Stuck })
		if !stuck && ctx.Err() == nil {
			continue
		}
		stop()
		if err := <-ended; err != nil {
			return nil, err
		}
		switch {
		case len(left) == 0:
			return nil, nil
		case stuck:
			return left, errStuck
		}
		return left, errTimeout
	}
}

// checkConfigs reads the configurations and the files that they name, and nothing
// else.
func CheckConfigs(out io.Writer, paths []string) error {
	all, err := readConfigs(paths)
	if err != nil {
		return err
	}
	var wrong []error
	for i, c := range all {
		if err := c.usable(); err != nil {
			wrong = append(wrong, fmt.Errorf("configuration: %s: %w", paths[i], err))
			continue
		}
		if _, err := fmt.Fprintf(out, "%s: valid; estate %s, repository %s\n", paths[i], c.Estate, c.Repository.URL); err != nil {
			return err
		}
	}
	if wrong != nil {
		return errors.Join(wrong...)
	}
	return nil
}
