package reconciler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
)

// maxAttributed bounds how many commits of one fetch are told apart; what more
// there are is attributed to the newest.
const maxAttributed = 50

// correlation is the id that joins everything a commit of main causes: logs,
// ledgers, events, status, comments (requirement A11). It is made from the
// commit, so that it is the same after a restart.
func correlation(commit string) string {
	sum := sha256.Sum256([]byte("berth correlation " + commit))
	return "c" + hex.EncodeToString(sum[:])[:20]
}

// reconcileEstate fetches, and decides main's commit if it is new: what comes
// into force, what is held, who stands where, and which units that changes.
func (r *Reconciler) reconcileEstate(ctx context.Context) error {
	tips, refused := r.o.Repo.Fetch(ctx)
	if refused != nil && !errors.Is(refused, ErrRewritten) && !errors.Is(refused, ErrUnreadable) {
		return refused
	}
	if err := r.writer.fetched(ctx, tips.Status); err != nil {
		return err
	}
	st := r.current()
	if st == nil && tips.InForce != "" {
		var err error
		if st, err = r.adopt(ctx, tips); err != nil {
			return err
		}
	}
	if refused != nil {
		return r.freeze(refused.Error())
	}
	if st != nil && st.main == tips.Main && st.inForce == tips.InForce {
		r.thaw()
		return nil
	}

	next, err := r.o.Repo.Snapshot(ctx, tips.Main)
	if errors.Is(err, ErrUnreadable) {
		return r.freeze(err.Error())
	}
	if err != nil {
		return err
	}
	var before schema.Snapshot
	if tips.InForce != "" {
		if before, err = r.o.Repo.Snapshot(ctx, tips.InForce); err != nil {
			return err
		}
	}
	d, err := decide.Commit(ctx, r.o.Loader, next, before)
	if errors.Is(err, decide.ErrFrozen) {
		return r.freeze(err.Error())
	}
	if err != nil {
		return err
	}
	cause := correlation(tips.Main)
	inForce, err := r.o.Repo.WriteInForce(ctx, tips.InForce, InForce{
		Commit: tips.Main, Replace: d.Replace, Held: d.Held, CorrelationID: cause, Epoch: r.writer.epoch(),
	})
	if errors.Is(err, ErrConflict) {
		r.queue.Add(Item{Do: TaskEstate})
		return nil
	}
	if err != nil {
		return err
	}
	for _, h := range d.Held {
		r.o.Log.Warn("held", "file", h.File, "reason", h.Reason, "message", h.Message, "commit", short(tips.Main), "correlation_id", cause)
	}
	newState := &state{main: tips.Main, inForce: inForce, effective: d.Effective, held: d.Held}
	return r.enforce(ctx, st, newState)
}

