package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/reconciler/pulls"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/audit"
)

// maxLeadWait is the longest wait between two attempts to take leadership: a daemon
// works a few seconds after its remote recovers.
const maxLeadWait = 5 * time.Second

// Reconciler keeps one estate. Make it with New, and run it once with Run.
type Reconciler struct {
	o         Options
	status    *status.Writer
	inForce   *inForce
	queues    *queues
	pulls     *pulls.Pulls
	estate    *estateTask
	units     *unitTask
	artifacts *artifactScanner
	nodes     *nodeObserver
	effects   *ruleEffects
	dates     *dates
	usage     *usageCollector
	liveUsage *liveUsage
	standby   *standby
	views     *views
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	o = o.withDefaults()
	r := &Reconciler{o: o, inForce: newInForce(o.Metrics), standby: &standby{peers: o.Peers, log: o.Log}}
	r.queues = newQueues(&o, func(i reconciler.Item) string { return r.pulls.Owner(i) })
	r.status = status.NewWriter(status.Options{
		Repo: o.Repo, URL: o.Peers.URL, Window: o.Settings.Flush, Retention: o.Settings.Retention, Owed: o.Owed,
		OnPush: o.Metrics.pushed, OnCheck: o.Metrics.chain, Log: o.Log, Now: o.Now,
	})
	recorder := &recorder{status: r.status, queues: r.queues, log: o.Log, now: o.Now}
	decider := decide.New(o.Decide)
	r.pulls = newPulls(&o, recorder, r.inForce, decider)
	recorder.pulls = r.pulls
	history := history{o.Repo, o.Log}
	authors := provenance.New(provenance.Options{
		Repo: o.Repo, Forge: o.Forge, Branch: o.Branch, CheckAuthority: o.Decide.Authority != nil, Lag: o.Settings.AuthorLag,
		Accept: o.Accept, Log: o.Log, Now: o.Now, Acks: r.pulls.Acks,
	})
	r.estate = &estateTask{
		recorder: recorder, o: &r.o, inForce: r.inForce, decider: decider, authors: authors,
		enforcer: &enforcer{
			recorder: recorder, inForce: r.inForce, decider: decider, authors: authors, metrics: o.Metrics, history: history,
			attachments: attachments{status: r.status, queues: r.queues}, queueMaps: queueMaps{recorder, o.Metrics, o.Hooks.QueueMap},
			hookRules: hookRules{recorder},
		},
	}
	r.usage = &usageCollector{
		recorder: recorder, inForce: r.inForce, repo: o.Repo, meters: metersOf(o.Runtimes), interval: o.Settings.Usage,
		timeout: usageTimeout,
	}
	r.liveUsage = &liveUsage{usageCollector: r.usage}
	r.nodes = newNodeObserver(&o, recorder, r.inForce)
	r.effects = newRuleEffects(&o, recorder, r.inForce, ruleActions{recorder, r.inForce, decider.Permissions(), r.requestOperation})
	r.units = &unitTask{
		recorder: recorder, inForce: r.inForce, gate: &gate{recorder, o.Settings.AuthorLag},
		attachments: attachments{status: r.status, queues: r.queues}, runtimes: o.Runtimes,
		interval: o.Settings.Interval, observing: o.Settings.Observe, maxAttempts: o.Settings.MaxAttempts, metrics: o.Metrics,
		usage:      r.usage,
		nodeViews:  r.nodes.views,
		rate:       newChangeRate(),
		continuing: map[schema.Key]string{}, reconciled: map[schema.Key]bool{},
	}
	r.artifacts = &artifactScanner{
		recorder: recorder, inForce: r.inForce, history: history, reader: o.Readers.Artifacts, interval: o.Settings.ArtifactInterval,
		misses: map[schema.Key]int{},
	}
	r.dates = newDates(r.inForce, o.Repo, o.Log)
	r.views = &views{inForce: r.inForce, status: r.status, dates: r.dates}
	r.queues.tasks = r.tasks()
	return r
}

// tasks is the table of tasks with the queue and the handler of each.
func (r *Reconciler) tasks() map[reconciler.Task]task {
	q := r.queues
	out := map[reconciler.Task]task{
		reconciler.TaskEstate:    {q.hosts, r.estate.reconcile},
		reconciler.TaskUnit:      {q.hosts, r.units.reconcile},
		reconciler.TaskPlace:     {q.hosts, r.estate.place},
		reconciler.TaskArtifacts: {q.artifacts, r.artifacts.scan},
		reconciler.TaskArtifact:  {q.artifacts, r.artifacts.verify},
	}
	if r.o.Settings.Dates {
		out[reconciler.TaskDates] = task{q.hosts, r.dates.reconcile}
	}
	if r.o.Forge == nil {
		return out
	}
	once := func(run func(context.Context) error) handler {
		return func(ctx context.Context, _ reconciler.Item) (time.Duration, error) { return 0, run(ctx) }
	}
	repeated := func(run func(context.Context) (time.Duration, error)) handler {
		return func(ctx context.Context, _ reconciler.Item) (time.Duration, error) { return run(ctx) }
	}
	out[reconciler.TaskPulls] = task{q.forge, once(r.pulls.List)}
	out[reconciler.TaskShow] = task{q.forge, repeated(r.pulls.Publish)}
	out[reconciler.TaskCommands] = task{q.forge, repeated(r.pulls.AnswerCommands)}
	out[reconciler.TaskRollout] = task{q.forge, func(ctx context.Context, i reconciler.Item) (time.Duration, error) {
		return 0, r.pulls.Follow(ctx, i.Commit)
	}}
	out[reconciler.TaskCancelChecks] = task{q.forge, func(ctx context.Context, i reconciler.Item) (time.Duration, error) {
		return 0, r.o.Forge.CancelChecks(ctx, i.Commit)
	}}
	out[reconciler.TaskReplan] = task{q.plans, once(r.pulls.Replan)}
	out[reconciler.TaskPull] = task{q.plans,
		func(ctx context.Context, i reconciler.Item) (time.Duration, error) { return r.pulls.Plan(ctx, i.Pull) }}
	out[reconciler.TaskGroup] = task{q.plans, func(ctx context.Context, i reconciler.Item) (time.Duration, error) {
		return r.pulls.PlanGroup(ctx, i.Ref)
	}}
	return out
}

