package loop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// topic opens a pull request with its own branch that changes the given files.
func (w *world) topic(n int, files map[string]string) reconciler.PullRequest {
	w.t.Helper()
	head := w.git.MustCommit(w.t, fmt.Sprint("topic-", n), gittest.Commit{Message: "add", Parent: w.git.Tip("main"), Files: files})
	require.NoError(w.t, w.git.SetPull(n, head))
	pr := reconciler.PullRequest{Number: n, Author: "ada", Head: head, BaseBranch: "main", Open: true}
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	w.forge.pulls = append(w.forge.pulls, pr)
	return pr
}

// change changes a pull request at the forge.
func (w *world) change(n int, f func(*reconciler.PullRequest)) {
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	for i := range w.forge.pulls {
		if w.forge.pulls[i].Number == n {
			f(&w.forge.pulls[i])
		}
	}
}

// reviews returns the reviews on berth/status.
func (w *world) reviews() map[int]*plan.Review {
	return w.tree().Reviews
}

func (w *world) shownFully(n int, head string) func() bool {
	return func() bool {
		p, ok := w.forge.last(n)
		v := w.reviews()[n]
		return ok && p.Head == head && v != nil && v.Head == head && v.Next == nil
	}
}

// callsMore waits until the forge received n more write calls, with or without effect.
func (w *world) callsMore(n int) {
	w.t.Helper()
	calls := func() int { w.forge.mu.Lock(); defer w.forge.mu.Unlock(); return w.forge.calls }
	before := calls()
	w.eventually("asked again", func() bool { return calls() >= before+n })
}

// Berth records the plan of a pull request, then writes the validate check, the plan
// check and the comment. The same content is not written again: neither on a new
// request, nor after other commits, a new base or a restart.
func TestUnchangedPlanIsPublishedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 2)
	pr := w.topic(7, map[string]string{path: text})
	var unrecorded atomic.Int64
	w.forge.fails = func(call string) error {
		if v := w.reviews()[7]; v == nil || v.Next == nil && v.Head != pr.Head || v.Next != nil && v.Next.Head != pr.Head {
			unrecorded.Add(1)
		}
		return nil
	}
	d := w.start()
	w.eventually("plan published", w.shownFully(7, pr.Head))
	want := []string{"check berth/validate " + pr.Head + " success", "check berth/plan " + pr.Head + " success", "comment 7"}
	require.Equal(t, want, w.forge.written(""))
	require.Zero(t, unrecorded.Load())
	v := w.reviews()[7]
	require.Len(t, v.Units, 1)
	require.Equal(t, trainKey, v.Units[0].Key)
	require.NotEmpty(t, v.Units[0].Steps)
	require.NotEmpty(t, v.Units[0].Facts)
	base := v.Base

	status := w.git.Tip(reconciler.BranchStatus)
	d.publishes(7)
	d.written()
	require.Equal(t, status, w.git.Tip(reconciler.BranchStatus), "an unchanged plan is not recorded again")

	w.put(map[string]string{"README.md": "main moves\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	other, otherText := instance("other", 1)
	w.put(map[string]string{other: strings.Replace(otherText, "worker: {count: 1", "worker: {count: 0", 1)})
	w.eventually("runs", w.phase("other", plan.PhaseRunning))
	d.does(reconciler.Item{Task: reconciler.TaskReplan})
	d.publishes(7)
	require.Equal(t, want, w.forge.written(""))
	require.Equal(t, base, w.reviews()[7].Base, "the review names the base of the published plan")
	p, _ := w.forge.last(7)
	require.Equal(t, base, p.Base)

	require.NoError(t, d.stop())
	w.forge.mu.Lock()
	w.forge.calls = 0
	w.forge.mu.Unlock()
	d = w.start()
	w.callsMore(3)
	d.publishes(7)
	require.Equal(t, want, w.forge.written(""), "a restart writes no unchanged content")
	require.Equal(t, base, w.reviews()[7].Base)

	d.ShowAgain(7) // as after a rerun request at the forge
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: 7})
	w.callsMore(3)
	require.Equal(t, want, w.forge.written(""), "the forge decides whether a rerun is a new write")
	require.NoError(t, d.stop())
}

