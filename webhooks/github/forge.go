package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	gh "github.com/google/go-github/v62/github"
	"github.com/prometheus/client_golang/prometheus"

	"berth/reconciler"
	"berth/webhooks/forge"
)

// TokenSource returns the token for the next request, and may renew it. It is called for
// each request, and once more after the forge refused a token; it must be safe for
// concurrent use.
type TokenSource func(context.Context) (string, error)

// refusedKey is the context key of the token that the forge refused last.
type refusedKey struct{}

// Report is how checks are shown on a commit.
type Report string

// Only a GitHub App may write check runs. With a personal token Berth writes commit
// statuses, and findings are in the comment alone. Never write both under one name:
// a branch rule would require both.
const (
	Checks   Report = "checks"
	Statuses Report = "statuses"
)

// Clock is the time that a Forge waits by; nil functions: the real time.
type Clock struct {
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
}

// Options of a Forge. Fields without a stated zero value are needed.
type Options struct {
	// BaseURL of the REST API: "https://api.github.com/"; that of a GitHub Enterprise
	// Server ends in /api/v3/.
	BaseURL     string
	Owner, Repo string
	// Estate separates the comments and check runs of several estates with the same
	// account (not statuses). "estate" if empty.
	Estate string
	// Token needs no permission for contents.
	Token TokenSource
	// App authenticates as the GitHub App itself, to read the log of its deliveries;
	// nil: the logs of the repository's webhooks are read.
	App TokenSource
	// Pacer is shared by all users of Token's credential; nil: this Forge alone uses it.
	Pacer *Pacer
	// Login is the token's account, by which Berth recognises its own writes: for an App
	// its slug and "[bot]", such as "berth-lab[bot]". If empty, Berth asks GitHub, which
	// works with personal tokens only.
	Login string
	// Report is Checks if empty.
	Report Report

	Transport http.RoundTripper // http.DefaultTransport if nil
	// Timeout of one request with its answer; 15 s if zero.
	Timeout time.Duration
	// MaxWait is the longest that a call waits for a rate limit before it returns a
	// *LimitError. 30 s if zero.
	MaxWait time.Duration
	Clock   Clock

	Log      *slog.Logger
	Registry prometheus.Registerer // nil: metrics are not registered
}

// Forge is one repository on GitHub. Safe for concurrent use; calls that write
// about the same commit or pull request wait for each other.
type Forge struct {
	*repository
	*checks
	*comments
	*commands
	*deliveryLog
}

// repository is the access to one repository, and what all parts of a Forge share.
type repository struct {
	o      Options
	client *gh.Client
	app    *gh.Client // authenticated as the App; nil: no App
	busy   keyedLock

	loginMu sync.Mutex
	login   string // once known
}

// Forge implements the daemon's port, which has the loop's.
var _ forge.Client = (*Forge)(nil)

// New checks o and makes a Forge. It sends no request.
func New(o Options) (*Forge, error) {
	base, err := baseURL(o.BaseURL)
	if err != nil {
		return nil, err
	}
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	r := &repository{o: o, login: o.Login, client: newClient(base, newTransport(o, base, o.Token, o.Pacer, m))}
	if o.App != nil {
		r.app = newClient(base, newTransport(o, base, o.App, NewPacer(), m))
	}
	return &Forge{
		repository: r, checks: &checks{repository: r, rerun: map[string]map[string]int64{}},
		comments: &comments{repository: r, ids: map[int]int64{}}, commands: &commands{repository: r, answered: map[int64]bool{}},
		deliveryLog: &deliveryLog{r},
	}, nil
}

// baseURL parses the address of the API.
func baseURL(s string) (*url.URL, error) {
	base, err := url.Parse(s)
	if err != nil || base.Host == "" || (base.Scheme != "https" && base.Scheme != "http") || base.User != nil {
		return nil, errors.New("github: base_url must be an http or https URL without a login, such as https://api.github.com/")
	}
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	return base, nil
}

func (o *Options) setDefaults() {
	o.Estate, o.Report = cmp.Or(o.Estate, "estate"), cmp.Or(o.Report, Checks)
	o.Timeout, o.MaxWait = cmp.Or(o.Timeout, 15*time.Second), cmp.Or(o.MaxWait, 30*time.Second)
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	if o.Clock.Now == nil {
		o.Clock.Now = time.Now
	}
	if o.Clock.Sleep == nil {
		o.Clock.Sleep = sleep
	}
	if o.Pacer == nil {
		o.Pacer = NewPacer()
	}
}

func (o *Options) check() error {
	switch {
	case !name(o.Owner) || !name(o.Repo):
		return fmt.Errorf("github: %q/%q is not a valid repository name", o.Owner, o.Repo)
	case !name(o.Estate) || len(o.Estate) > maxEstate:
		return fmt.Errorf("github: %q is not a valid estate name", o.Estate)
	case o.Token == nil || o.Log == nil:
		return errors.New("github: Token and Log are needed")
	case o.Report != Checks && o.Report != Statuses:
		return fmt.Errorf("github: report must be %q or %q, not %q", Checks, Statuses, o.Report)
	}
	return nil
}

func newClient(base *url.URL, t http.RoundTripper) *gh.Client {
	c := gh.NewClient(&http.Client{
		Transport: t,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it redirects to host %s: if the repository moved, put its new URL into the configuration", r.URL.Host)
		},
	})
	c.BaseURL = base
	c.UserAgent = "berth"
	return c
}

// name says whether s is valid as the owner or name of a repository in a URL path.
func name(s string) bool {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
	}
	return s != "" && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool { return !ok(r) })
}

