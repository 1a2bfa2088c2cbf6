package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/provenance"
	"berth/reconciler/pulls"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/estate"
)

// maxHeld bounds how many held documents revision.yaml names; the branch
// berth/in-force knows them all.
const maxHeld = 1000

// maxAttributed bounds how many commits of one fetch are told apart; what more
// there are is attributed to the newest.
const maxAttributed = 50

// correlation is the id that joins everything a commit of main causes: logs,
// ledgers, events, status, comments (requirement A11). It is made from the
// commit, so that it is the same after a restart.
func correlation(commit string) string {
	return reconciler.CorrelationID(commit)
}

const (
	// maxSaid bounds the remarks of repositories that revision.yaml has.
	maxSaid = 50
	// saidFor is for how long their words stay although others would say the same:
	// what somebody else's server answers makes no commit at each poll.
	saidFor = 10 * time.Minute
)

// remarksAnew are the remarks now. One about the same, named before the first
// colon, that differs from what it was in numbers alone, as a remote's troubles may
// with each try, stays as it was; so does, where they changed lately, one that
// differs behind the second colon.
func remarksAnew(was, now []string, lately bool) []string {
	what := func(s string) string {
		about, rest, _ := strings.Cut(s, ":")
		rest, _, _ = strings.Cut(rest, ":")
		return about + ":" + rest
	}
	numbers := func(s string) string {
		about, rest, _ := strings.Cut(s, ":")
		return about + ":" + strings.Map(func(c rune) rune {
			if c >= '0' && c <= '9' {
				return -1
			}
			return c
		}, rest)
	}
	out := slices.Clone(now[:min(len(now), maxSaid)])
	for i, line := range out {
		if at := slices.IndexFunc(was, func(s string) bool { return numbers(s) == numbers(line) || lately && what(s) == what(line) }); at >= 0 && !slices.Contains(was, line) {
			out[i] = was[at]
		}
	}
	return out
}

// reconcileEstate fetches, and decides main's commit if it is new: what comes
// into force, what is held, who stands where, and which units that changes.
func (r *Reconciler) reconcileEstate(ctx context.Context) error {
	tips, refused := r.o.Repo.Fetch(ctx)
	if refused != nil && !errors.Is(refused, reconciler.ErrRewritten) && !errors.Is(refused, reconciler.ErrUnreadable) {
		return refused
	}
	if err := r.writer.Fetched(ctx, tips.Status); err != nil {
		return err
	}
	if c, ok := r.o.Repo.(reconciler.NoticeReader); ok {
		r.writer.Revise(func(rev *reconciler.Revision) {
			now := remarksAnew(rev.Notices, c.Notices(), r.o.Now().Sub(r.remarked) < saidFor)
			if !slices.Equal(now, rev.Notices) {
				rev.Notices, r.remarked = now, r.o.Now()
			}
		})
	}
	r.mu.Lock()
	r.tip = tips.Main
	r.mu.Unlock()
	st := r.current()
	if st == nil && tips.InForce != "" {
		var err error
		if r.unrecorded, err = r.adopt(ctx, tips); err != nil {
			return err
		}
		st = r.current()
		r.untold = st != nil && r.unrecorded != st
		// After what follows from main as it is now: a unit that is acted on
		// before would be so for the commit before.
		defer r.wakeAll()
	}
	if refused != nil {
		return r.freeze(refused.Error())
	}
	if r.untold {
		st = r.unrecorded // what was decided over it is not told yet
	}
	same := st != nil && st.Main == tips.Main && st.InForce == tips.InForce
	unread := same && slices.ContainsFunc(st.Held, func(h plan.Held) bool { return h.Reason == estate.HeldUnreadable })
	acked := r.pulls.AcksWaiting()
	if same && len(acked) == 0 {
		if applied, err := r.applyNext(ctx, st); applied || err != nil {
			return err
		}
	}
	if same && !unread && len(acked) == 0 {
		r.thaw()
		if st.Day != r.today() {
			return r.tomorrow(ctx, st)
		}
		return nil
	}
	return r.decide(ctx, st, tips, unread || same, acked)
}