// A pull request that the forge refuses delays no other and is retried.
func TestRefusedPullRequestDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	bad := w.topic(9, map[string]string{path: text})
	good := w.topic(8, map[string]string{path: text + "# eight\n"})
	var refuse atomic.Bool
	refuse.Store(true)
	w.forge.fails = func(call string) error {
		if strings.Contains(call, bad.Head) && refuse.Load() {
			return errors.New("422")
		}
		return nil
	}
	w.start()
	w.eventually("other plan published", w.shownFully(8, good.Head))
	require.Empty(t, w.forge.written("comment 9"))
	refuse.Store(false)
	w.eventually("refused plan published later", w.shownFully(9, bad.Head))
}

// While the forge rejects writes, plans wait. A newer plan replaces a waiting one.
func TestNewestPlanIsPublishedAfterRateLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	first := w.topic(7, map[string]string{path: text})
	clock := newManualClock()
	until := clock.Now().Add(8 * time.Second)
	asked := make(chan string, 100)
	w.forge.fails = func(call string) error {
		if clock.Now().Before(until) {
			asked <- call
			return &reconciler.RetryAfterError{At: until}
		}
		return nil
	}
	d := w.start(func(o *loop.Options) { o.Now = clock.Now })
	require.Contains(t, <-asked, first.Head)
	_, more := instance("train", 2)
	second := w.git.MustCommit(t, "topic-7", gittest.Commit{Message: "more", Files: map[string]string{path: more}})
	require.NoError(t, w.git.SetPull(7, second))
	w.change(7, func(p *reconciler.PullRequest) { p.Head = second })
	d.publishes(7)
	clock.Set(until.Add(-time.Second))
	d.does(theShow)
	require.Empty(t, asked, "no retry before its time")
	clock.Set(until)
	d.Enqueue(theShow)
	w.eventually("newest plan published", w.shownFully(7, second))
	require.Empty(t, w.forge.written("check berth/plan "+first.Head))
	require.Equal(t, 3, len(w.forge.written("")))
}

// A head that changes during the publication gets its checks, because they belong to
// that commit. The comment is written for the new head only.
func TestReplacedHeadGetsNoComment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	first := w.topic(7, map[string]string{path: text})
	_, more := instance("train", 2)
	second := w.git.MustCommit(t, "topic-7", gittest.Commit{Message: "more", Files: map[string]string{path: more}})
	w.forge.fails = func(call string) error { // runs with the forge's lock held
		if strings.HasPrefix(call, "check berth/plan "+first.Head) {
			w.forge.pulls[0].Head = second
		}
		return nil
	}
	w.start(func(o *loop.Options) { o.Settings.Poll = time.Hour })
	w.eventually("moved", func() bool { return len(w.forge.written("check berth/plan "+first.Head)) == 1 })
	require.NoError(t, w.git.SetPull(7, second))
	w.eventually("plan of the new head published", w.shownFully(7, second))
	require.Len(t, w.forge.written("comment"), 1)
	require.Len(t, w.forge.shown[7], 1)
}

// Closing a pull request removes its review. After it is opened again, Berth publishes
// its plan, and writes only changed content.
func TestReviewIsRemovedOnCloseAndRestoredOnReopen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	pr := w.topic(7, map[string]string{path: text})
	d := w.start()
	w.eventually("plan published", w.shownFully(7, pr.Head))
	w.change(7, func(p *reconciler.PullRequest) { p.Open = false })
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: 7})
	w.eventually("forgotten", func() bool { return w.reviews()[7] == nil })
	w.change(7, func(p *reconciler.PullRequest) { p.Open = true })
	w.eventually("plan published again", w.shownFully(7, pr.Head))
	require.Len(t, w.forge.written(""), 3)

	// A pull request closed while no daemon runs is found at the next start. Berth then
	// completes its unfinished checks.
	require.NoError(t, d.stop())
	w.change(7, func(p *reconciler.PullRequest) { p.Open = false })
	d = w.start()
	w.eventually("forgotten", func() bool { return w.reviews()[7] == nil })
	w.eventually("settled", func() bool {
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		return slices.Contains(w.forge.settled, pr.Head)
	})
	require.NoError(t, d.stop())
}

