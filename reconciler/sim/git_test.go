package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// errGone is the error of a call whose answer did not come.
var errGone = errors.New("connection reset")

// commit is a commit of main or of berth/in-force.
type commit struct {
	id      string
	parents []string
	tree    *tree
	inForce reconciler.InForce // of a commit of berth/in-force
	when    time.Time
}

// remote is the estate's Git repository at its server. The lock of the simulation guards it.
type remote struct {
	commits  map[string]*commit
	main     []string // first parents, oldest first
	inForce  []string // tips, oldest first
	statuses []reconciler.StatusTree
	batches  []reconciler.StatusBatch
	audit    []audit.Line // of all batches
	records  []int        // of audit, up to each batch
}

func newRemote() *remote { return &remote{commits: map[string]*commit{}} }

// add stores a commit and returns its id.
func (r *remote) add(c commit) string {
	c.id, c.when = fmt.Sprintf("%040x", len(r.commits)+1), time.Now().UTC()
	r.commits[c.id] = &c
	return c.id
}

func (r *remote) merge(t *tree) string {
	c := commit{tree: t}
	if len(r.main) > 0 {
		c.parents = []string{last(r.main)}
	}
	id := r.add(c)
	r.main = append(r.main, id)
	return id
}

// last returns the last element, or the zero value.
func last[T any](all []T) (none T) {
	if len(all) == 0 {
		return none
	}
	return all[len(all)-1]
}

func statusID(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%040x", 1<<32+n)
}

func (r *remote) tips() reconciler.Tips {
	return reconciler.Tips{Main: last(r.main), InForce: last(r.inForce), Status: statusID(len(r.statuses))}
}

// mirror is the remote as one daemon reaches it. Methods that a daemon without a forge does not call panic.
type mirror struct {
	reconciler.Repo
	sim    *simulation
	daemon *daemon
	seen   reconciler.Tips // of the last fetch, and of pushes since
}

// Fetch returns the tips; a stale one those of the fetch before.
func (m *mirror) Fetch(ctx context.Context) (reconciler.Tips, error) {
	fault := m.sim.call(ctx, m.daemon, "fetch", "failed", "stale", "slow")
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	switch {
	case m.daemon.isDead(ctx), fault == "failed":
		return reconciler.Tips{}, errGone
	case fault == "stale" && m.seen.Main != "":
		return m.seen, nil
	}
	m.seen = m.sim.remote.tips()
	return m.seen, nil
}

func (m *mirror) get(id string) (*commit, error) {
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	if c := m.sim.remote.commits[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("commit %q: %w", id, reconciler.ErrNotFound)
}

func (m *mirror) Snapshot(_ context.Context, id string) (schema.Snapshot, error) {
	c, err := m.get(id)
	if err != nil {
		return nil, err
	}
	return c.tree.snapshot, nil
}

func (m *mirror) Diff(_ context.Context, from, to string) (out []reconciler.PathChange, err error) {
	var blobs [2]map[string]string
	for i, id := range []string{from, to} {
		if id == "" {
			continue
		}
		c, err := m.get(id)
		if err != nil {
			return nil, err
		}
		blobs[i] = c.tree.blobs
	}
	paths := maps.Clone(blobs[0])
	if paths == nil {
		paths = map[string]string{}
	}
	maps.Copy(paths, blobs[1])
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if before, after := blobs[0][path], blobs[1][path]; before != after {
			out = append(out, reconciler.PathChange{Path: path, From: before, To: after})
		}
	}
	return out, nil
}

func (m *mirror) MergeBase(_ context.Context, a, b string) (string, error) { return min(a, b), nil }

func (m *mirror) Log(_ context.Context, from, to string, most int) (out []reconciler.Commit, err error) {
	for id := to; id != "" && id != from && len(out) < most; {
		c, err := m.get(id)
		if err != nil {
			return nil, err
		}
		out = append(out, reconciler.Commit{ID: id, Subject: "change", Author: "Ada", Email: "ada@example.org", Parents: c.parents, When: c.when})
		id = ""
		if len(c.parents) > 0 {
			id = c.parents[0]
		}
	}
	return out, nil
}

func (m *mirror) Evidence(_ context.Context, id string) (reconciler.Evidence, error) {
	c, err := m.get(id)
	if err != nil {
		return reconciler.Evidence{}, err
	}
	return reconciler.Evidence{Commit: id, Author: "Ada", AuthorEmail: "ada@example.org", Committer: "Ada", CommitterEmail: "ada@example.org",
		When: c.when, Subject: "change", Parents: c.parents}, nil
}

func (m *mirror) ReadInForce(_ context.Context, id string) (reconciler.InForce, error) {
	c, err := m.get(id)
	if err != nil {
		return reconciler.InForce{}, err
	}
	w := c.inForce
	w.Replace = nil
	return w, nil
}

// WriteInForce writes by compare-and-swap.
func (m *mirror) WriteInForce(ctx context.Context, old string, w reconciler.InForce) (string, error) {
	return m.push(ctx, "in-force", func() (string, error) {
		r := m.sim.remote
		if old != last(r.inForce) {
			return "", reconciler.ErrConflict
		}
		main := r.commits[w.Commit]
		t, err := main.tree.with(w.Replace)
		if err != nil {
			return "", err
		}
		if was := r.commits[old]; was != nil && was.tree.id == t.id && maps.Equal(was.inForce.Permitted, w.Permitted) &&
			slices.Equal(was.inForce.Held, w.Held) {
			return old, nil
		}
		if m.sim.plant == "main goes back" && len(r.inForce) > 1 {
			w.Commit = r.main[0]
		}
		id := r.add(commit{parents: []string{old, w.Commit}, tree: t, inForce: w})
		r.inForce = append(r.inForce, id)
		m.seen.InForce = id
		m.sim.check()
		return id, nil
	})
}