// decide decides what came to main since the last decision, and records it on
// berth/in-force.
func (r *Reconciler) decide(ctx context.Context, st *reconciler.State, tips reconciler.Tips, unread bool, acked []pulls.Acked) error {
	was, decided, err := r.standing(ctx, st, tips)
	if err != nil {
		return err
	}
	if was.Tree == nil && r.o.Authority != nil {
		if gone := r.writer.Revision().InForce; gone != "" && r.o.Accept != tips.Main {
			return r.freeze(fmt.Sprintf("%s is gone, which held %s: what was held for lack of authority is not known any more. Put the branch back, or set repository.accept to %s to take all of it as permitted",
				reconciler.BranchInForce, short(gone), tips.Main))
		}
	}
	ready := func() {}
	if tree, err := r.o.Repo.Snapshot(ctx, tips.Main); err == nil { // else steps says so
		ready = r.decider.Ahead(ctx, tree)
	}
	steps, err := r.authors.Steps(ctx, decided, tips.Main, r.awaitsAck())
	ready()
	if errors.Is(err, reconciler.ErrUnreadable) {
		return r.freeze(err.Error())
	}
	if err != nil {
		return err
	}
	if len(steps) == 0 || steps[len(steps)-1].Commit != tips.Main {
		r.queue.AddAfter(reconciler.Item{Task: reconciler.TaskEstate}, r.o.AuthorLag/4) // the rest cannot be decided yet
	}
	if len(steps) == 0 {
		return nil
	}
	if acked, err = r.pulls.AddAcks(ctx, steps, acked); err != nil {
		return err
	}
	d, err := r.decider.Commit(ctx, was, steps, r.today())
	if errors.Is(err, decide.ErrFrozen) {
		return r.freeze(err.Error())
	}
	if err != nil {
		return err
	}
	main := d.Commit
	verdicts, err := r.news(ctx, decided, d.Verdicts)
	if err != nil {
		return err
	}
	by := origins{last: d.Changed, first: d.First}
	requesters := provenance.Requesters(d.Verdicts)
	records, events := decisionRecords(verdicts, tips.InForce, r.appOf(d.Desired), r.o.Now()), entitlementEvents(verdicts, d.Desired, r.o.Now())
	switch {
	case was.Tree == nil:
		records = []audit.Record{adopted(main, len(d.Verdicts), r.o.Now())}
	case st != nil && st.InForce != tips.InForce:
		// An earlier run decided and wrote it, and what there is to tell of that was not.
		before, announced, earlier, err := r.missed(ctx, st, decided)
		if err != nil {
			return err
		}
		if earlier.Effective != nil {
			by = origins{last: earlier.Changed, first: earlier.First}.then(earlier.Effective, d)
		}
		for key, who := range provenance.Requesters(earlier.Verdicts) {
			requesters[key] = cmp.Or(requesters[key], who)
		}
		records, events = append(before, records...), append(announced, events...)
	}
	cause := correlation(main)
	inForce, err := r.o.Repo.WriteInForce(ctx, tips.InForce, reconciler.InForce{
		Commit: main, Replace: d.Replace, Held: d.Held, Permitted: d.Permitted, CorrelationID: cause, Epoch: r.writer.Revision().Epoch,
	})
	if errors.Is(err, reconciler.ErrConflict) {
		r.queue.Add(reconciler.Item{Task: reconciler.TaskEstate})
		return nil
	}
	if err != nil {
		return err
	}
	if unread && inForce == st.InForce {
		r.thaw() // it still cannot be read, or is held
		r.pulls.AcksDecided(acked)
		return nil
	}
	var before []plan.Held
	if st != nil {
		before = st.Held
	}
	for _, h := range newlyHeld(before, d.Held) {
		r.logAbout(h.Key, r.appOf(d.Desired)(h.Key), r.uidOf(d.Desired, h.Key), cause).Warn("held", "file", h.File, "reason", h.Reason, "message", h.Message, "commit", short(main))
	}
	if st != nil && st.Main == main { // no commit did this
		by = origins{}
		if len(acked) > 0 {
			by.first = acked[0].Commit
		}
	}
	by.requesters = requesters
	if err := r.enforce(ctx, st, newState(main, inForce, r.today(), d), by, acked, records, events); err != nil {
		return err
	}
	r.pulls.AcksDecided(acked)
	if d.Frozen == nil {
		return nil
	}
	return r.freeze(d.Frozen.Error())
}

