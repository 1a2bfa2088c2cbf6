package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/loop"
	"berth/reconciler/patch"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/reconciler/report"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// planForms are the output forms of `berth plan`.
func planForms() []string { return []string{"text", "json", "markdown", "junit"} }

// planRequest has the flags of `berth plan`.
type planRequest struct {
	repo, base, head, patch, output string
	author                          string
	approvers, administrators       []string
	tenants                         map[string]string // directories of tenants' own repositories, by tenant
	detailed, watch                 bool
	today                           string // as in 2026-11-21, UTC; "": the current day
}

func newPlanCmd() *cobra.Command {
	var req planRequest
	cmd := &cobra.Command{
		Use:   "plan [--repo DIR] [--base REV] [--head REV | --patch FILE] [--watch]",
		Short: "Show what a change would do to running instances",
		Long: `Show what a change would do to running instances: the same plan that Berth shows
on the pull request. Nothing is changed, and no host is asked.

The change is one of:
  (no flag)      the difference between HEAD and the work tree, with untracked files
                 and without ignored ones
  --head REV     a merge of REV into --base
  --patch FILE   a patch, applied to --base exactly where it says, such as
                 git diff HEAD | berth plan --patch -
                 The plan names changed files of the work tree that the patch lacks:
                 git diff leaves out untracked files.

The plan uses the branches berth/status and berth/in-force, if the repository has
them. They describe the commit that Berth decided last. A plan against another
commit assumes that all of that commit is in force, and says so.

With --author, the plan also says whether this person may make the change. The
trailers Berth-Ack-Delete and Break-Glass in the message of --head count as on a
pull request. The forge is not asked: give each approval with --approver.

With --tenant NAME=DIR, the plan includes what the change does to the tenant whose
own repository is in DIR.

With --watch, the plan is shown again after every change, until interrupted.

Exit status: 0 nothing blocks the change, 1 something does, 2 usage; with
--detailed-exitcode 3 if nothing blocks it and there is something to do; with
--watch 0.`,
		Example: `  berth plan
  berth plan --base main --head my-branch --author anna
  git diff HEAD | berth plan --patch -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := req.check(); err != nil {
				return cli.Usage(err)
			}
			loader, err := estate.New(estate.Options{Backends: backends.Definitions()})
			if err != nil {
				return err
			}
			if req.watch {
				return req.again(cmd, loader)
			}
			p, err := req.proposal(cmd.Context(), loader, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if err := writePlan(cmd.OutOrStdout(), p, req.output); err != nil {
				return err
			}
			switch {
			case p.Blocked():
				return cli.Exit(1)
			case req.detailed && p.Changes():
				return cli.Exit(3)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&req.repo, "repo", ".", "Git repository of the estate, or a directory in it")
	cmd.Flags().StringVar(&req.base, "base", "", "revision that would be merged into, such as main (default HEAD, without --head)")
	cmd.Flags().StringVar(&req.head, "head", "", "revision that would be merged (default the work tree)")
	cmd.Flags().StringVar(&req.patch, "patch", "", "patch that would be applied, as git diff writes it; - is standard input")
	cli.OutputFlag(cmd, &req.output, planForms()...)
	cmd.Flags().StringVar(&req.author, "author", "", "login of the author; the plan then says whether they may make the change")
	cmd.Flags().StringSliceVar(&req.approvers, "approver", nil, "login that approved the change, with --author; may be repeated")
	cmd.Flags().StringSliceVar(&req.administrators, "administrator", nil, "login that berth.yaml names as an administrator, for --author")
	cmd.Flags().StringToStringVar(&req.tenants, "tenant", nil, "NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	cmd.Flags().BoolVar(&req.detailed, "detailed-exitcode", false, "exit 3 when there is something to do")
	cmd.Flags().BoolVar(&req.watch, "watch", false, "show the plan again whenever something changes")
	return cmd
}

// authority returns the rules of permissions; nil without --author.
func (r *planRequest) authority() *decide.Authority {
	if r.author == "" {
		return nil
	}
	return &decide.Authority{Administrators: r.administrators}
}

// check returns an error in how the command was called.
func (r *planRequest) check() error {
	switch {
	case r.head != "" && r.patch != "":
		return errors.New("plan: --head and --patch name two changes; give one of them")
	case r.head != "" && r.base == "":
		return errors.New("plan: --base is missing: the revision that --head would be merged into, such as main")
	case r.patch == "-" && r.watch:
		return errors.New("plan: --watch needs a patch in a file: standard input is read once")
	case len(r.approvers) > 0 && r.author == "":
		return errors.New("plan: --approver needs --author: whose change was approved")
	}
	return nil
}

// writePlan writes a plan in a form, in colour where w shows colours.
func writePlan(w io.Writer, p plan.Proposal, form string) error {
	text, err := formOf(p, form)
	if err != nil {
		return err
	}
	if form == "text" {
		text = []byte(cli.Colored(w, string(text)))
	}
	_, err = w.Write(text)
	return err
}

// formOf is a plan in a form.
func formOf(p plan.Proposal, form string) ([]byte, error) {
	switch form {
	case "json":
		return report.JSON(p)
	case "markdown":
		return []byte(report.Markdown(p)), nil
	case "junit":
		return report.JUnitPlan(p)
	}
	return []byte(report.Text(p)), nil
}

// proposal plans the change. A patch called "-" is read from stdin.
func (r *planRequest) proposal(ctx context.Context, loader *estate.Loader, stdin io.Reader) (p plan.Proposal, err error) {
	repo, err := gitrepo.OpenLocal(r.repo)
	if err != nil {
		return p, cli.Usage(fmt.Errorf("plan: %w", err))
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	in := decide.Input{Repo: repo, Rules: backends.Rules, Today: cmp.Or(r.today, time.Now().UTC().Format(time.DateOnly))}
	decider := decide.New(decide.Options{Loader: loader, Authority: r.authority(), Rules: []func(before, after *schema.Desired) []schema.Diagnostic{schema.Lifecycle}})
	tips, err := repo.Fetch(ctx) // of the local branches: nothing is fetched
	if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		return p, fmt.Errorf("plan: %w", err)
	}
	if in.Base, err = r.baseOf(ctx, repo, tips); err != nil {
		return p, cli.Usage(fmt.Errorf("plan: %w", err))
	}
	if r.head != "" {
		if in.Head, err = repo.Resolve(ctx, r.head); err != nil {
			return p, cli.Usage(fmt.Errorf("plan: --head: %w", err))
		}
	}
	known, err := knownAt(ctx, repo, in.Base)
	if err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	in.InForce, in.Permitted, in.Memory = known.inForce, known.permitted, known.memory
	if len(r.tenants) > 0 {
		in.Repo = &withTenants{Repo: repo, dirs: r.tenants, inForce: in.InForce}
	}
	in.Seen = func(before, after *schema.Desired) []schema.Diagnostic {
		return loop.UnverifiedPromotions(before, after, func(k schema.Key) *plan.ThingStatus { return known.things[k] })
	}
	assumed, err := r.asks(ctx, repo, &in)
	if err != nil {
		return p, fmt.Errorf("plan: %w", err)
	}
	left := "" // files or commits that the change lacks
	switch {
	case r.head != "":
		p, err = decider.Proposal(ctx, in)
	case r.patch != "":
		p, left, err = r.patched(ctx, loader, decider, repo, in, stdin)
	default:
		if p, err = r.worktree(ctx, loader, decider, repo, in); err == nil {
			left, err = r.unmerged(ctx, repo, tips.Main, in.Base)
		}
	}
	var exit *cli.ExitError
	if err != nil && !errors.As(err, &exit) {
		err = fmt.Errorf("plan: %w", err)
	}
	p.Note = strings.Join(slices.DeleteFunc([]string{left, known.note, assumed}, func(s string) bool { return s == "" }), " ")
	return p, err
}

// asks fills in the author and the trailers in the message of the head, as on a pull
// request. assumed describes what the forge or Berth would have to confirm, or is "".
func (r *planRequest) asks(ctx context.Context, repo *gitrepo.Repo, in *decide.Input) (assumed string, err error) {
	breakGlass := ""
	if in.Head != "" {
		says, err := repo.HeadEvidence(ctx, in.Head)
		if err != nil {
			return "", err
		}
		breakGlass, in.Acks = provenance.Requests(says)
	}
	if r.author == "" {
		if len(in.Acks) > 0 {
			assumed = fmt.Sprintf("The author of %s is assumed to have the permission; --author checks it.", decide.AckTrailer)
		}
		return assumed, nil
	}
	approvers := slices.Compact(slices.Sorted(slices.Values(r.approvers)))
	in.By = &authority.Actor{Login: r.author, Approvers: approvers, Proof: authority.ProofPullRequest, BreakGlass: breakGlass}
	if len(approvers) > 0 {
		assumed = fmt.Sprintf("Approval by %s is assumed from --approver; Berth asks the forge.", strings.Join(approvers, ", "))
	}
	return assumed, nil
}

// known is the state that Berth's branches in the repository describe at a base.
type known struct {
	inForce   string            // commit of berth/in-force; "": all of the base is assumed to be in force
	permitted map[string]string // as in decide.Input
	memory    *plan.Memory      // nil: unknown, and the base is assumed to run as declared
	things    map[schema.Key]*plan.ThingStatus
	note      string // why Berth's plan may differ
}

// knownAt reads Berth's branches as fetched from origin, and then the repository's own,
// for the state at base. Berth plans against the commit that it decided, so base may
// be the tip of any branch.
func knownAt(ctx context.Context, repo *gitrepo.Repo, base string) (known, error) {
	own, origin, err := repo.Sides()
	if err != nil {
		return known{}, err
	}
	fetched, err := knownBy(ctx, repo, base, origin)
	if err != nil || fetched.note == "" || own.InForce == origin.InForce && own.Status == origin.Status {
		return fetched, err
	}
	if k, err := knownBy(ctx, repo, base, own); err != nil || k.note == "" {
		return k, err
	}
	return fetched, nil
}

// knownBy is knownAt for one of the two.
func knownBy(ctx context.Context, repo *gitrepo.Repo, base string, tips reconciler.Tips) (k known, err error) {
	status, err := repo.ReadStatus(ctx, tips.Status)
	if err != nil {
		return k, fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
	}
	k.things = status.Things
	if tips.Status != "" {
		k.memory = &status.Units
	}
	const otherwise = "so all of the base is assumed to be in force and Berth may plan differently; "
	if tips.InForce == "" {
		if status.Revision.InForce != "" {
			k.note = fmt.Sprintf("Branch %s is missing beside %s, %sfetch it too.", reconciler.BranchInForce, reconciler.BranchStatus, otherwise)
		}
		return k, nil
	}
	said, err := repo.ReadInForce(ctx, tips.InForce)
	if err != nil {
		return k, fmt.Errorf("%s: %w", reconciler.BranchInForce, err)
	}
	decided := said.Commit
	if status.Revision.InForce == tips.InForce && status.Revision.Commit != "" {
		decided = status.Revision.Commit // a commit that changes nothing in force is recorded there only
	}
	if base != said.Commit && base != decided {
		k.note = fmt.Sprintf("The base is not %.10s, the commit that Berth decided last, %sfetch again, or give --base %.10[1]s.", decided, otherwise)
		return k, nil
	}
	k.inForce, k.permitted = tips.InForce, said.Permitted
	return k, nil
}

// baseOf returns the commit of the base: HEAD without --base, and main if HEAD is a
// branch without commits.
func (r *planRequest) baseOf(ctx context.Context, repo *gitrepo.Repo, tips reconciler.Tips) (string, error) {
	if r.base != "" {
		base, err := repo.Resolve(ctx, r.base)
		if err != nil {
			err = fmt.Errorf("--base: %w", err)
		}
		return base, err
	}
	head, err := repo.Resolve(ctx, "HEAD")
	if errors.Is(err, reconciler.ErrNotFound) {
		if tips.Main != "" {
			return tips.Main, nil
		}
		return "", errors.New("the repository has no commit to compare with; commit first, such as: git add . && git commit -m estate")
	}
	return head, err
}

// unmerged describes commits of HEAD that are not on main, as a plan of the work tree
// leaves them out. It is "" with --base and without such commits.
func (r *planRequest) unmerged(ctx context.Context, repo *gitrepo.Repo, main, base string) (string, error) {
	if r.base != "" || main == "" || main == base {
		return "", nil
	}
	ahead, err := repo.Log(ctx, main, base, maxUndecided)
	if err != nil || len(ahead) == 0 {
		return "", err
	}
	return fmt.Sprintf("HEAD has %s that main lacks; this plan covers uncommitted changes only; berth plan --base main --head HEAD covers the commits.", cli.Count(len(ahead), "commit")), nil
}

// patched plans the patch. left names files that the work tree changes and the patch
// lacks.
func (r *planRequest) patched(ctx context.Context, loader *estate.Loader, decider *decide.Decider, repo *gitrepo.Repo, in decide.Input, stdin io.Reader) (_ plan.Proposal, left string, err error) {
	from, name := stdin, "standard input"
	if r.patch != "-" {
		f, err := os.Open(r.patch)
		if err != nil {
			return plan.Proposal{}, "", cli.Usage(fmt.Errorf("plan: --patch: %w", err))
		}
		defer f.Close()
		from, name = f, r.patch
	}
	p, err := patch.Parse(from)
	if err != nil {
		return plan.Proposal{}, "", cli.Usage(fmt.Errorf("plan: --patch: %s: %w", name, err))
	}
	base, err := in.Repo.Snapshot(ctx, in.Base)
	if err != nil {
		return plan.Proposal{}, "", err
	}
	tree, conflicts, err := p.Apply(ctx, base)
	switch {
	case err != nil:
		return plan.Proposal{}, "", fmt.Errorf("--patch: %s: %w", name, err)
	case len(conflicts) > 0:
		return decide.Conflicting(in, conflicts), "", nil
	}
	if r.base == "" {
		if left, err = r.leftOut(ctx, loader, repo, base, tree.Touched()); err != nil {
			return plan.Proposal{}, "", err
		}
	}
	proposal, err := decider.Change(ctx, in, tree, tree.Touched())
	return proposal, left, err
}

// maxLeftOut bounds how many files that a patch lacks are named.
const maxLeftOut = 5

// leftOut names the files of the estate that the work tree or the index changes and
// the patch lacks, or returns "". Ignored files do not count.
func (r *planRequest) leftOut(ctx context.Context, loader *estate.Loader, repo *gitrepo.Repo, base schema.Snapshot, touched []schema.PathChange) (string, error) {
	at, err := gitrepo.Locate(r.repo)
	if err != nil || at.WorkTree == "" {
		return "", err
	}
	staged, err := repo.Staged(ctx, at)
	if err != nil {
		return "", err
	}
	work, err := workTree(ctx, repo, at)
	if err != nil {
		return "", err
	}
	changed, err := loader.Compare(ctx, base, work)
	if err != nil {
		return "", err
	}
	lacking := map[string]bool{}
	for _, path := range staged {
		lacking[path] = true
	}
	for _, c := range changed {
		lacking[c.Path] = true
	}
	for _, c := range touched {
		delete(lacking, c.Path)
	}
	paths := slices.Sorted(maps.Keys(lacking))
	switch n := len(paths); {
	case n == 0:
		return "", nil
	case n > maxLeftOut:
		paths = append(paths[:maxLeftOut], fmt.Sprintf("%d more", n-maxLeftOut))
	}
	return fmt.Sprintf("The patch lacks what the work tree or the index changes in %s: berth plan without --patch plans the work tree; git add -N makes git diff HEAD show untracked files.", strings.Join(paths, ", ")), nil
}