// Enqueue has an item reconciled soon. It never blocks. Equal items that wait are
// reconciled once. Pull requests that are not known yet are listed together, so that their
// authors take turns from the start.
func (r *Reconciler) Enqueue(i reconciler.Item) {
	if i.Task == reconciler.TaskPull && !r.pulls.Heard(i.Pull) {
		r.queues.add(reconciler.Item{Task: reconciler.TaskPulls})
	}
	r.queues.add(i)
}

// Ready is closed once the commit in force is known: main's commit is decided, or
// cannot be taken over and the previous commit in force is kept.
func (r *Reconciler) Ready() <-chan struct{} { return r.inForce.ready }

// Run keeps the estate until ctx ends, then writes all pending changes and returns
// nil. It returns an error if it cannot continue: another daemon took leadership, or
// berth/status cannot be written at all.
func (r *Reconciler) Run(ctx context.Context) error {
	if !r.lead(ctx) {
		r.queues.shutDown()
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		r.status.LoadDeleted(ctx)
		return nil
	})
	// The writer outlives the workers and writes their last records.
	writing, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return r.status.Run(writing) })
	g.Go(func() error {
		defer stopWriter()
		var wg sync.WaitGroup
		wg.Go(func() { r.queues.run(ctx) })
		wg.Go(func() { r.poll(ctx) })
		wg.Go(func() { r.usage.run(ctx) })
		wg.Go(func() { r.nodes.run(ctx) })
		wg.Go(func() { r.effects.run(ctx) })
		wg.Wait()
		return nil
	})
	return g.Wait()
}

// lead takes leadership once no other daemon leads, and returns false if ctx ends before that.
func (r *Reconciler) lead(ctx context.Context) bool {
	for wait := time.Second; ; wait = min(2*wait, maxLeadWait) {
		if !r.standby.wait(ctx, r.status.LeaderURL) {
			return false
		}
		err := r.status.Lead(ctx)
		r.inForce.setRepositoryError(err)
		if err == nil {
			epoch, leader := r.status.Leadership()
			r.o.Log.Info("leadership taken", "epoch", epoch, "leader", leader)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		r.o.Log.Warn("leadership not taken yet", "error", err, "again_in", wait)
		if !sleep(ctx, wait) {
			return false
		}
	}
}

// poll enqueues checks for changes that a webhook may have missed, at intervals.
func (r *Reconciler) poll(ctx context.Context) {
	t := time.NewTicker(r.o.Settings.Poll)
	defer t.Stop()
	for {
		r.queues.add(reconciler.Item{Task: reconciler.TaskEstate})
		r.queues.add(reconciler.Item{Task: reconciler.TaskPulls})
		r.queues.add(reconciler.Item{Task: reconciler.TaskCommands})
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// OperatorError returns the reason why the estate's repository cannot be used until an
// operator acts; nil if it can, or if waiting may help.
func (r *Reconciler) OperatorError() error {
	err := r.inForce.repositoryError()
	if operator := (*reconciler.OperatorError)(nil); errors.As(err, &operator) {
		return err
	}
	return nil
}

// Leadership returns the epoch and the identity that this daemon leads with; 0 before it leads.
func (r *Reconciler) Leadership() (epoch uint64, leader string) { return r.status.Leadership() }

// StatusTip returns the commit of berth/status that this daemon leads with, and a channel that is closed when it moves
// or leadership ends. leads is false before and after leadership.
func (r *Reconciler) StatusTip() (commit string, moved <-chan struct{}, leads bool) {
	return r.status.FollowTip()
}

// View returns the current view; false before the state in force is known.
func (r *Reconciler) View() (plan.View, bool) { return r.views.current() }

// Node returns a node in force, or nil.
func (r *Reconciler) Node(name string) *schema.Node {
	if st := r.inForce.current(); st != nil {
		return st.Effective.Nodes[name]
	}
	return nil
}

// Main returns the commit of main that was decided last; "" before the first.
func (r *Reconciler) Main() string {
	if st := r.inForce.current(); st != nil {
		return st.Main
	}
	return ""
}

// ShowAgain publishes the plan of a pull request, or with 0 of every one, again at
// the next reconciliation even if nothing changed.
func (r *Reconciler) ShowAgain(pull int) { r.pulls.ShowAgain(pull) }

// Shows returns true if checks are shown on a commit, or will be.
func (r *Reconciler) Shows(commit string) bool { return r.pulls.Shows(commit) }

// Audit records decisions from outside the loop, such as of the read API. The number
// of denials that wait to be written is bounded.
func (r *Reconciler) Audit(records ...audit.Record) { r.status.RecordExternal(records...) }

// AuditOwed has the records of Options.Owed written soon.
func (r *Reconciler) AuditOwed() { r.status.RecordOwed() }

// LeaderURL returns where the daemon that leads is reached while this one stands by for it, else "".
func (r *Reconciler) LeaderURL() string {
	if url := r.standby.leader.Load(); url != nil {
		return *url
	}
	return ""
}