// news are the verdicts about commits that no earlier run has told of. A commit
// that changes nothing on berth/in-force is decided again after a restart.
func (r *Reconciler) news(ctx context.Context, decided string, verdicts []decide.Verdict) ([]decide.Verdict, error) {
	if r.toldTo == "" || r.toldTo == decided || decided == "" {
		return verdicts, nil
	}
	commits, err := r.o.Repo.Log(ctx, decided, r.toldTo, provenance.MaxSteps)
	if errors.Is(err, reconciler.ErrNotFound) {
		return verdicts, nil // status speaks of a commit that is none
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(verdicts), func(v decide.Verdict) bool {
		return slices.ContainsFunc(commits, func(c reconciler.Commit) bool { return c.ID == v.Commit })
	}), nil
}

// missed is what a decision tells that an earlier run wrote to berth/in-force and
// not to berth/status, up to the commit decided, over the state st that it was
// decided over.
func (r *Reconciler) missed(ctx context.Context, st *reconciler.State, decided string) ([]audit.Record, []plan.Event, decide.Decision, error) {
	was, from, err := r.standing(ctx, st, reconciler.Tips{InForce: st.InForce})
	if errors.Is(err, reconciler.ErrRewritten) || errors.Is(err, reconciler.ErrNotFound) {
		r.o.Log.Warn("what status remembers of the last decision is none; what came since is not told", "in_force", short(st.InForce), "error", err)
		return nil, nil, decide.Decision{}, nil
	}
	if err != nil {
		return nil, nil, decide.Decision{}, err
	}
	steps, err := r.authors.Steps(ctx, from, decided, r.awaitsAck())
	if err != nil {
		return nil, nil, decide.Decision{}, err
	}
	if len(steps) == 0 || steps[len(steps)-1].Commit != decided {
		return nil, nil, decide.Decision{}, fmt.Errorf("it is not known yet who made all commits up to %s, which is decided", short(decided))
	}
	d, err := r.decider.Commit(ctx, was, steps, r.today())
	if errors.Is(err, decide.ErrFrozen) {
		return nil, nil, decide.Decision{}, nil
	}
	if err != nil {
		return nil, nil, decide.Decision{}, err
	}
	return decisionRecords(d.Verdicts, st.InForce, r.appOf(d.Desired), r.o.Now()), entitlementEvents(d.Verdicts, d.Desired, r.o.Now()), d, nil
}

// tomorrow judges what is in force anew, as a new day has begun: the grace of
// what policy no longer allows may be over.
func (r *Reconciler) tomorrow(ctx context.Context, st *reconciler.State) error {
	next, err := r.inForce(ctx, st.InForce)
	if err != nil {
		return err
	}
	next.Main, next.Permitted, next.Paused = st.Main, st.Permitted, st.Paused
	setHeld(next, st.Held)
	return r.enforce(ctx, st, next, origins{}, nil, nil, nil)
}

// newState is the state that a decision comes to.
func newState(main, inForce, day string, d decide.Decision) *reconciler.State {
	st := &reconciler.State{
		Day: day, Main: main, InForce: inForce, Desired: d.Desired, Effective: d.Effective, Permitted: d.Permitted, Paused: d.Paused(),
	}
	setHeld(st, d.Held)
	return st
}

// setHeld sets what is held in a new state.
func setHeld(st *reconciler.State, held []plan.Held) {
	st.Held, st.DeniedBy = held, map[schema.Key]string{}
	for _, h := range held {
		if h.Reason == estate.HeldUnauthorised {
			st.DeniedBy[h.Key] = h.Message
		}
	}
}

// today is the UTC day.
func (r *Reconciler) today() string { return r.o.Now().UTC().Format(time.DateOnly) }

