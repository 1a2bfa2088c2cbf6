package gitrepo

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
	"berth/schema"
)

// BranchComposed is the estate where tenants have repositories of their own
// (requirement F8): the platform's tree with each such tenant's tree in its
// place. Only Berth writes it. Its first parents are one commit for each commit
// that was taken over from a source; each has that commit as its last parent and
// says so in a trailer. Where no tenant has a repository there is no such branch,
// and the estate is the branch people merge to.
const BranchComposed = "berth/main"

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
	Auth       AuthFunc
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
	*Repo
	composer *composer
}

var _ reconciler.Repo = (*Composed)(nil)

// OpenComposed is Open for an estate that may be composed.
func OpenComposed(ctx context.Context, o Options, c Composition) (*Composed, error) {
	if c.Wait == 0 {
		c.Wait = defaultWait
	}
	if c.MaxTenant == 0 {
		c.MaxTenant = defaultMaxTenant
	}
	if c.Document == nil {
		c.Document = func(context.Context, string, []byte) (*TenantRepository, bool) { return nil, true }
	}
	k := &composer{
		composition: c, links: map[plumbing.Hash]link{}, composedOf: map[plumbing.Hash]plumbing.Hash{},
		sources: map[string]*source{}, refused: map[string]error{}, named: map[string]naming{},
		good: make(chan struct{}, fetchers), bad: make(chan struct{}, fetchers),
	}
	o.composer = k
	r, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, t := range c.Tenants {
		to := Options{
			URL: t.URL, Auth: t.Auth, KnownHosts: t.KnownHosts, AllowHTTP: t.AllowHTTP,
			Dir: filepath.Join(o.Dir, "tenants", t.Name), Timeout: o.Timeout, MaxPull: c.MaxTenant, Log: r.options.Log, Now: o.Now, tenant: true,
		}
		if _, err = newRemote(t.URL, t.Auth, to); err == nil && (!schema.ValidName(t.Name) || k.sources[t.Name] != nil) {
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
	if h, err := parseID(commit); err == nil {
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
		h, err := parseID(source)
		if err != nil {
			return nil, err
		}
		s, err := c.commit(h)
		if err != nil {
			return nil, err
		}
		said := s.public()
		commits[i].Subject, commits[i].Author, commits[i].Email = said.Subject, said.Author, said.Email
	}
	return commits, nil
}

// Merge merges head, a commit of the platform's repository, into the platform's
// side of base, and composes that with the tenants' as they are in base.
func (c *Composed) Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error) {
	h, err := parseID(base)
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
	root, err := parseID(merged)
	if err != nil {
		return "", nil, err
	}
	whole, err := c.commit(h)
	if err != nil {
		return "", nil, fmt.Errorf("merge: %w", err)
	}
	st.tree = whole.tree
	b := builder{repo: c.Repo}
	if root, _, err = b.platform(st, root, c.composer.returns(ctx, &b)); err == nil {
		err = c.putScratch(b.set.pack())
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
	if h, err := parseID(commit); err == nil {
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

// putScratch stores a pack of what no branch holds.
func (r *Repo) putScratch(pack []byte) error {
	if len(pack) <= emptyPack {
		return nil
	}
	r.swap.RLock()
	defer r.swap.RUnlock()
	return r.scratch.put(pack)
}

// source is one tenant's repository. All but what a fetch in flight leaves behind
// is the fetching estate's, which is one at a time.
type source struct {
	Tenant
	options Options

	repo   *Repo         // for options.Branch; nil: not opened yet
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
func (s *source) begin(k *composer, branch string) {
	if s.flight != nil && !s.taken {
		return
	}
	if s.repo != nil && s.repo.options.Branch != branch {
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
		r, err := Open(ctx, o)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		s.repo = r
	}
	at, err := s.repo.Fetch(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return parseID(at.Main)
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

// bringTenant fetches a tenant's branch into the mirror, unless it is there or was
// refused a while ago.
func (r *Repo) bringTenant(ctx context.Context, d *download, have, want plumbing.Hash) error {
	branch := "refs/heads/" + r.options.Branch
	if r.mirror.has(want) {
		return nil
	}
	if err := r.refused(branch, want); err != nil {
		return err
	}
	o := order{into: r.mirror, wants: []plumbing.Hash{want}, limit: r.options.MaxPull, strict: true}
	if r.mirror.has(have) {
		o.haves = []plumbing.Hash{have}
	}
	_, err := d.fetch(ctx, o)
	switch {
	case errors.Is(err, errTooLarge):
		err = fmt.Errorf("%s: branch %s brings more than %s, the limit for a tenant's repository; take the large files out of its history: %w",
			r.main.url, r.options.Branch, inMiB(r.options.MaxPull), reconciler.ErrRefused)
		r.refuse(branch, want, scratchAge, err)
	case errors.Is(err, errStore): // by its fault, or for want of space
		r.refuse(branch, want, storeAgain, err)
	}
	if err != nil {
		return err
	}
	if _, err := r.rootEntries(want); err != nil {
		r.refuse(branch, want, storeAgain, err)
		return err
	}
	return nil
}

// logged says, once for each reason, what is refused of whom.
func (k *composer) logged(ctx context.Context, log *slog.Logger, refused map[string]error) {
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
