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
)

// TokenSource gives the token for the next request. It is asked each time and
// may renew; it must be safe for concurrent use. Once the forge refused a token
// it is asked again, and that one tried no more if it gives another.
type TokenSource func(context.Context) (string, error)

// refusedKey is the context key of the token that the forge just refused, for a
// source that keeps them.
type refusedKey struct{}

// StaticToken is a token that never changes.
func StaticToken(token string) TokenSource {
	return func(context.Context) (string, error) { return token, nil }
}

// Report says by what a check is shown on a commit.
type Report string

// Only a GitHub App may write check runs; with a personal token a commit status
// has to do, and findings show in the comment alone. Never both under one name:
// GitHub would require both.
const (
	Checks   Report = "checks"
	Statuses Report = "statuses"
)

// Options of a Forge. Zero values mean what is said; the others are needed.
type Options struct {
	// BaseURL of the REST API: "https://api.github.com/", a GitHub Enterprise
	// Server's ends in /api/v3/. Nothing is added to it.
	BaseURL     string
	Owner, Repo string
	// Estate tells what we write from what another Berth writes that is the same
	// account: comments and check runs, but not statuses. "estate" if empty.
	Estate string
	// Token needs no right to the contents.
	Token TokenSource
	// App says who a GitHub App itself is, which the log of its deliveries is for;
	// nil: the repository's webhooks have logs of their own.
	App TokenSource
	// Pacer of Token's credential, if others use it too; nil: nobody does.
	Pacer *Pacer
	// Login is who the token is: what Berth writes is recognised by it. For an
	// App its slug and "[bot]", such as "berth-lab[bot]". Empty: GitHub is asked,
	// which works with personal tokens only.
	Login string
	// Report is Checks if empty.
	Report Report

	Transport http.RoundTripper // http.DefaultTransport if nil
	// Timeout of one request, answer included; 15 s if zero.
	Timeout time.Duration
	// MaxWait is how long a call waits by itself for pace or a limit; beyond it
	// comes a *LimitError. 30 s if zero.
	MaxWait time.Duration
	// Now and Sleep are the clock; the real one if nil.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error

	Log      *slog.Logger
	Registry prometheus.Registerer // nil: metrics are not registered
}

// Forge is one repository on GitHub. Safe for concurrent use; calls that write
// about the same commit or pull request wait for each other.
type Forge struct {
	o      Options
	client *gh.Client
	app    *gh.Client // as the App itself; nil: there is none
	busy   keyedLock

	mu       sync.Mutex
	login    string                      // once known
	comments map[int]int64               // pull request → our comment, as last seen
	rerun    map[string]map[string]int64 // commit and check somebody wants to see again → the run it was
	answered map[int64]bool              // remarks we reacted to
}

// Forge is the loop's port.
var _ reconciler.Forge = (*Forge)(nil)

// New checks o and makes a Forge. It talks to nobody yet.
func New(o Options) (*Forge, error) {
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Host == "" || (base.Scheme != "https" && base.Scheme != "http") || base.User != nil {
		return nil, errors.New("github: base_url must be an http or https URL without a login, such as https://api.github.com/")
	}
	if !strings.HasSuffix(base.Path, "/") {
		base.Path += "/"
	}
	if !name(o.Owner) || !name(o.Repo) {
		return nil, fmt.Errorf("github: %q/%q is no repository", o.Owner, o.Repo)
	}
	if o.Estate = cmp.Or(o.Estate, "estate"); !name(o.Estate) || len(o.Estate) > maxEstate {
		return nil, fmt.Errorf("github: %q cannot be the name of an estate", o.Estate)
	}
	if o.Token == nil || o.Log == nil {
		return nil, errors.New("github: Token and Log are needed")
	}
	o.Report = cmp.Or(o.Report, Checks)
	if o.Report != Checks && o.Report != Statuses {
		return nil, fmt.Errorf("github: report must be %q or %q, not %q", Checks, Statuses, o.Report)
	}
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.MaxWait = cmp.Or(o.MaxWait, 30*time.Second)
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Pacer == nil {
		o.Pacer = NewPacer()
	}
	m, err := newMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	f := &Forge{o: o, login: o.Login, comments: map[int]int64{}, rerun: map[string]map[string]int64{}, answered: map[int64]bool{}}
	f.client = newClient(base, newTransport(o, base, o.Token, o.Pacer, m))
	if o.App != nil {
		f.app = newClient(base, newTransport(o, base, o.App, NewPacer(), m))
	}
	return f, nil
}