// maxEstate leaves room for the key in an external_id.
const maxEstate = 50

// pageSize is GitHub's maximum; maxPages ends an endless listing.
const (
	pageSize = 100
	maxPages = 200
)

// each calls one for each page.
func (f *repository) each(one func(gh.ListOptions) (*gh.Response, error)) error {
	opt := gh.ListOptions{PerPage: pageSize}
	for range maxPages {
		resp, err := one(opt)
		if err != nil || resp.NextPage == 0 {
			return err
		}
		opt.Page = resp.NextPage
	}
	return fmt.Errorf("more than %d pages", maxPages)
}

// pages is each with what in its errors.
func (f *repository) pages(what string, one func(gh.ListOptions) (*gh.Response, error)) error {
	if err := f.each(one); err != nil {
		return fmt.Errorf("github: %s: %w", what, explain(err))
	}
	return nil
}

// OpenPulls lists the open pull requests by number.
func (f *repository) OpenPulls(ctx context.Context) ([]reconciler.PullRequest, error) {
	var out []reconciler.PullRequest
	err := f.pages("list open pull requests", func(o gh.ListOptions) (*gh.Response, error) {
		// By creation, oldest first: new ones are added at the end.
		prs, resp, err := f.client.PullRequests.List(op(ctx, "list_pulls"), f.o.Owner, f.o.Repo,
			&gh.PullRequestListOptions{State: "open", Sort: "created", Direction: "asc", ListOptions: o})
		for _, pr := range prs {
			out = append(out, pull(pr))
		}
		return resp, err
	})
	return byNumber(out), err
}

// Pull reads one pull request; reconciler.ErrNotFound if it does not exist, or the token
// may not read it.
func (f *repository) Pull(ctx context.Context, number int) (reconciler.PullRequest, error) {
	pr, _, err := f.client.PullRequests.Get(op(ctx, "get_pull"), f.o.Owner, f.o.Repo, number)
	if err != nil {
		return reconciler.PullRequest{}, fmt.Errorf("github: read pull request %d: %w", number, missing(err))
	}
	return pull(pr), nil
}

// PullsOf lists the merged pull requests of a commit of main, by number.
func (f *repository) PullsOf(ctx context.Context, commit string) ([]reconciler.PullRequest, error) {
	var out []reconciler.PullRequest
	err := f.pages("list pull requests of commit "+commit, func(o gh.ListOptions) (*gh.Response, error) {
		prs, resp, err := f.client.PullRequests.ListPullRequestsWithCommit(op(ctx, "list_commit_pulls"), f.o.Owner, f.o.Repo, commit, &o)
		for _, pr := range prs {
			if p := pull(pr); p.Merged {
				out = append(out, p)
			}
		}
		return resp, err
	})
	return byNumber(out), err
}

func byNumber(prs []reconciler.PullRequest) []reconciler.PullRequest {
	slices.SortFunc(prs, func(a, b reconciler.PullRequest) int { return cmp.Compare(a.Number, b.Number) })
	return prs
}

func pull(pr *gh.PullRequest) reconciler.PullRequest {
	p := reconciler.PullRequest{
		Number:     pr.GetNumber(),
		Title:      pr.GetTitle(),
		Author:     pr.GetUser().GetLogin(),
		Head:       pr.GetHead().GetSHA(),
		BaseBranch: pr.GetBase().GetRef(),
		Open:       pr.GetState() == "open",
		Merged:     pr.MergedAt != nil, // lists have no field "merged"
		Updated:    pr.GetUpdatedAt().UTC(),
		// A deleted head repository was another one.
		Fork: pr.GetHead().GetRepo().GetID() != pr.GetBase().GetRepo().GetID(),
	}
	if p.Merged { // before a merge, GitHub puts its test merge there
		p.MergeCommit = pr.GetMergeCommitSHA()
	}
	return p
}

// me is the login of Berth's account.
func (f *repository) me(ctx context.Context) (string, error) {
	f.loginMu.Lock()
	login := f.login
	f.loginMu.Unlock()
	if login != "" {
		return login, nil
	}
	u, _, err := f.client.Users.Get(op(ctx, "get_user"), "")
	if err != nil {
		return "", fmt.Errorf("github: read the login of the token (an App has to set it, such as \"berth-lab[bot]\"): %w", explain(err))
	}
	f.loginMu.Lock()
	defer f.loginMu.Unlock()
	f.login = u.GetLogin()
	return f.login, nil
}

// Attempts of one write whose outcome is unknown.
const attempts = 3

// converge calls step, which reads and then writes the missing part. If the outcome of a
// write is unknown (a server error, a lost reply), step is called again and finds out by
// reading. So nothing is written twice.
func (f *repository) converge(ctx context.Context, step func() error) error {
	var err error
	for i := range attempts {
		if i > 0 {
			if e := f.o.Clock.Sleep(ctx, time.Duration(1<<i)*250*time.Millisecond); e != nil {
				return errors.Join(err, e)
			}
		}
		if err = step(); err == nil || !uncertain(err) || ctx.Err() != nil {
			return err
		}
		f.o.Log.Warn("outcome of a write at the forge unknown; reading again", "error", err)
	}
	return err
}

// keyedLock is one lock for each name, removed when it is free.
type keyedLock struct {
	mu   sync.Mutex
	held map[string]*heldLock
}

type heldLock struct {
	sync.Mutex
	users int
}

// lock locks n and returns its unlock function.
func (k *keyedLock) lock(n string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*heldLock{}
	}
	l := k.held[n]
	if l == nil {
		l = &heldLock{}
		k.held[n] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.held, n)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