// standing is what is in force before a decision, and the commit of main that
// was decided last; "" where nothing is in force.
func (r *Reconciler) standing(ctx context.Context, st *reconciler.State, tips reconciler.Tips) (was decide.Standing, decided string, err error) {
	if tips.InForce == "" {
		return was, "", nil
	}
	if was.Tree, err = r.o.Repo.Snapshot(ctx, tips.InForce); err != nil {
		return was, "", err
	}
	said, err := r.o.Repo.ReadInForce(ctx, tips.InForce)
	if err != nil {
		return was, "", err
	}
	was.Permitted = said.Permitted
	decided = said.Commit
	if st != nil && st.InForce == tips.InForce && st.Main != "" {
		decided = st.Main // a commit that changes nothing writes nothing there
	}
	return was, decided, nil
}

// adopt takes up what an earlier run of the daemon brought into force, so that
// a restart continues where it was (DESIGN §1, promise 3). What is in force
// comes from the branch of that name alone, which Fetch has verified; what
// status remembers of it only tells which units a decision changes that was
// written and not yet recorded. That older state, or nil, is returned.
func (r *Reconciler) adopt(ctx context.Context, tips reconciler.Tips) (*reconciler.State, error) {
	st, err := r.inForce(ctx, tips.InForce)
	if errors.Is(err, decide.ErrFrozen) {
		// It no longer loads. Main may mend it; if not, that freezes the sync.
		r.o.Log.Error("what is in force does not load any more", "in_force", short(tips.InForce), "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rev := r.writer.Revision()
	mem := r.writer.Units()
	recorded := rev.InForce == tips.InForce
	said, err := r.o.Repo.ReadInForce(ctx, tips.InForce)
	if err != nil {
		return nil, err
	}
	// Which commit was decided is that branch's to say: status is memory, and
	// never permission.
	st.Main, st.Permitted = said.Commit, said.Permitted
	setHeld(st, said.Held)
	if recorded {
		r.toldTo = rev.Commit
		setHeld(st, rev.Held)
	}
	st.Paused = decide.Decision{Desired: st.Desired, Held: st.Held, Permitted: st.Permitted}.Paused()
	old := st
	if !recorded {
		if old, err = r.untoldBefore(ctx, tips, rev); err != nil {
			return nil, err
		}
		st.Recorded = old
	}
	r.mu.Lock()
	r.state = st
	r.mu.Unlock()
	if recorded { // else what is decided over it tells
		r.writer.Record(r.untoldFates(st, mem)...)
	}
	if recorded && rev.Commit == tips.Main {
		r.opened()
	}
	under, ended := r.writer.Reviews.Units(), map[string]bool{}
	for key, s := range mem.All() {
		over := s.Settled() && s.Phase != plan.PhaseDeleted
		for _, commit := range r.pulls.RollOuts.Observe(s) {
			if !over {
				r.pulls.Touched(commit)
			}
		}
		if was, ok := ended[s.Revision]; was || !ok {
			ended[s.Revision] = over && s.Review == nil && !under[key]
		}
	}
	for commit, is := range ended {
		if is { // an earlier run told of it to its end, and its review went with that
			r.pulls.RollOuts.End(commit)
		}
	}
	r.o.Log.Info("continuing", "in_force", short(tips.InForce), "units", st.Effective.Len())
	return old, nil
}

// untoldBefore is what status remembers of what was in force before a decision
// that it was not told of; nil: nothing.
func (r *Reconciler) untoldBefore(ctx context.Context, tips reconciler.Tips, rev reconciler.Revision) (*reconciler.State, error) {
	// The branch's own commits are joined by first parents, main's are not.
	commits, err := r.o.Repo.Log(ctx, "", tips.InForce, maxAttributed)
	if err != nil || !slices.ContainsFunc(commits, func(c reconciler.Commit) bool { return c.ID == rev.InForce }) {
		return nil, err
	}
	old, err := r.inForce(ctx, rev.InForce)
	if errors.Is(err, decide.ErrFrozen) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	old.Main = rev.Commit
	return old, nil
}

// inForce is the state that a commit of berth/in-force stands for.
func (r *Reconciler) inForce(ctx context.Context, commit string) (*reconciler.State, error) {
	snap, err := r.o.Repo.Snapshot(ctx, commit)
	if err != nil {
		return nil, err
	}
	d, err := r.decider.Read(ctx, snap, r.today())
	if err != nil {
		return nil, fmt.Errorf("read back %s: %w", short(commit), err)
	}
	st := newState("", commit, r.today(), d)
	st.Placement = r.decider.Place(d.Effective, r.writer.Units())
	return st, nil
}

// wakeAll has every unit looked at that is remembered.
func (r *Reconciler) wakeAll() {
	for k := range r.writer.Units().All() {
		r.queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: k})
	}
}

