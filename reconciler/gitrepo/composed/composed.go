package composed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

const (
	// defaultMaxTenant bounds one fetch of a tenant's repository in bytes.
	defaultMaxTenant = 64 << 20
	// defaultWait is the time that a fetch waits for tenants' repositories.
	defaultWait = 3 * time.Second
	// maxImports bounds the commits of one tenant composed by one fetch; the next
	// fetch continues.
	maxImports = 100
	// fetchers is the number of concurrent fetches. Responsive and unresponsive
	// tenants have separate slots.
	fetchers = 4
)

// Tenant is a tenant whose documents may come from its own repository.
type Tenant struct {
	Name       string
	URL        string // as in Options; must equal the URL in tenant.yaml
	Auth       gitrepo.AuthFunc
	KnownHosts string
	AllowHTTP  bool
	// Accept is the commit of a rewritten branch that an operator reviewed and
	// accepts.
	Accept string
}

// TenantRepository is the repository that a tenant.yaml names.
type TenantRepository struct{ URL, Branch string }

func (t TenantRepository) String() string { return t.URL + " " + t.Branch }

// Composition configures how an estate is composed.
type Composition struct {
	Tenants []Tenant
	// Document parses a tenant.yaml. It returns nil if the document names no
	// repository, and ok is false if the document is invalid. If Document is nil,
	// no tenant has its own repository.
	Document func(ctx context.Context, tenant string, document []byte) (repository *TenantRepository, ok bool)
	// Wait is the time that one Fetch waits for tenants' repositories. A later
	// Fetch composes later results. Zero: three seconds.
	Wait time.Duration
	// MaxTenant bounds the pack size in bytes of one fetch of a tenant's
	// repository. Zero: 64 MiB.
	MaxTenant int64
}

// Composed is an estate in which tenants may have their own repositories. The
// tenant.yaml in force names the repository, and the Composition must list the
// same URL. So neither a commit nor berth.yaml alone makes Berth fetch from a
// URL. If a tenant's repository fails, its tenant tree stays as last composed,
// and Refused holds the reason.
//
// A commit of such a repository does not name its tenant. A user who signs for
// several tenants must know the repository that they sign for.
type Composed struct {
	*gitrepo.Repo
	composer *estateComposer
}

var _ reconciler.Repo = (*Composed)(nil)

// OpenComposed is gitrepo.Open for an estate that may be composed.
func OpenComposed(ctx context.Context, o gitrepo.Options, c Composition) (*Composed, error) {
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.MaxTenant == 0 {
		c.MaxTenant = defaultMaxTenant
	}
	if c.Document == nil {
		c.Document = func(context.Context, string, []byte) (*TenantRepository, bool) { return nil, true }
	}
	k := &estateComposer{
		composition: c, links: map[plumbing.Hash]link{}, composedOf: map[plumbing.Hash]plumbing.Hash{},
		sources: map[string]*source{}, refused: map[string]error{}, named: map[string]naming{},
		good: make(chan struct{}, fetchers), bad: make(chan struct{}, fetchers),
	}
	o.Composer = k
	r, err := gitrepo.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, t := range c.Tenants {
		to := gitrepo.Options{
			URL: t.URL, Auth: t.Auth, KnownHosts: t.KnownHosts, AllowHTTP: t.AllowHTTP,
			Dir: filepath.Join(o.Dir, "tenants", t.Name), Timeout: o.Timeout, MaxPull: c.MaxTenant, Log: r.Options.Log, Now: o.Now,
			Tenant: true,
		}
		if err = gitrepo.CheckURL(to); err == nil && (!schema.ValidName(t.Name) || k.sources[t.Name] != nil) {
			err = errors.New("the name is not a valid tenant name, or is listed twice")
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tenant %q: %w", t.Name, err), r.Close())
		}
		k.sources[t.Name] = &source{Tenant: t, options: to}
	}
	k.running, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	return &Composed{Repo: r, composer: k}, nil
}

