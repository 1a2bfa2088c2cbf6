package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/reconciler/pulls"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/estate"
)

// Options say what a Reconciler works with. Zero durations and counts take the
// defaults named.
type Options struct {
	Branch   string // the branch people merge to, for which pull requests are planned: main
	Repo     reconciler.Repo
	Forge    reconciler.Forge // nil: no forge; everything else works the same
	Render   pulls.Render     // how what is known is said at the forge; needed if there is one
	Loader   *estate.Loader
	Runtimes map[string]runtimes.Runtime // by runtime_backend

	// Authority is nil where whoever can push to main may change everything.
	Authority *decide.Authority
	// Rules refuse what a change makes of the estate, besides the core's own.
	Rules []func(before, after *schema.Desired) []schema.Diagnostic
	// AuthorLag is how long a forge may take to tell which pull request a new
	// commit is of, before that counts as none: 20 s.
	AuthorLag time.Duration
	// Accept is a commit of main that the operator takes over as it is, though
	// nothing tells any more what of it was held; "": none.
	Accept string

	// Artifacts looks at the bytes of what is published; nil: nobody does.
	Artifacts        runtimes.Artifacts
	ArtifactInterval time.Duration // between two looks at one: 1 h

	// Dates has it found out, in the background, when documents came, for View.
	Dates bool
	// Retention is for how long a deleted instance can be read by its id, from the
	// event log; zero: 90 days. Negative: none can.
	Retention time.Duration

	Interval    time.Duration // between two looks at a unit (requirement E1): 5 s
	Poll        time.Duration // between two fetches nobody asked for: 60 s
	Flush       time.Duration // status is gathered this long before it is written: 1 s
	Workers     int           // units reconciled side by side, besides those that hang: 4
	MaxAttempts int           // tries of a failing unit before it waits for a new revision: 10
	Log         *slog.Logger
	Now         func() time.Time
	Metrics     *Metrics // nil: not measured
	// Owed is what others keep until it is recorded; nil: nobody does.
	Owed reconciler.Owed
	// Looking is told that an item is about to be looked at; what it returns, what
	// came of it: whether it was dealt with, or is to be looked at once more. Nil:
	// nobody wants to know.
	Looking func(reconciler.Item) (ended func(dealtWith bool))
}

// Reconciler keeps one estate. Make it with New, run it once with Run.
type Reconciler struct {
	o       Options
	queue   workqueue.TypedRateLimitingInterface[reconciler.Item]
	forge   workqueue.TypedRateLimitingInterface[reconciler.Item] // of its own: a slow forge delays no repair
	plans   workqueue.TypedRateLimitingInterface[reconciler.Item] // of pull requests: what is computed waits for no forge's pace
	bytes   workqueue.TypedRateLimitingInterface[reconciler.Item] // and so does no slow registry
	decider *decide.Decider
	writer  *status.Writer
	stood   *reconciler.State // the decision whose standings are recorded; under writer.Decision
	pulls   *pulls.Pulls
	looks   artifacts
	views   views
	dates   dates

	// The estate task's own: whether an earlier run decided something and did not
	// tell of it, and over which state (nil: nobody knows); and up to which commit
	// of main it did tell.
	untold     bool
	unrecorded *reconciler.State
	toldTo     string
	enforced   *enforced // nil: this process has put nothing into effect
	remarked   time.Time // when Revision.Remarks changed last

	authors *provenance.Authors // the estate task's own

	mu      sync.Mutex
	state   *reconciler.State     // replaced whole by each decision; nil before the first
	tip     string                // main's, as last fetched
	waits   map[schema.Key]string // digest of the plan a unit waits to go on with
	seen    map[schema.Key]bool   // units looked at in this run
	frozen  string                // why main's commit cannot be taken over; "": it is
	ready   chan struct{}         // closed when it is known what is in force
	repoErr error                 // at the repository, while it persists
}