func (r *Reconciler) opened() {
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// enforce puts a decision into effect: places, records which units changed and
// through which commit, and wakes them. acked are the deletions that somebody
// acknowledged since the decision before.
func (r *Reconciler) enforce(ctx context.Context, old, st *reconciler.State, by origins, acked []pulls.Acked, records []audit.Record, events []plan.Event) error {
	mem := r.writer.Units()
	oldMain := ""
	before := old
	if old != nil {
		oldMain = old.Main
		now := *old
		now.Placement = r.decider.Place(old.Effective, mem)
		before = &now
	}
	st.Placement = r.decider.Place(st.Effective, mem)
	changed := changedUnits(old, st, mem, r.enforced)
	merged := r.merged(ctx, oldMain, st.Main)
	causes := attribute(merged, st.Main, changed)
	for _, key := range changed {
		if commit := by.of(old, st, key); commit != "" {
			causes[key] = commit
		}
	}
	switch {
	case by.approval != nil:
		for _, key := range changed {
			causes[key] = by.approval.commit
		}
	case old == nil || old.Main != st.Main || len(changed) == 0:
	case old.InForce != st.InForce && len(acked) == 0: // what was held comes, as something can be read again
		var err error
		if causes, err = r.cameOf(ctx, old.InForce, st, changed); err != nil {
			return err
		}
	default:
		for _, key := range changed {
			s := mem.Get(key)
			switch {
			case by.of(old, st, key) != "":
			case len(acked) > 0 && unreviewed(before, st, key): // it stands elsewhere by that
				causes[key] = acked[0].Commit
			case s != nil && s.Revision != "": // no commit did this: a day began
				causes[key] = s.Revision
			}
		}
	}
	var wasHeld []plan.Held
	if old != nil {
		wasHeld = old.Held
	}
	for _, m := range merged {
		r.pulls.RollOuts.Begin(m.commit, unread(st.Held, m.paths))
	}
	for commit, held := range attributeHeld(merged, st.Main, newlyHeld(wasHeld, st.Held)) {
		r.pulls.RollOuts.Begin(commit, held)
	}

	if old != nil && old.Main == st.Main && old.InForce != st.InForce && len(acked) == 0 {
		for _, commit := range causes { // it may have been told to its end, with this held
			r.pulls.RollOuts.Released(commit, st.Held)
		}
	}

	requesters := r.requesters(ctx, st, changed, by.requesters)
	r.writer.Decision.Lock()
	for _, key := range changed {
		for { // until no worker records something in between
			prev := r.writer.Unit(key)
			next := decided(key, st, prev, causes[key])
			if isNewUnit(prev) && st.Instance(key) != nil {
				next.RequestedBy = requesters[key]
			}
			switch {
			case !unreviewed(before, st, key):
			case by.approval != nil:
				next.Review = by.approval.review(key, stoodStill(before, prev, key))
			case old.Main == st.Main && len(acked) > 0 && st.Instance(key) == nil:
				// Who has the right to said that exactly these documents go, after they
				// were named: that is the review of it.
				next.Review = nil
			case old.Main != st.Main, old.InForce != st.InForce: // by a commit, or by what was held of one
				next.Review = &plan.UnitReview{Stopped: stoodStill(before, prev, key)}
			case prev != nil:
				next.Review = prev.Review // no commit did this
			}
			if r.set(prev, next) {
				break
			}
		}
	}
	r.writer.Record(append(records, fateRecords(before, st, r.o.Now())...)...)
	r.writer.Announce(events...)
	r.stand(st)
	r.writer.Revise(func(rev *reconciler.Revision) {
		rev.Commit, rev.InForce, rev.Frozen = st.Main, st.InForce, ""
		rev.Held, rev.HeldMore = st.Held, 0
		if len(st.Held) > maxHeld {
			rev.Held, rev.HeldMore = slices.Clone(st.Held[:maxHeld]), len(st.Held)-maxHeld
		}
	})
	r.mu.Lock()
	r.state, r.frozen = st, ""
	r.mu.Unlock()
	if old != nil && old.Paused != st.Paused {
		r.pauseAll(st, merged)
	}
	r.writer.Decision.Unlock()

	r.unrecorded, r.untold, r.toldTo, r.enforced = nil, false, "", &enforced{mem, changed}
	r.o.Metrics.frozen.Set(0)
	r.opened()
	for _, key := range changed {
		r.queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: key})
	}
	for _, m := range merged {
		r.pulls.Touched(m.commit)
	}
	r.pulls.Touched(st.Main)
	r.pulls.BaseMoved()
	r.o.Log.Info("decided", "main", short(st.Main), "in_force", short(st.InForce), "held", len(st.Held),
		"changed_units", len(changed), "correlation_id", correlation(st.Main))
	return nil
}