// A pull request without any change for Berth gets successful checks, because missing
// checks block the merge. A pull request from a fork is planned like any other.
func TestUnrelatedAndForkPullRequestsGetChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	nothing := w.topic(1, map[string]string{"docs/README.md": "hello\n"})
	fork := w.topic(2, map[string]string{path: text})
	broken := w.topic(3, map[string]string{path: strings.Replace(text, "display_name", "dislpay_name", 1)})
	conflict := w.topic(4, map[string]string{"platform/nodes/ctl.yaml": node("ctl", 99, "controller", "")})
	w.put(map[string]string{"platform/nodes/ctl.yaml": node("ctl", 98, "controller", "")})
	w.change(2, func(p *reconciler.PullRequest) { p.Fork, p.Author = true, "stranger" })
	w.change(1, func(p *reconciler.PullRequest) { p.Title = "docs" })
	w.start()
	for pr, want := range map[reconciler.PullRequest][2]plan.Conclusion{
		nothing: {plan.Success, plan.Success}, fork: {plan.Success, plan.Success}, broken: {plan.Failure, plan.Failure},
		conflict: {plan.Failure, plan.Failure},
	} {
		w.eventually("plan published", w.shownFully(pr.Number, pr.Head))
		require.Equal(t, want[0], w.forge.check(pr.Head, plan.CheckValidate).Conclusion, pr.Number)
		require.Equal(t, want[1], w.forge.check(pr.Head, plan.CheckPlan).Conclusion, pr.Number)
	}
	notes := w.forge.check(broken.Head, plan.CheckValidate).Notes
	require.Len(t, notes, 1, "findings in changed lines become annotations")
	require.Equal(t, path, notes[0].File)
	require.Equal(t, 7, notes[0].Line)
}

// The check of a refused head states the reason.
func TestRefusedHeadCheckStatesTheReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pr := w.topic(7, map[string]string{"platform/x": strings.Repeat("0123456789", 100)})
	w.start(func(o *loop.Options) { o.Repo = refusing{o.Repo} })
	w.eventually("check published", func() bool { return w.forge.check(pr.Head, plan.CheckPlan).Name != "" })
	require.Equal(t, plan.Failure, w.forge.check(pr.Head, plan.CheckValidate).Conclusion)
	require.Contains(t, w.forge.check(pr.Head, plan.CheckValidate).Summary, "too much")
}

// While main is frozen, documents are validated but not planned; Berth plans them
// after the freeze. A change that repairs main is planned as that repair.
func TestFrozenMainIsReportedAndRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	pr := w.topic(7, map[string]string{path: text})
	good := w.git.Tip("main")
	w.start()
	w.eventually("plan published", w.shownFully(7, pr.Head))
	before := w.reviews()[7]
	empty := w.put(nil, "platform", "tenants")
	check := func(head, name string) func() plan.Check {
		return func() plan.Check { return w.forge.check(head, name) }
	}
	planned := check(pr.Head, plan.CheckPlan)
	w.eventually("freeze reported", func() bool { return planned().Conclusion == plan.Failure })
	require.True(t, strings.HasPrefix(planned().Title, "nothing can be planned: "), planned().Title)
	require.Equal(t, plan.Success, check(pr.Head, plan.CheckValidate)().Conclusion)
	require.Len(t, w.forge.written("comment"), 1)
	w.eventually("recorded", func() bool { v := w.reviews()[7]; return v.Next == nil && v.Key != before.Key })
	require.Equal(t, before.Units, w.reviews()[7].Units, "the review is unchanged")

	tree, err := w.git.Git("rev-parse", good+"^{tree}")
	require.NoError(t, err)
	mend, err := w.git.Git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit-tree", "-p", empty, "-m", "mend", tree)
	require.NoError(t, err)
	require.NoError(t, w.git.SetPull(8, mend))
	w.forge.set(pr, reconciler.PullRequest{Number: 8, Author: "ada", Head: mend, BaseBranch: "main", Open: true})
	w.eventually("plan check of the repair succeeds", func() bool { return check(mend, plan.CheckPlan)().Conclusion == plan.Success })
	path, text = instance("large", 1) // combined with a change that fails
	more := w.git.MustCommit(t, "mend",
		gittest.Commit{Message: "and", Parent: mend, Files: map[string]string{path: strings.Replace(text, "count: 2}", "count: 8}", 1)}})
	require.NoError(t, w.git.SetPull(8, more))
	w.change(8, func(p *reconciler.PullRequest) { p.Head = more })
	w.eventually("failure reported", func() bool { return check(more, plan.CheckPlan)().Conclusion == plan.Failure })
	require.NotContains(t, check(more, plan.CheckPlan)().Title, "nothing can be planned")
	require.NoError(t, w.git.SetPull(8, mend))
	w.change(8, func(p *reconciler.PullRequest) { p.Head = mend })

	require.NoError(t, w.git.SetRef("refs/heads/main", mend))
	w.eventually("planned again", func() bool { return planned().Conclusion == plan.Success })
	w.eventually("plan published", w.shownFully(7, pr.Head))
	p, _ := w.forge.last(7)
	require.Equal(t, before.Digest, p.Digest, "the plan is unchanged")
}