func newClient(base *url.URL, t http.RoundTripper) *gh.Client {
	c := gh.NewClient(&http.Client{
		Transport: t,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it redirects to host %s: if the repository moved, name its new place in the configuration", r.URL.Host)
		},
	})
	c.BaseURL = base
	c.UserAgent = "berth"
	return c
}

// name says whether s can be the owner or the name of a repository: it is put
// into paths.
func name(s string) bool {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
	}
	return s != "" && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool { return !ok(r) })
}

// maxEstate leaves room beside it in an external_id.
const maxEstate = 50

// pageSize is GitHub's largest; maxPages ends a listing that never does.
const (
	pageSize = 100
	maxPages = 200
)

// each calls one for page after page.
func (f *Forge) each(one func(gh.ListOptions) (*gh.Response, error)) error {
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

// pages is each; what names the listing in errors.
func (f *Forge) pages(what string, one func(gh.ListOptions) (*gh.Response, error)) error {
	if err := f.each(one); err != nil {
		return fmt.Errorf("github: %s: %w", what, explain(err))
	}
	return nil
}

// OpenPulls lists the open pull requests by number.
func (f *Forge) OpenPulls(ctx context.Context) ([]reconciler.PullRequest, error) {
	var out []reconciler.PullRequest
	err := f.pages("list open pull requests", func(o gh.ListOptions) (*gh.Response, error) {
		// By creation, oldest first: what comes meanwhile comes at the end.
		prs, resp, err := f.client.PullRequests.List(op(ctx, "list_pulls"), f.o.Owner, f.o.Repo,
			&gh.PullRequestListOptions{State: "open", Sort: "created", Direction: "asc", ListOptions: o})
		for _, pr := range prs {
			out = append(out, pull(pr))
		}
		return resp, err
	})
	return byNumber(out), err
}

// Pull reads one pull request; reconciler.ErrNotFound if there is none of that
// number, or none the token may see.
func (f *Forge) Pull(ctx context.Context, number int) (reconciler.PullRequest, error) {
	pr, _, err := f.client.PullRequests.Get(op(ctx, "get_pull"), f.o.Owner, f.o.Repo, number)
	if err != nil {
		return reconciler.PullRequest{}, fmt.Errorf("github: read pull request %d: %w", number, missing(err))
	}
	return pull(pr), nil
}

// PullsOf lists the merged pull requests a commit of main belongs to, by number.
func (f *Forge) PullsOf(ctx context.Context, commit string) ([]reconciler.PullRequest, error) {
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
		Merged:     pr.MergedAt != nil, // lists do not say "merged"
		Updated:    pr.GetUpdatedAt().UTC(),
		// A repository that is gone was another one.
		Fork: pr.GetHead().GetRepo().GetID() != pr.GetBase().GetRepo().GetID(),
	}
	if p.Merged { // before, GitHub names its own test merge there
		p.MergeCommit = pr.GetMergeCommitSHA()
	}
	return p
}

// me is who we are at the forge.
func (f *Forge) me(ctx context.Context) (string, error) {
	f.mu.Lock()
	login := f.login
	f.mu.Unlock()
	if login != "" {
		return login, nil
	}
	u, _, err := f.client.Users.Get(op(ctx, "get_user"), "")
	if err != nil {
		return "", fmt.Errorf("github: ask whose token it is (an App cannot ask: set its login, such as \"berth-lab[bot]\"): %w", explain(err))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.login = u.GetLogin()
	return f.login, nil
}

// Attempts at one write whose outcome is not known.
const attempts = 3

// converge reads and writes until what is wanted is there. step reads, then
// writes if it must. When the outcome of a write is unknown (a server error, a
// lost reply) step is called again and sees by reading whether it was done:
// that, and not a blind repetition, is what keeps things from being there twice.
func (f *Forge) converge(ctx context.Context, step func() error) error {
	var err error
	for i := range attempts {
		if i > 0 {
			if e := f.o.Sleep(ctx, time.Duration(1<<i)*250*time.Millisecond); e != nil {
				return errors.Join(err, e)
			}
		}
		if err = step(); err == nil || !uncertain(err) || ctx.Err() != nil {
			return err
		}
		f.o.Log.Warn("outcome of a write is unknown; looking again", "error", err)
	}
	return err
}

// keyedLock is one lock for each name, gone when nobody holds it.
type keyedLock struct {
	mu   sync.Mutex
	held map[string]*heldLock
}

type heldLock struct {
	sync.Mutex
	users int
}

// lock locks n and returns what unlocks it.
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