// New makes a Reconciler.
func New(o Options) *Reconciler {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Interval, 5*time.Second)
	def(&o.Poll, time.Minute)
	def(&o.Flush, time.Second)
	def(&o.AuthorLag, 20*time.Second)
	def(&o.ArtifactInterval, time.Hour)
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 10
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Branch == "" {
		o.Branch = "main"
	}
	queue := func() workqueue.TypedRateLimitingInterface[reconciler.Item] {
		return workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[reconciler.Item](500*time.Millisecond, 30*time.Second))
	}
	r := &Reconciler{
		o: o, queue: queue(), forge: queue(), plans: queue(), bytes: queue(),
		waits: map[schema.Key]string{},
		seen:  map[schema.Key]bool{},
		looks: artifacts{misses: map[schema.Key]int{}},
		ready: make(chan struct{}),
	}
	r.authors = provenance.New(provenance.Options{
		Repo: o.Repo, Forge: o.Forge, Branch: o.Branch, CheckAuthority: o.Authority != nil, Lag: o.AuthorLag, Accept: o.Accept, Log: o.Log, Now: o.Now,
		Acks: func(ctx context.Context, pull int) ([]decide.Ack, error) { return r.pulls.Acks(ctx, pull) },
	})
	r.decider = decide.New(decide.Options{Loader: o.Loader, Authority: o.Authority, Rules: o.Rules})
	r.pulls = r.newPulls()
	r.writer = status.NewWriter(status.Options{
		Repo: o.Repo, Window: o.Flush, Retention: o.Retention, Owed: o.Owed,
		OnPush: o.Metrics.pushed, OnCheck: o.Metrics.chain, Log: o.Log, Now: o.Now,
	})
	return r
}

// Enqueue asks to look at something soon. It never blocks; equal items that
// wait are one.
func (r *Reconciler) Enqueue(i reconciler.Item) {
	if i.Task == reconciler.TaskPull {
		r.pulls.Heard(i.Pull)
	}
	if q := r.queueOf(i); q != nil {
		q.Add(i)
	}
}

// queueOf is where an item waits; nil: there is no forge to look at.
func (r *Reconciler) queueOf(i reconciler.Item) workqueue.TypedRateLimitingInterface[reconciler.Item] {
	switch i.Task {
	case reconciler.TaskPulls, reconciler.TaskRollout, reconciler.TaskShow, reconciler.TaskCancelChecks, reconciler.TaskCommands:
		if r.o.Forge == nil {
			return nil
		}
		return r.forge
	case reconciler.TaskPull, reconciler.TaskReplan, reconciler.TaskGroup:
		if r.o.Forge == nil {
			return nil
		}
		return r.plans
	case reconciler.TaskArtifacts, reconciler.TaskArtifact:
		return r.bytes
	}
	return r.queue
}

// Ready is closed once it is known what is in force: main's commit is decided,
// or it cannot be taken over and what was in force before is kept.
func (r *Reconciler) Ready() <-chan struct{} { return r.ready }