// Close ends all fetches and closes the mirrors.
func (c *Composed) Close() error {
	c.composer.stop()
	var errs []error
	for _, s := range c.composer.sources {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, c.Repo.Close())...)
}

// Refused returns, by tenant, why the last fetch did not compose its repository.
func (c *Composed) Refused() map[string]error {
	c.composer.mu.RLock()
	defer c.composer.mu.RUnlock()
	return maps.Clone(c.composer.refused)
}

// SourceOf returns the source of a composed commit and the tenant whose
// repository holds the source; "" is the platform. Any other commit is its own
// source.
func (c *Composed) SourceOf(commit string) (tenant, source string) {
	if h, err := object.ParseID(commit); err == nil {
		if l, ok := c.composer.link(h); ok {
			return l.tenant, l.source.String()
		}
	}
	return "", commit
}

// Evidence returns the evidence of a commit's source.
func (c *Composed) Evidence(ctx context.Context, id string) (reconciler.Evidence, error) {
	tenant, source := c.SourceOf(id)
	e, err := c.Repo.Evidence(ctx, source)
	e.Tenant = tenant
	return e, err
}

// Log is gitrepo.Repo.Log with subject and author of each commit's source.
func (c *Composed) Log(ctx context.Context, from, to string, limit int) ([]reconciler.Commit, error) {
	commits, err := c.Repo.Log(ctx, from, to, limit)
	if err != nil {
		return nil, err
	}
	for i := range commits {
		_, source := c.SourceOf(commits[i].ID)
		if source == commits[i].ID {
			continue
		}
		h, err := object.ParseID(source)
		if err != nil {
			return nil, err
		}
		s, err := c.Commit(h)
		if err != nil {
			return nil, err
		}
		said := s.Public()
		commits[i].Subject, commits[i].Author, commits[i].Email = said.Subject, said.Author, said.Email
	}
	return commits, nil
}

// Merge merges head, a commit of the platform's repository, into the platform's
// side of base. It composes the result with the tenant trees in base.
func (c *Composed) Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error) {
	h, err := object.ParseID(base)
	if err != nil {
		return "", nil, fmt.Errorf("merge: %w", err)
	}
	st, ok := c.composer.stateOf(h)
	if !ok {
		return c.Repo.Merge(ctx, base, head)
	}
	merged, conflicts, err := c.Repo.Merge(ctx, st.platform.String(), head)
	if err != nil || len(conflicts) > 0 {
		return "", conflicts, err
	}
	root, err := object.ParseID(merged)
	if err != nil {
		return "", nil, err
	}
	whole, err := c.Commit(h)
	if err != nil {
		return "", nil, fmt.Errorf("merge: %w", err)
	}
	st.tree = whole.Tree
	b := builder{repo: c.Reader}
	if root, _, err = b.platform(st, root, c.composer.returns(ctx, &b)); err == nil {
		err = c.PutScratch(b.set.Pack())
	}
	if err != nil {
		return "", nil, fmt.Errorf("merge %s into %s: %w", head, base, err)
	}
	return root.String(), nil, nil
}

// Forge wraps a forge of the platform's repository for the reconcile loop. It
// translates commits of the estate to their sources and back. It returns no pull
// requests for commits of tenants' repositories.
func (c *Composed) Forge(f reconciler.Forge) reconciler.Forge { return &composedForge{f, c} }

type composedForge struct {
	reconciler.Forge
	repo *Composed
}

// Pull returns a pull request with its merge commit in the estate.
func (f *composedForge) Pull(ctx context.Context, number int) (reconciler.PullRequest, error) {
	pr, err := f.Forge.Pull(ctx, number)
	pr.MergeCommit = f.merged(pr.MergeCommit)
	return pr, err
}

// merged returns the composed commit of a merge commit.
func (f *composedForge) merged(commit string) string {
	if h, err := object.ParseID(commit); err == nil {
		return f.repo.composer.composed(h).String()
	}
	return commit
}

