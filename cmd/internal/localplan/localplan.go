// Package localplan plans a change of a local repository as Berth plans a pull request.
// It asks neither the forge nor a host, and it must not know flags.
package localplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/reconciler/rules"
	"berth/reconciler/status"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
	"berth/schema/onboard"
)

// Request is what to plan.
type Request struct {
	Repo           string            // Git repository of the estate, or a directory in it
	Base           string            // revision; "": HEAD
	Head           string            // revision; "": the change is the patch or the work tree
	Patch          string            // file; "-": standard input
	Author         string            // login; "": permissions are not checked
	Approvers      []string          // logins
	Administrators []string          // logins that berth.yaml names
	Tenants        map[string]string // directories of tenants' own repositories, by tenant
	Today          string            // as in 2026-11-21, UTC; "": the current day
}

// Check returns an error if the fields contradict each other.
func (r *Request) Check() error {
	switch {
	case r.Head != "" && r.Patch != "":
		return errors.New("plan: --head and --patch name two changes; give one of them")
	case r.Head != "" && r.Base == "":
		return errors.New("plan: --base is missing: the revision that --head would be merged into, such as main")
	case len(r.Approvers) > 0 && r.Author == "":
		return errors.New("plan: --approver needs --author: whose change was approved")
	case len(r.Administrators) > 0 && r.Author == "":
		return errors.New("plan: --administrator needs --author: whose permissions are checked")
	}
	for _, flag := range []struct {
		name   string
		logins []string
	}{{"author", []string{r.Author}}, {"approver", r.Approvers}, {"administrator", r.Administrators}} {
		for _, login := range flag.logins {
			if login != "" && !schema.ValidLogin(login) {
				return fmt.Errorf("plan: --%s: %q is not a login at the forge: write it without @, name or address, such as anna",
					flag.name, login)
			}
		}
	}
	return nil
}

// planner plans one request.
type planner struct {
	*Request
	loader  *estate.Loader
	decider *decide.Decider
	repo    *gitrepo.Local
	tips    reconciler.Tips // of the local branches
	in      decide.Input
}

// Plan plans the change. A patch called "-" is read from stdin.
func (r *Request) Plan(ctx context.Context, loader *estate.Loader, stdin io.Reader) (p plan.Proposal, err error) {
	repo, err := gitrepo.OpenLocal(r.Repo)
	if err != nil {
		return p, cli.Usage(fmt.Errorf("plan: %w", localestate.NoRepository(r.Repo, "--repo DIR", err)))
	}
	var permissions *decide.Authority
	if r.Author != "" {
		permissions = &decide.Authority{Administrators: r.Administrators}
	}
	pl := planner{Request: r, loader: loader, repo: repo,
		decider: decide.New(decide.Options{Loader: loader, Authority: permissions,
			Rules: []decide.Rule{decide.Undated(schema.Lifecycle), schema.QueueRules(backends.Contract(), backends.QueueNames),
				decide.Undated(onboard.Gate(backends.Names()))}}),
		in: decide.Input{Repo: repo, Rules: backends.Rules, Today: cmp.Or(r.Today, time.Now().UTC().Format(time.DateOnly))},
	}
	p, err = pl.plan(ctx, stdin)
	if err = errors.Join(err, repo.Close()); err != nil {
		err = fmt.Errorf("plan: %w", err)
	}
	return p, err
}

func (p *planner) plan(ctx context.Context, stdin io.Reader) (_ plan.Proposal, err error) {
	var none plan.Proposal
	if p.tips, err = p.repo.Fetch(ctx); err != nil && !errors.Is(err, reconciler.ErrNotFound) { // nothing is fetched
		return none, err
	}
	if err := p.resolve(ctx); err != nil {
		return none, cli.Usage(err)
	}
	if err := p.requireEstate(ctx); err != nil {
		return none, err
	}
	stranger, err := p.stranger(ctx)
	if err != nil {
		return none, err
	}
	known, err := p.recorded(ctx)
	if err != nil {
		return none, err
	}
	p.in.InForce, p.in.Permitted, p.in.Memory, p.in.GPUSeconds = known.inForce, known.permitted, known.memory, known.use
	if len(p.Tenants) > 0 {
		p.in.Repo = &withTenants{Repo: p.repo, dirs: p.Tenants, inForce: p.in.InForce}
	}
	p.in.Seen = func(before, after *schema.Desired) []schema.Diagnostic {
		return append(loop.UnverifiedPromotions(before, after, func(k schema.Key) *plan.ThingStatus { return known.things[k] }),
			rules.Preview(before, after, func() ([]plan.Event, error) {
				return status.EventsOfRules(ctx, p.repo, known.status, time.Now(), func(plan.Event) bool { return true })
			})...)
	}
	assumed, err := p.readRequests(ctx)
	if err != nil {
		return none, err
	}
	var proposal plan.Proposal
	missing := "" // files or commits that the change lacks
	switch {
	case p.Head != "":
		proposal, err = p.decider.Proposal(ctx, p.in)
	case p.Patch != "":
		proposal, missing, err = p.planPatch(ctx, stdin)
	default:
		proposal, missing, err = p.planWorkTree(ctx)
	}
	proposal.Note = strings.Join(slices.DeleteFunc([]string{missing, known.note, assumed, stranger},
		func(s string) bool { return s == "" }), " ")
	return proposal, err
}