// Run keeps the estate until ctx ends, then writes what is still unwritten and
// returns nil. It returns an error when it cannot go on at all: another daemon
// has taken over, or the status branch cannot be led.
func (r *Reconciler) Run(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, startAgain) {
		err := r.writer.Lead(ctx)
		r.noteRepository(err)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		r.o.Log.Warn("cannot start yet", "error", err, "again_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
	epoch, leader := r.writer.Leadership()
	r.o.Log.Info("leading", "epoch", epoch, "leader", leader)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		r.writer.LoadDeleted(ctx)
		return nil
	})
	// The writer outlives the workers: what they record at the end is written.
	workers, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return r.writer.Run(workers) })
	g.Go(func() error {
		defer stopWriter()
		var wg sync.WaitGroup
		wg.Go(func() { r.pool(r.queue, r.o.Workers).run(ctx) })
		wg.Go(func() { r.work(ctx, r.forge, forgeWorkers) })
		wg.Go(func() { r.work(ctx, r.plans, planWorkers) })
		wg.Go(func() { r.pool(r.bytes, artifactWorkers).run(ctx) })
		wg.Wait()
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		r.queue.ShutDown()
		r.forge.ShutDown()
		r.plans.ShutDown()
		r.bytes.ShutDown()
		return nil
	})
	g.Go(func() error {
		t := time.NewTicker(r.o.Poll)
		defer t.Stop()
		for {
			r.Enqueue(reconciler.Item{Task: reconciler.TaskEstate})
			r.Enqueue(reconciler.Item{Task: reconciler.TaskPulls})
			r.Enqueue(reconciler.Item{Task: reconciler.TaskCommands})
			select {
			case <-t.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// pool returns a pool that reconciles the items of a queue.
func (r *Reconciler) pool(q workqueue.TypedRateLimitingInterface[reconciler.Item], workers int) *pool {
	return &pool{queue: q, workers: workers, do: func(ctx context.Context, item reconciler.Item) { r.one(ctx, q, item) }}
}

// work reconciles the items of a queue with so many workers, until the queue is
// shut down.
func (r *Reconciler) work(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconciler.Item], workers int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range workers {
		wg.Go(func() {
			for {
				item, down := q.Get()
				if down {
					return
				}
				r.one(ctx, q, item)
				q.Done(item)
			}
		})
	}
}

const (
	// startAgain is the longest wait before a daemon tries again to take
	// leadership: it works a few seconds after its remote does.
	startAgain = 5 * time.Second
	// forgeWorkers speak to people: few, as a forge bounds how much it is asked.
	forgeWorkers = 2
	// planWorkers look at pull requests, which is mostly computing.
	planWorkers = 3
	// maxPlanTries is how often a pull request is planned in a row; the next poll
	// tries again.
	maxPlanTries = 8
	// movedAgain is when a pull request whose head moved is planned again.
	movedAgain = 2 * time.Second
)

// one looks at one item. A panic costs that item a retry and nobody else
// anything.
func (r *Reconciler) one(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconciler.Item], item reconciler.Item) {
	if ctx.Err() != nil {
		return
	}
	start := r.o.Now()
	dealtWith := false
	if r.o.Looking != nil {
		ended := r.o.Looking(item)
		defer func() { ended(dealtWith) }()
	}
	var again time.Duration
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		switch item.Task {
		case reconciler.TaskEstate:
			defer r.Enqueue(reconciler.Item{Task: reconciler.TaskArtifacts})
			if r.o.Dates {
				defer r.Enqueue(reconciler.Item{Task: reconciler.TaskDates})
			}
			return r.reconcileEstate(ctx)
		case reconciler.TaskUnit:
			again, err = r.reconcileUnit(ctx, item.Unit)
		case reconciler.TaskPlace:
			r.replace()
		case reconciler.TaskPulls:
			return r.pulls.List(ctx)
		case reconciler.TaskPull:
			again, err = r.pulls.Plan(ctx, item.Pull)
		case reconciler.TaskReplan:
			return r.pulls.Replan(ctx)
		case reconciler.TaskGroup:
			again, err = r.pulls.PlanGroup(ctx, item.Ref)
		case reconciler.TaskShow:
			again, err = r.pulls.Publish(ctx)
		case reconciler.TaskCancelChecks:
			return r.o.Forge.CancelChecks(ctx, item.Commit)
		case reconciler.TaskCommands:
			again, err = r.pulls.AnswerCommands(ctx)
		case reconciler.TaskRollout:
			return r.pulls.Follow(ctx, item.Commit)
		case reconciler.TaskArtifacts:
			return r.scanArtifacts(ctx)
		case reconciler.TaskArtifact:
			again, err = r.lookAtArtifact(ctx, item.Unit)
		case reconciler.TaskDates:
			again, err = r.date(ctx)
		}
		return err
	}()
	r.o.Metrics.reconciled(item.Task, r.o.Now().Sub(start), err)
	if item.Task == reconciler.TaskEstate {
		r.noteRepository(err)
	}
	var later *reconciler.RetryAfterError
	switch {
	case ctx.Err() != nil:
	case err == nil:
		dealtWith = true
		q.Forget(item)
		if again > 0 {
			q.AddAfter(item, again)
		}
	case errors.As(err, &later):
		r.o.Log.Info("the forge asks to wait", "item", item.String(), "until", later.At, "why", err)
		q.AddAfter(item, max(time.Second, later.At.Sub(r.o.Now())))
	case errors.Is(err, reconciler.ErrHeadMoved):
		q.Forget(item)
		q.AddAfter(item, movedAgain)
	case (q == r.forge || q == r.plans) && errors.Is(err, reconciler.ErrNotFound), q == r.plans && q.NumRequeues(item) >= maxPlanTries:
		r.o.Log.Warn("given up until something new is heard of it", "item", item.String(), "error", err)
		dealtWith = true
		q.Forget(item)
	default:
		r.o.Log.Warn("reconcile failed; again later", "item", item.String(), "error", err)
		q.AddRateLimited(item)
	}
}

// noteRepository records whether the estate's repository could be used last time,
// for Unsettled.
func (r *Reconciler) noteRepository(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repoErr = err
}

// OperatorError is why the estate's repository cannot be used until an operator
// changes something; nil while it can, or while waiting may help.
func (r *Reconciler) OperatorError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if operator := (*reconciler.OperatorError)(nil); errors.As(r.repoErr, &operator) {
		return r.repoErr
	}
	return nil
}