// PullsOf lists the merged pull requests that contain the source of a commit.
func (f *composedForge) PullsOf(ctx context.Context, commit string) ([]reconciler.PullRequest, error) {
	tenant, source := f.repo.SourceOf(commit)
	if tenant != "" {
		return nil, nil
	}
	prs, err := f.Forge.PullsOf(ctx, source)
	out := slices.Clone(prs)
	for i := range out {
		out[i].MergeCommit = f.merged(out[i].MergeCommit)
	}
	return out, err
}

// source is one tenant's repository. One estate fetch at a time uses it; a fetch
// in flight writes only tip, err and repo.
type source struct {
	Tenant
	options gitrepo.Options

	repo   *gitrepo.Repo // for options.Branch; nil: not opened yet
	flight chan struct{} // closed when the fetch ends
	taken  bool          // the result was used
	failed bool          // the last fetch failed or was late

	tip plumbing.Hash // result of the fetch, once flight is closed
	err error

	unpushed plumbing.Hash // tip that could not be pushed to the estate's remote
	why      error         // error of that push
	until    time.Time     // time of the next attempt
}

// begin starts a fetch of a branch, unless an unused result or a fetch exists.
func (s *source) begin(k *estateComposer, branch string) {
	if s.flight != nil && !s.taken {
		return
	}
	if s.repo != nil && s.repo.Options.Branch != branch {
		s.err = s.repo.Close()
		s.repo = nil
	}
	slots := k.good
	if s.failed {
		slots = k.bad
	}
	flight := make(chan struct{})
	s.flight, s.taken = flight, false
	go func() {
		defer close(flight)
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-k.running.Done():
			s.err = k.running.Err()
			return
		}
		s.tip, s.err = s.fetch(k.running, branch)
	}()
}

func (s *source) fetch(ctx context.Context, branch string) (plumbing.Hash, error) {
	if s.repo == nil {
		o := s.options
		o.Branch = branch
		r, err := gitrepo.Open(ctx, o)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		s.repo = r
	}
	at, err := s.repo.Fetch(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return object.ParseID(at.Main)
}

// await waits for the fetch until late, or until soon if the last fetch failed.
// It returns false on a timeout.
func (s *source) await(soon, late <-chan struct{}) bool {
	give := late
	if s.failed {
		give = soon
	}
	select {
	case <-s.flight:
	case <-give:
		s.failed = true
		return false
	}
	s.failed, s.taken = s.err != nil, true
	return true
}

func (s *source) close() error {
	if s.flight != nil {
		<-s.flight
	}
	if s.repo == nil {
		return nil
	}
	return s.repo.Close()
}

// logged logs each new reason why a tenant's repository is refused.
func (k *estateComposer) logged(ctx context.Context, log *slog.Logger, refused map[string]error) {
	k.mu.Lock()
	before := k.refused
	k.refused = refused
	k.mu.Unlock()
	for _, t := range slices.Sorted(maps.Keys(refused)) {
		if was := before[t]; was == nil || was.Error() != refused[t].Error() {
			log.WarnContext(ctx, "tenant repository not composed; the tenant tree stays as last composed", "tenant", t, "error",
				refused[t].Error())
		}
	}
}

// Patch is gitrepo.Repo.Patch within the platform's repository, which contains
// head. The merge is that of the whole estate.
func (c *Composed) Patch(ctx context.Context, base, head string) (string, error) {
	h, err := object.ParseID(base)
	if err != nil {
		return "", fmt.Errorf("patch: %w", err)
	}
	merge := func() (string, []string, error) { return c.Merge(ctx, base, head) }
	if st, ok := c.composer.stateOf(h); ok {
		return c.PatchMerged(ctx, st.platform.String(), head, merge)
	}
	return c.PatchMerged(ctx, base, head, merge)
}