// adopt takes up what an earlier run of the daemon decided and wrote, so that
// a restart continues where it was (DESIGN §1, promise 3).
func (r *Reconciler) adopt(ctx context.Context, tips Tips) (*state, error) {
	rev := r.writer.revision()
	// What status says is believed only of what was in force once: it is memory,
	// and who can write it must not decide what is in force.
	base, err := "", error(nil)
	if rev.InForce != "" {
		base, err = r.o.Repo.MergeBase(ctx, rev.InForce, tips.InForce)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	if err != nil || base != rev.InForce || base == "" {
		return nil, nil // in force was written, but its decision was not recorded: decide again
	}
	snap, err := r.o.Repo.Snapshot(ctx, rev.InForce)
	if err != nil {
		return nil, err
	}
	d, err := decide.Commit(ctx, r.o.Loader, snap, snap)
	if err != nil {
		return nil, fmt.Errorf("what is in force at %s cannot be read back: %w", short(rev.InForce), err)
	}
	st := &state{main: rev.Commit, inForce: rev.InForce, effective: d.Effective, held: rev.Held}
	st.placement = plan.Place(d.Effective, r.writer.memory())
	r.mu.Lock()
	r.state = st
	r.mu.Unlock()
	if rev.Commit == tips.Main && rev.InForce == tips.InForce {
		r.opened()
	}
	for k, s := range r.writer.memory() {
		r.queue.Add(Item{Do: TaskUnit, Unit: k})
		if !settled(s) || s.Phase == plan.PhaseDeleted {
			r.touched(s.Revision)
		}
	}
	r.o.Log.Info("continuing", "main", short(rev.Commit), "in_force", short(rev.InForce), "units", len(d.Effective.Instances))
	return st, nil
}

func (r *Reconciler) opened() {
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// enforce puts a decision into effect: places, records which units changed and
// through which commit, and wakes them.
func (r *Reconciler) enforce(ctx context.Context, old, st *state) error {
	mem := r.writer.memory()
	st.placement = plan.Place(st.effective, mem)
	oldMain := ""
	if old != nil {
		oldMain = old.main
	}
	changed := changedUnits(old, st, mem)
	causes := r.attribute(ctx, oldMain, st.main, changed)

	for _, key := range changed {
		r.mu.Lock()
		r.progress[key] = &progress{started: r.o.Now()}
		r.mu.Unlock()
		for { // until no worker records something in between
			prev := r.writer.get(key)
			if r.set(prev, decided(key, st, prev, causes[key])) {
				break
			}
		}
	}
	r.writer.revise(func(rev *Revision) {
		rev.Commit, rev.InForce, rev.Held, rev.Frozen = st.main, st.inForce, st.held, ""
	})
	r.o.Metrics.frozen.Set(0)
	r.mu.Lock()
	r.state, r.frozen = st, ""
	r.mu.Unlock()
	r.opened()
	for _, key := range changed {
		r.queue.Add(Item{Do: TaskUnit, Unit: key})
	}
	r.touched(st.main)
	r.refreshPulls()
	r.o.Log.Info("decided", "main", short(st.main), "in_force", short(st.inForce), "held", len(st.held),
		"changed_units", len(changed), "correlation_id", correlation(st.main))
	return nil
}

// decided is the status of a unit right after a decision changed what it shall
// be, through the commit named. What is observed of it stays as it was.
func decided(key schema.Key, st *state, prev *plan.Status, commit string) plan.Status {
	s := plan.Status{Key: key, Phase: plan.PhaseRequested}
	if prev != nil {
		s = *prev
	}
	want := st.effective.Instances[key]
	s.Revision, s.CorrelationID, s.Retry = commit, correlation(commit), nil
	switch {
	case want == nil:
		s.Phase = plan.PhaseDeleting
	case s.Phase == plan.PhaseDeleted || s.Phase == plan.PhaseDeleting:
		s.Phase = plan.PhaseRequested // declared again before it was gone
	}
	v := unitView{pending: true, prev: &s, want: want, members: st.placement.Members[key], attempt: s.Attempt, plan: plan.Plan{Key: key},
		observed: plan.Observed{Key: key, Presence: plan.Unknown, Reason: "not looked at since this change"}}
	if s.Observed != nil {
		v.observed = *s.Observed
	}
	next := v.status()
	next.Phase = s.Phase
	return next
}

// changedUnits lists, sorted, the units for which a decision means something
// else than the one before, and those nobody remembers.
func changedUnits(old, st *state, mem plan.Memory) []schema.Key {
	set := map[schema.Key]bool{}
	for k := range st.effective.Instances {
		if old == nil || mem[k] == nil || !sameUnit(old, st, k) || !equalJSON(old.effective.Denied(k), st.effective.Denied(k)) {
			set[k] = true
		}
	}
	for k, s := range mem {
		if st.effective.Instances[k] == nil && s.Phase != plan.PhaseDeleting && s.Phase != plan.PhaseDeleted {
			set[k] = true
		}
		if st.effective.Instances[k] != nil && (s.Phase == plan.PhaseDeleting || s.Phase == plan.PhaseDeleted) {
			set[k] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), schema.Key.Compare)
}

// attribute says for each changed unit which commit between two tips of main
// changed it: the newest that touches its own file, else its tenant, else the
// platform, else the newest. Only told apart where history is at hand.
func (r *Reconciler) attribute(ctx context.Context, from, to string, keys []schema.Key) map[schema.Key]string {
	out := map[schema.Key]string{}
	for _, k := range keys {
		out[k] = to
	}
	if from == "" || from == to {
		return out
	}
	commits, err := r.o.Repo.Log(ctx, from, to, maxAttributed)
	if err != nil || len(commits) < 2 {
		return out
	}
	best := map[schema.Key]int{}
	for _, c := range commits { // newest first
		parent := ""
		if len(c.Parents) > 0 {
			parent = c.Parents[0]
		}
		changes, err := r.o.Repo.Diff(ctx, parent, c.ID)
		if err != nil {
			continue
		}
		for _, k := range keys {
			own, _ := k.Path()
			score := 0
			for _, ch := range changes {
				switch {
				case ch.Path == own:
					score = max(score, 3)
				case strings.HasPrefix(ch.Path, "tenants/"+k.Tenant+"/"):
					score = max(score, 2)
				case strings.HasPrefix(ch.Path, "platform/"):
					score = max(score, 1)
				}
			}
			if score > best[k] {
				best[k], out[k] = score, c.ID
			}
		}
	}
	return out
}

// replace places again, as nodes came free. Units whose members change are
// woken.
func (r *Reconciler) replace() {
	st := r.current()
	if st == nil || len(st.placement.Unplaced) == 0 {
		return
	}
	next := *st
	next.placement = plan.Place(st.effective, r.writer.memory())
	r.mu.Lock()
	if r.state != st {
		r.mu.Unlock()
		return // a new decision placed already
	}
	r.state = &next
	r.mu.Unlock()
	for k := range next.effective.Instances {
		if !equalJSON(st.placement.Members[k], next.placement.Members[k]) {
			r.queue.Add(Item{Do: TaskUnit, Unit: k})
		}
	}
}

// freeze stops taking new commits until main is again what it should be. What
// is in force is kept healthy meanwhile; nothing is deleted.
func (r *Reconciler) freeze(why string) error {
	r.writer.revise(func(rev *Revision) { rev.Frozen = why })
	r.o.Metrics.frozen.Set(1)
	r.mu.Lock()
	r.frozen = why
	kept := r.state != nil
	r.mu.Unlock()
	if kept {
		r.opened()
	}
	r.o.Log.Error("sync is frozen: what is in force stays", "estate", r.o.Estate, "reason", why)
	return nil
}

func (r *Reconciler) thaw() {
	if r.writer.revision().Frozen != "" {
		r.writer.revise(func(rev *Revision) { rev.Frozen = "" })
		r.o.Metrics.frozen.Set(0)
	}
	r.mu.Lock()
	r.frozen = ""
	r.mu.Unlock()
}