// current is the decision in force, or nil before the first.
func (r *Reconciler) current() *reconciler.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Node is the node of a name as it is in force, or nil.
func (r *Reconciler) Node(name string) *schema.Node {
	if st := r.current(); st != nil {
		return st.Effective.Nodes[name]
	}
	return nil
}

// Main is the commit of main that was decided last; "" before the first.
func (r *Reconciler) Main() string {
	if st := r.current(); st != nil {
		return st.Main
	}
	return ""
}

// Left is something that is not as it shall be, and why.
type Left struct {
	What  string
	Stuck bool // waiting does not help: it takes another commit, or a person
}

// Unsettled lists what is not as it shall be, by unit. Nil: everything is
// decided, was looked at, is converged and written.
func (r *Reconciler) Unsettled() []Left {
	rev := r.writer.Revision()
	r.mu.Lock()
	st, frozen, seen, repoErr := r.state, r.frozen, maps.Clone(r.seen), r.repoErr
	r.mu.Unlock()
	var out []Left
	if st != nil && st.Paused != "" {
		out = append(out, Left{What: "Berth is paused: " + st.Paused, Stuck: true})
	}
	if frozen != "" {
		out = append(out, Left{What: "the sync is frozen: " + frozen, Stuck: true})
	} else if !r.isReady() {
		if repoErr != nil {
			return []Left{{What: repoErr.Error()}}
		}
		return []Left{{What: "no commit has been decided yet"}}
	}
	for _, h := range rev.Held {
		out = append(out, Left{What: fmt.Sprintf("%s is held (%s): %s", h.File, h.Why(), h.Message), Stuck: true})
	}
	mem := r.writer.Units()
	for _, k := range mem.Keys() {
		s := mem.Get(k)
		if !seen[k] {
			out = append(out, Left{What: k.String() + ": not looked at yet"})
			continue
		}
		var want *schema.EffectiveInstance
		if st != nil {
			want = st.Instance(k)
		}
		if l := left(s, want, st); l != nil {
			out = append(out, *l)
		}
	}
	if out == nil && !r.writer.IsWritten() {
		out = append(out, Left{What: "status is not written yet"})
	}
	return out
}

func (r *Reconciler) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// at says whether a unit is in the state it shall be in.
func at(s *plan.Status, desired schema.DesiredState) bool {
	if desired == schema.DesiredStopped {
		return s.Phase == plan.PhaseStopped
	}
	return s.Phase == plan.PhaseRunning
}

// left is what a unit lacks of how it shall be; nil if that is nothing. What is
// declared suspended shall be as it is; what a shared runtime is to carry comes
// with no waiting.
func left(s *plan.Status, want *schema.EffectiveInstance, st *reconciler.State) *Left {
	l := unsettled(s)
	switch {
	case want == nil:
	case want.SharedRuntime != "":
		if i := st.Desired.Instance(s.Key); i != nil && i.Suspend {
			return nil
		}
		l.Stuck = true
	case want.Suspend, s.Settled() && at(s, want.DesiredState):
		return nil
	}
	return &l
}

// unsettled says of a unit what is in its way.
func unsettled(s *plan.Status) Left {
	why, stuck := s.FailureReason, false
	for _, c := range s.Conditions {
		switch {
		case c.Type == "Ready" && why == "":
			why = c.Message
		case c.Type == "Stalled":
			stuck = c.Status == "True"
		}
	}
	return Left{What: strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", s.Key, s.Phase, why), ": "), Stuck: stuck}
}

func short(id string) string {
	return reconciler.Short(id)
}