// requireEstate refuses a repository that holds no estate before the change nor after it: its plan
// would always be empty.
func (p *planner) requireEstate(ctx context.Context) error {
	for _, commit := range []string{p.in.Base, p.in.Head} {
		if commit == "" {
			continue
		}
		snap, err := p.repo.Snapshot(ctx, commit)
		if err != nil {
			return err
		}
		if has, err := localestate.HasDocuments(ctx, snap); has || err != nil {
			return err
		}
	}
	at, err := gitrepo.Locate(p.Repo)
	if err != nil || p.Patch != "" { // a patch may add the first documents
		return err
	}
	if p.Head != "" || at.WorkTree == "" {
		return p.withoutDocuments()
	}
	tree, err := localestate.WorkTree(ctx, p.repo, at)
	if err != nil {
		return err
	}
	if has, err := localestate.HasDocuments(ctx, tree); has || err != nil {
		return err
	}
	return p.withoutDocuments()
}

// withoutDocuments is the error for a repository that holds no estate.
func (p *planner) withoutDocuments() error {
	return cli.Usage(localestate.Missing(p.Repo, localestate.NoDocuments, "--repo DIR"))
}

// stranger describes an author whom no role binding of the base and no --administrator names, or
// returns "".
func (p *planner) stranger(ctx context.Context) (string, error) {
	if p.Author == "" {
		return "", nil
	}
	snap, err := p.in.Repo.Snapshot(ctx, p.in.Base)
	if err != nil {
		return "", err
	}
	base, err := p.loader.Load(ctx, snap)
	if err != nil || authority.Knows(authority.Rules{Base: base.Desired, Administrators: p.Administrators}, p.Author) {
		return "", err
	}
	return fmt.Sprintf("The user %q has no role in the base: berth get rolebindings lists the users that have one, and --administrator "+
		"names an administrator of berth.yaml.", p.Author), nil
}

// resolve finds the commits of the base and the head. Without --base, the base is
// HEAD, and main if HEAD is a branch without commits.
func (p *planner) resolve(ctx context.Context) (err error) {
	if p.in.Base, err = p.repo.Resolve(ctx, cmp.Or(p.Base, "HEAD")); err != nil {
		switch {
		case p.Base != "":
			return fmt.Errorf("--base: %w", err)
		case !errors.Is(err, reconciler.ErrNotFound):
			return err
		case p.tips.Main == "":
			return errors.New("the repository has no commit to compare with; commit first, such as: git add . && git commit -m estate")
		}
		p.in.Base = p.tips.Main
	}
	if p.Head != "" {
		if p.in.Head, err = p.repo.Resolve(ctx, p.Head); err != nil {
			return fmt.Errorf("--head: %w", err)
		}
	}
	return nil
}

// readRequests fills in the author and the trailers in the message of the head, as on
// a pull request. assumed describes what the forge or Berth would have to confirm, or
// is "".
func (p *planner) readRequests(ctx context.Context) (assumed string, err error) {
	breakGlass := ""
	if p.in.Head != "" {
		evidence, err := p.repo.HeadEvidence(ctx, p.in.Head)
		if err != nil {
			return "", err
		}
		breakGlass, p.in.Acks = provenance.Requests(evidence)
	}
	if p.Author == "" {
		if len(p.in.Acks) > 0 {
			assumed = fmt.Sprintf("The author of %s is assumed to have the permission; --author checks it.", decide.AckTrailer)
		}
		return assumed, nil
	}
	approvers := slices.Compact(slices.Sorted(slices.Values(p.Approvers)))
	p.in.By = &authority.Actor{Login: p.Author, Approvers: approvers, Proof: authority.ProofPullRequest, BreakGlass: breakGlass}
	if len(approvers) > 0 {
		assumed = fmt.Sprintf("Approval by %s is assumed from --approver; Berth asks the forge.", strings.Join(approvers, ", "))
	}
	return assumed, nil
}