// Before the first decision Berth validates pull requests without a plan if the
// decision takes long.
func TestChecksBeforeTheFirstDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	pr := w.topic(7, map[string]string{path: text + "# more\n"})
	w.put(nil, "platform", "tenants")
	w.start()
	w.eventually("check published", func() bool { return w.forge.check(pr.Head, plan.CheckPlan).Name != "" })
	require.Equal(t, plan.Failure, w.forge.check(pr.Head, plan.CheckPlan).Conclusion)
	all := estateFiles()
	all[path] = text
	w.put(all)
	w.eventually("planned", func() bool { return w.forge.check(pr.Head, plan.CheckPlan).Conclusion == plan.Success })
}

// A group of the merge queue gets both checks on its own head and no comment, also
// without a webhook.
func TestMergeGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	ref := func(n int) string {
		return fmt.Sprintf("refs/heads/queue/main/pr-%d-%s", n, w.git.Tip("main"))
	}
	good := w.git.MustCommit(t, "g1", gittest.Commit{Message: "G", Parent: w.git.Tip("main"), Files: map[string]string{path: text}})
	bad := w.git.MustCommit(t, "g2", gittest.Commit{Message: "G", Parent: good, Files: map[string]string{path: "nonsense\n"}})
	require.NoError(t, w.git.SetRef(ref(1), good))
	require.NoError(t, w.git.SetRef("refs/heads/queue/develop/pr-9", bad))
	d := w.start()
	both := func(head string, c plan.Conclusion) func() bool {
		return func() bool {
			return w.forge.check(head, plan.CheckValidate).Conclusion == c && w.forge.check(head, plan.CheckPlan).Conclusion == c
		}
	}
	w.eventually("found", both(good, plan.Success))
	require.Empty(t, w.forge.check(bad, plan.CheckPlan).Name, "queue of another branch")
	gone := ref(2)
	require.NoError(t, w.git.SetRef(gone, bad))
	d.Enqueue(reconciler.Item{Task: reconciler.TaskGroup, Ref: gone})
	w.eventually("checks published", both(bad, plan.Failure))
	require.NoError(t, w.git.SetRef(gone, ""))
	d.does(reconciler.Item{Task: reconciler.TaskGroup, Ref: gone})
	d.does(theShow)
	require.Empty(t, w.forge.written("comment"))
	require.Len(t, w.forge.written(""), 4)
	require.Empty(t, w.reviews())
}

// TestManyPullRequestsAndTheBaseMoves: after a merge, Berth writes again only on
// the pull requests whose plan changed, the newest first.
func TestManyPullRequestsAndTheBaseMoves(t *testing.T) { moveBaseUnder(t, 60) }