// isNewUnit reports whether a decision makes a unit anew, rather than changes one.
func isNewUnit(prev *plan.Status) bool {
	return prev == nil || prev.Phase == plan.PhaseDeleting || prev.Phase == plan.PhaseDeleted
}

// requesters adds to by the requesters of new instances among changed that it lacks.
func (r *Reconciler) requesters(ctx context.Context, st *reconciler.State, changed []schema.Key, by map[schema.Key]string) map[schema.Key]string {
	missing := map[string]schema.Key{}
	for _, key := range changed {
		if i := st.Desired.Instance(key); i != nil && by[key] == "" && isNewUnit(r.writer.Unit(key)) {
			missing[i.File] = key
		}
	}
	out := r.authors.FindRequesters(ctx, st.Main, missing, func(s decide.Step, key schema.Key) authority.Actor {
		return r.decider.Maker(st.Desired, s, authority.Scope{Tenant: key.Tenant, Project: key.Project}, r.today())
	})
	if out == nil {
		return by
	}
	maps.Copy(out, by)
	return out
}

// awaitsAck reports whether a deletion is held until it is acknowledged.
func (r *Reconciler) awaitsAck() bool {
	st := r.current()
	return st == nil || slices.ContainsFunc(st.Held, func(h plan.Held) bool { return strings.Contains(h.Message, decide.AckTrailer) })
}

// decided is the status of a unit right after a decision changed what it shall
// be, through the commit named. What is observed of it stays as it was.
func decided(key schema.Key, st *reconciler.State, prev *plan.Status, commit string) plan.Status {
	s := plan.Status{Key: key, Phase: plan.PhaseRequested}
	if prev != nil {
		s = *prev
	}
	want := st.Instance(key)
	s.Revision, s.CorrelationID, s.Retry = commit, correlation(commit), nil
	switch {
	case want == nil:
		s.Phase = plan.PhaseDeleting
	case s.Phase == plan.PhaseDeleted || s.Phase == plan.PhaseDeleting:
		s.Phase = plan.PhaseRequested // declared again before it was gone
	}
	v := unitView{pending: true, suspended: suspendedCondition(st, prev, want, commit), denied: st.Denied(key), refused: st.Noncompliance(key), prev: &s, want: want, members: st.Placement.Members(key), attempt: s.Attempt, plan: plan.Plan{Key: key},
		observed: plan.Observed{Key: key, Presence: plan.Unknown, Reason: "not looked at since this change"}}
	if s.Observed != nil {
		v.observed = *s.Observed
	}
	next := v.status()
	next.Phase = s.Phase
	return next
}

// enforced is what the last decision of this process was put into effect over:
// what was remembered then, and the units that it changed.
type enforced struct {
	memory  plan.Memory
	changed []schema.Key
}