// push does a write to the remote with the fault of the call. The write has the lock.
func (m *mirror) push(ctx context.Context, branch string, write func() (string, error)) (string, error) {
	fault := m.sim.call(ctx, m.daemon, "push of "+branch, "crash before", "crash after", "refused", "lost", "doubled", "slow", "late")
	m.sim.mu.Lock()
	if fault == "crash before" {
		m.daemon.crash()
	}
	if m.daemon.isDead(ctx) || fault == "refused" {
		m.sim.mu.Unlock()
		return "", errGone
	}
	id, err := write()
	m.sim.tracef("%s: push of %s: %s %v", m.daemon.name, branch, id, err)
	if fault == "crash after" {
		m.daemon.crash()
	}
	m.sim.mu.Unlock()
	switch {
	case fault == "late": // the answer comes after others'
		pause(ctx, 7*time.Second)
	case fault == "doubled" && err == nil: // the second request finds the branch moved
		return "", reconciler.ErrConflict
	}
	if m.daemon.isDead(ctx) || fault == "lost" {
		return "", errGone
	}
	return id, err
}

func (m *mirror) ReadStatus(ctx context.Context, id string) (reconciler.StatusTree, error) {
	if m.daemon.isDead(ctx) {
		return reconciler.StatusTree{}, errGone
	}
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	for i := len(m.sim.remote.statuses); i > 0; i-- {
		if statusID(i) == id {
			t := m.sim.remote.statuses[i-1]
			t.Things, t.Reviews = maps.Clone(t.Things), maps.Clone(t.Reviews)
			if m.sim.plant == "hold forgotten" {
				t.Units = m.sim.forgetHolds(t.Units)
			}
			return t, nil
		}
	}
	if id == "" {
		return reconciler.StatusTree{}, nil
	}
	return reconciler.StatusTree{}, reconciler.ErrNotFound
}

func (m *mirror) AuditTail(ctx context.Context, id string, _ time.Time, _ int) ([]audit.Line, error) {
	if m.daemon.isDead(ctx) {
		return nil, errGone
	}
	m.sim.mu.Lock()
	defer m.sim.mu.Unlock()
	r := m.sim.remote
	for i := len(r.records); i > 0; i-- {
		if statusID(i) == id {
			return r.audit[:r.records[i-1]:r.records[i-1]], nil
		}
	}
	return nil, nil
}

// WriteStatus writes by compare-and-swap.
func (m *mirror) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	return m.push(ctx, "status", func() (string, error) {
		r := m.sim.remote
		if old != statusID(len(r.statuses)) {
			return "", reconciler.ErrConflict
		}
		m.daemon.epoch = b.Revision.Epoch
		b = m.sim.spoiled(b)
		next := reconciler.StatusTree{Things: map[schema.Key]*plan.ThingStatus{}, Reviews: map[int]*plan.Review{}}
		if n := len(r.statuses); n > 0 {
			next = r.statuses[n-1]
		}
		if next.Revision = b.Revision; len(b.Things)+len(b.Gone) > 0 {
			next.Things = maps.Clone(next.Things)
		}
		for i := range b.Units {
			next.Units = next.Units.With(&b.Units[i])
		}
		for i := range b.Things {
			next.Things[b.Things[i].Key] = &b.Things[i]
		}
		for _, k := range b.Gone {
			next.Units = next.Units.Without(k)
			delete(next.Things, k)
		}
		for i, record := range b.Audit {
			r.audit = append(r.audit, audit.Line{Record: record, File: fmt.Sprint("audit/", len(r.batches)), Number: i + 1})
		}
		r.statuses, r.batches, r.records = append(r.statuses, next), append(r.batches, b), append(r.records, len(r.audit))
		m.sim.traceBatch(b)
		m.seen.Status = statusID(len(r.statuses))
		m.sim.check()
		return m.seen.Status, nil
	})
}

// traceBatch adds what a commit of berth/status says of units to the trace. The caller has the lock.
func (s *simulation) traceBatch(b reconciler.StatusBatch) {
	for _, u := range b.Units {
		var members []string
		for _, m := range u.Members {
			members = append(members, m.Name+"@"+m.Node)
		}
		presence, remaining := plan.Presence(""), 0
		if u.Observed != nil {
			presence, remaining = u.Observed.Presence, len(u.Observed.Members)
		}
		s.tracef("  status of %s: %s, %s with %d members, placed %v", u.Key.Name, u.Phase, presence, remaining, members)
	}
	for _, e := range b.Events {
		if s.holds && (strings.HasPrefix(e.EventType, "berth.")) {
			s.tracef("  event %s at %s: %s", e.EventType, e.OccurredAt, e.Payload)
		}
	}
	for _, r := range b.Audit {
		s.tracef("  audit: %s %s, commit %s", r.Action, r.Key, r.Commit)
	}
}