// moveBaseUnder opens the given number of pull requests, one in 20 in a second tenant,
// and merges a change of that tenant only.
func moveBaseUnder(t *testing.T, many int) {
	t.Helper()
	w := newWorld(t)
	main := w.git.Tip("main")
	var in strings.Builder
	prs := make([]reconciler.PullRequest, many)
	for i := range prs {
		tenant := "physics"
		if i%20 == 0 {
			tenant = "biology"
		}
		_, text := instance(fmt.Sprint("job-", i), 0)
		file := fmt.Sprintf("tenants/%s/projects/lab/instances/job-%d.yaml", tenant, i)
		fmt.Fprintf(&in, "commit refs/pull/%d/head\ncommitter A <a@example.org> 1 +0000\ndata 1\nx\nfrom %s\nM 100644 inline %s\ndata "+
			"%d\n%s\n", i+1, main, file, len(text), text)
	}
	_, err := w.git.GitInput(strings.NewReader(in.String()), "fast-import", "--quiet")
	require.NoError(t, err)
	for i := range prs {
		prs[i] = reconciler.PullRequest{Number: i + 1, Author: "ada", Head: w.git.Ref(fmt.Sprintf("refs/pull/%d/head", i+1)),
			BaseBranch: "main", Open: true}
	}
	w.forge.set(prs...)
	w.git.ResetRequests()
	d := w.start(func(o *loop.Options) { o.Settings.Poll, o.Settings.Interval = time.Hour, time.Hour })
	w.eventually("every plan published", func() bool { return len(w.forge.written("")) == 3*many })
	require.Less(t, w.git.Requests()["POST git-upload-pack"], 20, "heads are fetched in batches")
	w.forge.mu.Lock()
	w.forge.writes, w.forge.read = nil, 0
	w.forge.mu.Unlock()

	w.put(map[string]string{"tenants/biology/projects/lab/entitlements/batch.yaml": "apiVersion: berth/v1\nkind: Entitlement\nmetadata: " +
		"{name: batch}\nspec: {enabled: false}\n"})
	d.Enqueue(reconciler.Item{Task: reconciler.TaskEstate})
	changed := many / 20
	w.eventually("the changed plans published", func() bool { return len(w.forge.written("comment")) >= changed })
	var order []string
	for i := many - 20; i >= 0; i -= 20 {
		order = append(order, fmt.Sprint("comment ", i+1))
	}
	require.Equal(t, order, w.forge.written("comment"), "newest first")
	// The validate checks are unchanged; only the plan checks are written.
	require.Len(t, w.forge.written("check berth/plan"), changed)
	require.LessOrEqual(t, len(w.forge.written("")), 3*changed)
	w.forge.mu.Lock()
	defer w.forge.mu.Unlock()
	require.LessOrEqual(t, w.forge.read, 2*changed, "unchanged pull requests are not read")
}

// However many pull requests one author opens, another author's is planned at the next turn, also
// if it became known last.
func TestAuthorsTakeTurns(t *testing.T) {
	w := newWorld(t)
	var prs []reconciler.PullRequest
	for n := 1; n <= 30; n++ {
		pr := w.topic(n, map[string]string{fmt.Sprintf("notes-%d.md", n): "words\n"})
		if n < 30 {
			pr.Author = "eve"
		}
		prs = append(prs, pr)
	}
	w.forge.set(prs...)
	for name, list := range map[string]bool{"webhooks": false, "a list": true} {
		o, _ := w.options(t.TempDir(), func(*gitrepo.Options) {})
		r := loop.New(o)
		for _, pr := range prs {
			if !list {
				r.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: pr.Number}) // as their webhooks arrive
			}
		}
		require.NoError(t, r.ListPulls(t.Context()))
		var first []string
		for range 4 {
			first = append(first, prs[r.NextPull()-1].Author)
		}
		require.Contains(t, first[:3], "ada", "%s: %v", name, first)
		require.Contains(t, first[:3], "eve", "%s: %v", name, first)
	}
}

// refusing is a repository that refuses every pull request as too large.
type refusing struct{ reconciler.Repo }

func (r refusing) FetchPull(context.Context, int) (string, error) {
	return "", fmt.Errorf("its commits bring too much: %w", reconciler.ErrRefused)
}

// shut is a runtime without observations until released.
type shut struct {
	runtimes.Runtime
	until chan struct{}
}

