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
	// defaultMaxTenant is what one fetch of a tenant's repository may bring.
	defaultMaxTenant = 64 << 20
	// defaultWait is how long a fetch waits for tenants' repositories.
	defaultWait = 3 * time.Second
	// maxImports bounds how many commits of a tenant are taken over by one fetch;
	// the next one goes on.
	maxImports = 100
	// fetchers are how many tenants are fetched from at once: as many of those
	// that answered the last time, and as many of those that did not.
	fetchers = 4
)

// Tenant is a tenant whose documents may come from a repository of its own.
type Tenant struct {
	Name       string
	URL        string // as in Options; what its tenant.yaml says must be the same
	Auth       gitrepo.AuthFunc
	KnownHosts string
	AllowHTTP  bool
	// Accept is the commit of a rewritten branch that an operator looked at and
	// takes over.
	Accept string
}

// TenantRepository is what a tenant.yaml says of where the tenant's documents are.
type TenantRepository struct{ URL, Branch string }

func (t TenantRepository) String() string { return t.URL + " " + t.Branch }

// Composition says what an estate is composed of.
type Composition struct {
	Tenants []Tenant
	// Document reads a tenant.yaml; nil if it names no repository, and not ok if it
	// is not valid. Nil: none names one.
	Document func(ctx context.Context, tenant string, document []byte) (repository *TenantRepository, ok bool)
	// Wait is how long one Fetch waits for tenants' repositories; what is fetched
	// later is taken over by a later one. Zero: three seconds.
	Wait time.Duration
	// MaxTenant bounds what one fetch of a tenant's repository brings, in bytes of a
	// pack. Zero: 64 MiB.
	MaxTenant int64
}

// Composed is an estate of which tenants have repositories of their own. Which
// tenants these are the tenant.yaml in force says, and the Composition must list
// the same URL: neither a commit nor berth.yaml alone makes Berth fetch from
// anywhere. Whatever is wrong with one tenant's repository, its part of the estate
// stays as it was last composed, and Refused says why.
//
// A commit of such a repository says the same wherever its tenant's directory is:
// who may sign for several tenants has to know which repository they sign for.
type Composed struct {
	*gitrepo.Repo
	composer *estateComposer
}

var _ reconciler.Repo = (*Composed)(nil)

// OpenComposed is Open for an estate that may be composed.
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
			Dir: filepath.Join(o.Dir, "tenants", t.Name), Timeout: o.Timeout, MaxPull: c.MaxTenant, Log: r.Options.Log, Now: o.Now, Tenant: true,
		}
		if err = gitrepo.CheckURL(to); err == nil && (!schema.ValidName(t.Name) || k.sources[t.Name] != nil) {
			err = errors.New("a name must be a tenant's and stand there once")
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("tenant %q: %w", t.Name, err), r.Close())
		}
		k.sources[t.Name] = &source{Tenant: t, options: to}
	}
	k.running, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	return &Composed{Repo: r, composer: k}, nil
}

// Close gives the mirrors' files back.
func (c *Composed) Close() error {
	c.composer.stop()
	var errs []error
	for _, s := range c.composer.sources {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, c.Repo.Close())...)
}

// Refused says of each tenant whose repository was not taken over at the last
// fetch why that is.
func (c *Composed) Refused() map[string]error {
	c.composer.mu.RLock()
	defer c.composer.mu.RUnlock()
	return maps.Clone(c.composer.refused)
}

// SourceOf is the commit that a commit of the estate was made of, and the tenant
// whose repository holds it, "" for the platform's. A commit that was not composed
// is its own source.
func (c *Composed) SourceOf(commit string) (tenant, source string) {
	if h, err := object.ParseID(commit); err == nil {
		if l, ok := c.composer.link(h); ok {
			return l.tenant, l.source.String()
		}
	}
	return "", commit
}

// Evidence is what the source of a commit says of who made it.
func (c *Composed) Evidence(ctx context.Context, id string) (reconciler.Evidence, error) {
	tenant, source := c.SourceOf(id)
	e, err := c.Repo.Evidence(ctx, source)
	e.Tenant = tenant
	return e, err
}

// Log is Log with the words of each commit's source.
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
// side of base, and composes that with the tenants' as they are in base.
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
	b := builder{repo: c.Repo}
	if root, _, err = b.platform(st, root, c.composer.returns(ctx, &b)); err == nil {
		err = c.PutScratch(b.set.Pack())
	}
	if err != nil {
		return "", nil, fmt.Errorf("merge %s into %s: %w", head, base, err)
	}
	return root.String(), nil, nil
}

// Forge is a forge of the platform's repository as the loop wants it: it is asked
// of sources, and answers with commits of the estate. Of the commits of tenants'
// repositories it knows nothing.
func (c *Composed) Forge(f reconciler.Forge) reconciler.Forge { return &composedForge{f, c} }

type composedForge struct {
	reconciler.Forge
	repo *Composed
}

// Pull is a pull request, merged as a commit of the estate.
func (f *composedForge) Pull(ctx context.Context, number int) (reconciler.PullRequest, error) {
	pr, err := f.Forge.Pull(ctx, number)
	pr.MergeCommit = f.merged(pr.MergeCommit)
	return pr, err
}

// merged is the commit of the estate that was made of a merge.
func (f *composedForge) merged(commit string) string {
	if h, err := object.ParseID(commit); err == nil {
		return f.repo.composer.composed(h).String()
	}
	return commit
}

// PullsOf lists the merged pull requests that the source of a commit belongs to.
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

// source is one tenant's repository. All but what a fetch in flight leaves behind
// is the fetching estate's, which is one at a time.
type source struct {
	Tenant
	options gitrepo.Options

	repo   *gitrepo.Repo // for options.Branch; nil: not opened yet
	flight chan struct{} // closed when the fetch ends
	taken  bool          // what it came to was looked at
	failed bool          // the last one did not get through, or not in time

	tip plumbing.Hash // what it came to, once flight is closed
	err error

	unpushed plumbing.Hash // the estate's remote did not take what is new up to here,
	why      error         // for this reason
	until    time.Time     // it is tried again then
}

// begin starts a fetch of a branch, unless there is one nobody has looked at.
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

// await waits for the fetch until late, or, if the last one did not get through,
// until soon. It says false if that came first.
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

// logged says, once for each reason, what is refused of whom.
func (k *estateComposer) logged(ctx context.Context, log *slog.Logger, refused map[string]error) {
	k.mu.Lock()
	before := k.refused
	k.refused = refused
	k.mu.Unlock()
	for _, t := range slices.Sorted(maps.Keys(refused)) {
		if was := before[t]; was == nil || was.Error() != refused[t].Error() {
			log.WarnContext(ctx, "the tenant's repository is not taken over: its part of the estate stays as it was", "tenant", t, "error", refused[t].Error())
		}
	}
}

// Patch is Patch within the platform's repository, which head is a commit of;
// merged is the estate as a whole.
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