// changedUnits lists, sorted, the units for which a decision means something
// else than the one before, and those nobody remembers. The cost is that of what
// differs, where the one before was put into effect by this process.
func changedUnits(old, st *reconciler.State, mem plan.Memory, last *enforced) []schema.Key {
	maybe := map[schema.Key]bool{}
	if old == nil || last == nil {
		for k := range st.Effective.All() {
			maybe[k] = true
		}
		for k := range mem.All() {
			maybe[k] = true
		}
	} else {
		for k := range schema.Differing(old.Effective, st.Effective) {
			maybe[k] = true
		}
		for k := range plan.ChangedPlacement(old.Placement, st.Placement) {
			maybe[k] = true
		}
		for k := range plan.ChangedMemory(last.memory, mem) {
			maybe[k] = true
		}
		for _, k := range last.changed { // what was recorded of them may be lost again
			maybe[k] = true
		}
	}
	var keys []schema.Key
	for k := range maybe {
		want, s := st.Instance(k), mem.Get(k)
		going := s != nil && (s.Phase == plan.PhaseDeleting || s.Phase == plan.PhaseDeleted)
		switch {
		case want == nil && s != nil && !going,
			want != nil && (old == nil || s == nil || going || !sameUnit(old, st, k) || !sameDenials(old.Effective.Denied(k), st.Effective.Denied(k))):
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys
}

func sameDenials(a, b []schema.Decision) bool {
	return len(a) == 0 && len(b) == 0 || status.EqualJSON(a, b)
}

// mergedCommit is one commit of main that a decision takes in, and what it
// touches.
type mergedCommit struct {
	commit string
	paths  []reconciler.PathChange
}

// merged lists what came to main between two decisions, newest first, as far
// as history is at hand.
func (r *Reconciler) merged(ctx context.Context, from, to string) []mergedCommit {
	if from == "" || from == to {
		return nil
	}
	return r.between(ctx, from, to)
}

// cameOf says which commit of main each unit was changed by, where what was held of
// it came into force with no other: the newest of those that touch what came.
func (r *Reconciler) cameOf(ctx context.Context, before string, st *reconciler.State, changed []schema.Key) (map[schema.Key]string, error) {
	came := map[string]bool{}
	if before != "" {
		paths, err := r.o.Repo.Diff(ctx, before, st.InForce)
		if err != nil {
			return nil, err
		}
		for _, c := range paths {
			came[c.Path] = true
		}
	}
	latest := r.between(ctx, "", st.Main)
	for i := range latest {
		latest[i].paths = slices.DeleteFunc(latest[i].paths, func(c reconciler.PathChange) bool { return !came[c.Path] })
	}
	return attribute(latest, st.Main, changed), nil
}

// between are the commits that came to main after one, newest first, as far as
// history is at hand; "": all that are told apart.
func (r *Reconciler) between(ctx context.Context, from, to string) []mergedCommit {
	commits, err := r.o.Repo.Log(ctx, from, to, maxAttributed)
	if err != nil {
		r.o.Log.Warn("cannot tell which commit changed what; all is attributed to the newest", "error", err)
		return nil
	}
	var out []mergedCommit
	for _, c := range commits {
		paths, err := provenance.Touched(ctx, r.o.Repo, c)
		if err != nil {
			r.o.Log.Warn("cannot tell what a commit changed", "commit", short(c.ID), "error", err)
			continue
		}
		out = append(out, mergedCommit{c.ID, paths})
	}
	return out
}

// attribute says for each changed unit which commit changed it: the newest
// that touches its own file, else its tenant, else the platform, else tip.
func attribute(merged []mergedCommit, tip string, keys []schema.Key) map[schema.Key]string {
	out := make(map[schema.Key]string, len(keys))
	for _, k := range keys {
		own, _ := k.Path()
		best := 0
		out[k] = tip
		for _, m := range merged {
			score := 0
			for _, ch := range m.paths {
				switch {
				case ch.Path == own:
					score = max(score, 3)
				case strings.HasPrefix(ch.Path, "tenants/"+k.Tenant+"/"):
					score = max(score, 2)
				case strings.HasPrefix(ch.Path, "platform/"):
					score = max(score, 1)
				}
			}
			if score > best {
				best, out[k] = score, m.commit
			}
		}
	}
	return out
}

// origins are the commits that changed what instances effectively are, as the
// decisions about several commits tell.
type origins struct {
	last  map[schema.Key]string // what commits after the first changed, by the last that did
	first string                // the first commit; "": nobody knows

	requesters map[schema.Key]string // who brought the documents of instances
	approval   *approval             // the command that the decision carries out; nil: it is about commits
}

// of is the commit that changed a unit; "": it is not known, such as where it
// only stands elsewhere.
func (c origins) of(old, st *reconciler.State, key schema.Key) string {
	if commit := c.last[key]; commit != "" {
		return commit
	}
	if old == nil {
		return ""
	}
	if x, y := old.Instance(key), st.Instance(key); x == y || status.EqualJSON(x, y) {
		return ""
	}
	return c.first
}

// then is c, of the decision that came to before, followed by d. It changes c.
func (c origins) then(before *schema.Effective, d decide.Decision) origins {
	for key := range decide.Changed(before, d.Effective) {
		c.last[key] = cmp.Or(d.Changed[key], d.First)
	}
	return c
}

// newlyHeld are the documents that are held now and were not, or otherwise. What was
// held may be known as revision.yaml has it.
func newlyHeld(before, now []plan.Held) []plan.Held {
	had := make(map[plan.Held]bool, len(before))
	for _, h := range before {
		had[status.CutHeld(h)] = true
	}
	return slices.DeleteFunc(slices.Clone(now), func(h plan.Held) bool { return had[status.CutHeld(h)] })
}

// unread are the parts that cannot be read in which a commit changes something,
// whenever that began.
func unread(held []plan.Held, paths []reconciler.PathChange) (out []plan.Held) {
	for _, h := range held {
		if h.Reason == estate.HeldUnreadable && slices.ContainsFunc(paths, func(c reconciler.PathChange) bool { return c.Path == h.File || strings.HasPrefix(c.Path, h.File+"/") }) {
			out = append(out, h)
		}
	}
	return out
}

// attributeHeld gives each held document to the newest commit that touches it,
// else to tip.
func attributeHeld(merged []mergedCommit, tip string, held []plan.Held) map[string][]plan.Held {
	out := map[string][]plan.Held{tip: nil}
	by := map[string]string{} // path → the newest commit that touches it
	for _, m := range slices.Backward(merged) {
		for _, c := range m.paths {
			by[c.Path] = m.commit
		}
	}
	for _, h := range held {
		commit := cmp.Or(by[h.File], tip)
		out[commit] = append(out[commit], h)
	}
	return out
}

// replace places again, as nodes came free. Units whose members change are
// woken.
func (r *Reconciler) replace() {
	r.writer.Decision.Lock()
	defer r.writer.Decision.Unlock()
	st := r.current()
	if st == nil || st.Placement.Whole() {
		return
	}
	next := *st
	next.Placement = r.decider.Place(st.Effective, r.writer.Units())
	r.mu.Lock()
	r.state = &next
	r.mu.Unlock()
	for k := range plan.ChangedPlacement(st.Placement, next.Placement) {
		if !slices.EqualFunc(st.Placement.Members(k), next.Placement.Members(k), sameMember) {
			r.queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: k})
		}
	}
}

// freeze stops taking new commits until main is again what it should be. What
// is in force is kept healthy meanwhile; nothing is deleted.
func (r *Reconciler) freeze(why string) error {
	r.writer.Revise(func(rev *reconciler.Revision) { rev.Frozen = why })
	r.o.Metrics.frozen.Set(1)
	r.mu.Lock()
	news := r.frozen != why
	r.frozen = why
	kept := r.state != nil
	r.mu.Unlock()
	if news {
		r.pulls.BaseMoved()
	}
	if kept {
		r.opened()
	}
	r.o.Log.Error("sync is frozen: what is in force stays", "reason", why)
	return nil
}

func (r *Reconciler) thaw() {
	if r.writer.Revision().Frozen != "" {
		r.writer.Revise(func(rev *reconciler.Revision) { rev.Frozen = "" })
		r.o.Metrics.frozen.Set(0)
	}
	r.mu.Lock()
	news := r.frozen != ""
	r.frozen = ""
	r.mu.Unlock()
	if news {
		r.pulls.BaseMoved()
	}
}