func (b shut) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	select {
	case <-b.until:
		return b.Runtime.Observe(ctx, s)
	default:
		return plan.Observed{Key: s.Key, Presence: plan.Unknown, Reason: "not yet"}
	}
}

// A plan made before the jobs on a unit are known is published at once, and again when
// they are known. Known jobs stay in the review while no observation is possible.
func TestJobsArePublishedOnceKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	d := w.start()
	w.eventually("runs", w.phase("train", plan.PhaseRunning))
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{Running: 4}))
	require.NoError(t, d.stop())
	_, text = instance("train", 1)
	pr := w.topic(7, map[string]string{path: text})
	see := make(chan struct{})
	unseeing := func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": shut{memory.New(w.world), see}}
	}
	d = w.start(unseeing)
	w.eventually("plan published", w.shownFully(7, pr.Head))
	require.Empty(t, w.reviews()[7].Jobs())
	close(see)
	w.eventually("jobs known", func() bool { return len(w.reviews()[7].Jobs()) == 1 && w.reviews()[7].Next == nil })
	require.Equal(t, 4, w.reviews()[7].Jobs()[0].Running())
	require.NoError(t, d.stop())

	wrote := w.forge.written("")
	w.forge.mu.Lock()
	w.forge.calls = 0
	w.forge.mu.Unlock()
	see = make(chan struct{})
	w.start(unseeing)
	w.callsMore(3)
	require.Equal(t, wrote, w.forge.written(""))
	require.Len(t, w.reviews()[7].Jobs(), 1)
}

// The review of a change lists the jobs on the unit. A later change of their number is
// not published.
func TestReviewListsJobsOfTheUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	d := w.start()
	w.eventually("runs", w.phase("train", plan.PhaseRunning))
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{Running: 4, Pending: 2}))
	calls := w.world.TotalCalls()
	w.eventually("jobs observed", func() bool { return w.world.TotalCalls() > calls+2 })
	_, text = instance("train", 1)
	pr := w.topic(7, map[string]string{path: text})
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPulls})
	w.eventually("plan published", w.shownFully(7, pr.Head))
	shown := w.reviews()[7].Jobs()
	require.Len(t, shown, 1)
	require.False(t, shown[0].At.IsZero())
	shown[0].At = time.Time{}
	require.Equal(t, []plan.UnitJobs{{Key: trainKey,
		JobImpact: plan.JobImpact{Waited: plan.JobSet{Count: 4}, Kept: plan.JobSet{Count: 2}}}}, shown)

	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{}))
	wrote := w.forge.written("")
	require.NoError(t, d.stop())
	w.forge.mu.Lock()
	w.forge.calls = 0
	w.forge.mu.Unlock()
	w.start()
	w.callsMore(3) // checks and comment are compared again
	require.Equal(t, wrote, w.forge.written(""))
	require.Equal(t, 4, w.reviews()[7].Jobs()[0].Running())
}

// A plan without actions is made once, also when the jobs on the unit become known
// later. Such a plan shows no jobs.
func TestPlanWithoutActionsIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	d := w.start()
	w.eventually("runs", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())
	pr := w.topic(7, map[string]string{path: strings.Replace(text, "spec:\n", "suspend: true\nspec:\n", 1)})
	var looks atomic.Int64
	see := make(chan struct{})
	d = w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": shut{memory.New(w.world), see}}
		o.Hooks.Watch = func(i reconciler.Item) func(bool) {
			if i.Task == reconciler.TaskPull {
				looks.Add(1)
			}
			return func(bool) {}
		}
	})
	w.eventually("plan published", w.shownFully(7, pr.Head))
	close(see)
	d.does(train)
	d.publishes(7)
	// Each commit has it planned once, after a delay in which a plan that has itself made again would be made too.
	const commits = 4
	before := looks.Load()
	for n := range commits {
		replanned := d.seen.after(1, []reconciler.Item{{Task: reconciler.TaskReplan}})
		w.put(map[string]string{"README.md": fmt.Sprint(n, "\n")})
		w.eventually("planned again", replanned)
		d.does(theShow)
	}
	require.LessOrEqual(t, looks.Load()-before, int64(commits+1), "once more after the unit was observed")
}
