package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/event"
)

// faulty is a status branch whose calls fail as listed in fates.
type faulty struct {
	statusRepo
	fates  []string // of the next writes; empty: the write succeeds
	blind  int      // number of next fetches and reads that fail
	during func()   // runs while a write is on its way
}

var errGone = errors.New("connection reset")

func (f *faulty) Fetch(ctx context.Context) (reconciler.Tips, error) {
	if f.blind > 0 {
		f.blind--
		return reconciler.Tips{}, errGone
	}
	return f.statusRepo.Fetch(ctx)
}

func (f *faulty) ReadStatus(ctx context.Context, commit string) (reconciler.StatusTree, error) {
	if f.blind > 0 {
		f.blind--
		return reconciler.StatusTree{}, errGone
	}
	return f.statusRepo.ReadStatus(ctx, commit)
}

func (f *faulty) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	fate := "lands"
	if len(f.fates) > 0 {
		fate, f.fates = f.fates[0], f.fates[1:]
	}
	if d := f.during; d != nil {
		f.during = nil
		d()
	}
	switch fate {
	case "refused":
		return "", errGone
	case "overtaken": // another writer is first
		f.foreign()
	case "lost", "lost and overtaken", "conflict on top":
		if _, err := f.statusRepo.WriteStatus(ctx, old, b); err != nil {
			return "", err
		}
		if fate == "conflict on top" { // the answer is lost, and a foreign commit follows
			f.foreign()
			return "", reconciler.ErrConflict
		}
		if fate != "lost" {
			f.foreign()
		}
		return "", errGone
	}
	return f.statusRepo.WriteStatus(ctx, old, b)
}

// foreign simulates a write by a program that is not the leader. It damages the
// statuses and keeps the revision.
func (f *faulty) foreign() {
	if f.tip == 0 {
		return
	}
	tree := f.trees[f.tip-1]
	b := reconciler.StatusBatch{Revision: tree.Revision,
		Units: []plan.Status{{Key: schema.InstanceKey("physics", "lhc", "invented"), Phase: plan.PhaseRunning}}}
	for _, k := range tree.Units.Keys() {
		s := *tree.Units.Get(k)
		s.FailureReason = "spoilt"
		b.Units = append(b.Units, s)
	}
	if _, err := f.statusRepo.WriteStatus(context.Background(), f.id(), b); err != nil {
		panic(err)
	}
}

// step is a state of a resource and the event of its change, or "" without one.
type step struct {
	state string
	event string
}

// model drives a writer as the loop does, through faults and restarts. It knows the
// permitted contents of the branch.
type model struct {
	repo    *faulty
	now     time.Time
	w       *Writer
	attempt int                   // raised by each step; identifies the state
	steps   map[schema.Key][]step // of each resource, oldest first; a crash may lose the last ones
	decided int                   // decisions made; the revision says how many were written
	checked int                   // batches whose events were validated against their schemas
}

func (m *model) clock() time.Time { return m.now }

// restart simulates a crash: unwritten changes are lost, and a new writer continues
// from the branch.
func (m *model) restart(t *rapid.T) {
	m.now = m.now.Add(time.Second)
	m.repo.fates, m.repo.blind, m.repo.during = nil, 0, nil
	m.w = NewWriter(Options{Repo: m.repo, Window: time.Hour, Log: slog.New(slog.DiscardHandler), Now: m.clock})
	require.NoError(t, m.w.Lead(t.Context()))
	m.decided = 0
	if c := m.w.Revision().Commit; c != "" {
		_, err := fmt.Sscan(c, &m.decided)
		require.NoError(t, err)
	}
	for key, steps := range m.steps {
		state := ""
		if s := m.w.Unit(key); s != nil {
			state = fmt.Sprint(s.Attempt)
		}
		if s := m.w.Resource(key); s != nil {
			state = s.Revision
		}
		if s := m.w.Unit(key); s != nil && s.FailureReason != "" {
			// A foreign write damaged it and the crash came before the repair. The next
			// reconciliation of the unit repairs it.
			right := *s
			right.FailureReason = ""
			_, ok := m.w.SetUnit(s, right)
			require.True(t, ok)
		}
		i := slices.IndexFunc(steps, func(s step) bool { return s.state == state })
		require.True(t, i >= 0 || state == "", "%s has an unknown state: %q", key, state)
		m.steps[key] = steps[:i+1]
	}
}

func (m *model) unit(t *rapid.T) {
	key := schema.InstanceKey("physics", "lhc", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "unit"))
	p := rapid.SampledFrom([]plan.Phase{plan.PhaseRequested, plan.PhaseDeploying, plan.PhaseRunning, plan.PhaseFailed,
		plan.PhaseDeleting}).Draw(t, "phase")
	m.attempt++
	prev := m.w.Unit(key)
	s := plan.Status{Key: key, Phase: p, LastApplied: plan.LastApplied{Attempt: m.attempt, Revision: "r", CorrelationID: "c"},
		EffectiveValues: plan.EffectiveValues{App: "app"}}
	changed, ok := m.w.SetUnit(prev, s)
	require.True(t, changed && ok)
	eventID := ""
	if d, is := event.Of(key.Kind, string(p)); is && (prev == nil || prev.Phase != p) {
		eventID = event.ID(d.Type, key, "r", m.attempt)
	}
	m.steps[key] = append(m.steps[key], step{fmt.Sprint(m.attempt), eventID})
}

func (m *model) thing(t *rapid.T) {
	key := rapid.SampledFrom([]schema.Key{
		{Kind: schema.KindArtifact, Tenant: "physics", Project: "lhc", Name: "model"},
		{Kind: schema.KindAttachment, Tenant: "physics", Parent: "big", Name: "lhc"},
		{Kind: schema.KindNode, Name: "gpu-1"}, // a kind without events
	}).Draw(t, "thing")
	p := rapid.SampledFrom([]string{"requested", "registered", "promoted", "attached", "running", "other"}).Draw(t, "phase")
	m.attempt++
	rev := fmt.Sprint(m.attempt)
	prev := m.w.Resource(key)
	changed, ok := m.w.SetResource(prev, plan.ThingStatus{Key: key, Phase: p, Revision: rev, CorrelationID: "c"})
	require.True(t, changed && ok)
	eventID := ""
	if d, is := event.Of(key.Kind, p); is && (prev == nil || prev.Phase != p) {
		eventID = event.ID(d.Type, key, rev, 0)
	}
	m.steps[key] = append(m.steps[key], step{rev, eventID})
}

func entitled(n int) schema.Key {
	return schema.Key{Kind: schema.KindEntitlement, Tenant: "physics", Project: "lhc", Name: fmt.Sprintf("app-%d", n)}
}

// decide records a decision, its audit records and its announcement together. An
// unwritten decision is made again.
func (m *model) decide(t *rapid.T) {
	m.decided++
	m.w.Decision.Lock()
	defer m.w.Decision.Unlock()
	n := fmt.Sprint(m.decided)
	m.w.Revise(func(r *reconciler.Revision) { r.Commit = n })
	for range rapid.IntRange(1, 2).Draw(t, "times") { // announced twice, published once
		m.w.Record(audit.Record{Action: "document.added", Change: audit.Change{Commit: n}, CorrelationID: "c"},
			audit.Record{Action: "document.deleted", Change: audit.Change{Commit: n}})
		m.w.Announce(NewEvent(event.EntitlementUpdated, entitled(m.decided), n, 0, "c",
			event.Entitlement{OrgID: "physics", ProjectID: "physics.lhc", AppSlug: entitled(m.decided).Name, Enabled: true,
				UpdatedBy: "ada", Revision: n}, m.now))
	}
}

// push tries to write with faults; a change may happen meanwhile.
func (m *model) push(t *rapid.T) {
	m.repo.fates = rapid.SliceOfN(rapid.SampledFrom([]string{"lands", "refused", "overtaken", "lost", "lost and overtaken",
		"conflict on top"}), 0, 4).Draw(t, "fates")
	m.repo.blind = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "blind")
	if rapid.Bool().Draw(t, "meanwhile") {
		m.repo.during = func() { m.unit(t) }
	}
	_ = m.w.push(t.Context()) // failed writes are kept
	m.repo.fates, m.repo.blind, m.repo.during = nil, 0, nil
}

// written checks the invariants of the branch.
func (m *model) written(t *rapid.T, schemas map[string]*jsonschema.Schema) {
	if m.repo.tip == 0 {
		return
	}
	tree := m.repo.trees[m.repo.tip-1]
	var events []string
	var chain []audit.Record
	published := map[string]bool{}
	for i, b := range m.repo.batches {
		for _, e := range b.Events {
			require.False(t, published[e.EventID], "event %s published twice", e.EventType)
			published[e.EventID] = true
			events = append(events, e.EventID)
			if i < m.checked {
				continue
			}
			line, err := json.Marshal(e)
			require.NoError(t, err)
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
			require.NoError(t, err)
			require.NoError(t, schemas[e.EventType].Validate(doc), "%s", line)
		}
		chain = append(chain, b.Audit...)
	}
	m.checked = len(m.repo.batches)
	require.EqualValues(t, len(events), tree.Revision.Sequence)

	// The chain verifies, and each record occurs once.
	_, err := audit.Verify(func(yield func(audit.Line) bool) {
		for i, r := range chain {
			if !yield(audit.Line{Record: r, File: "log", Number: i + 1}) {
				return
			}
		}
	}, audit.Head{Sequence: tree.Revision.AuditSequence, Hash: tree.Revision.AuditHead})
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, r := range chain {
		require.False(t, ids[r.RecordID], "recorded twice: %s", audit.Encode(r))
		ids[r.RecordID] = true
	}

	// Each resource has exactly the events up to its state, in order.
	for key, steps := range m.steps {
		state := ""
		if s := tree.Units.Get(key); s != nil {
			state = fmt.Sprint(s.Attempt)
		}
		if s := tree.Things[key]; s != nil {
			state = s.Revision
		}
		var want, got []string
		mine := map[string]bool{}
		upTo := slices.IndexFunc(steps, func(s step) bool { return s.state == state })
		for i, s := range steps {
			mine[s.event] = true
			if s.event != "" && i <= upTo {
				want = append(want, s.event)
			}
		}
		for _, id := range events {
			if mine[id] {
				got = append(got, id)
			}
		}
		require.Equal(t, want, got, "events of %s", key)
	}
	// Each decision has its announcement and its two records.
	decided := 0
	if tree.Revision.Commit != "" {
		_, err := fmt.Sscan(tree.Revision.Commit, &decided)
		require.NoError(t, err)
	}
	require.Len(t, chain, 2*decided)
	for n := 1; n <= decided; n++ {
		require.True(t, published[event.ID(event.EntitlementUpdated, entitled(n), fmt.Sprint(n), 0)])
	}
}

// After any fault, loss, foreign write or crash, events and audit records exist
// exactly once and in order. They agree with the statuses beside them (requirements A8
// and A12), and each event satisfies its published schema.
func TestWriterPublishesExactlyOnce(t *testing.T) {
	schemas := eventSchemas(t)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{repo: &faulty{}, now: time.Unix(1_800_000_000, 0), steps: map[schema.Key][]step{}}
		m.restart(t)
		t.Repeat(map[string]func(*rapid.T){
			"unit":    m.unit,
			"thing":   m.thing,
			"decide":  m.decide,
			"push":    m.push,
			"restart": m.restart,
			"":        func(t *rapid.T) { m.written(t, schemas) },
		})
		// Without further faults everything is written.
		require.NoError(t, m.w.push(t.Context()))
		require.True(t, m.w.IsWritten())
		m.written(t, schemas)
		tree := m.repo.trees[m.repo.tip-1]
		for key, steps := range m.steps {
			if len(steps) == 0 {
				continue
			}
			last := steps[len(steps)-1].state
			if key.Kind == schema.KindInstance {
				require.Equal(t, last, fmt.Sprint(tree.Units.Get(key).Attempt))
				require.Empty(t, tree.Units.Get(key).FailureReason, "the foreign change is overwritten")
			} else {
				require.Equal(t, last, tree.Things[key].Revision)
			}
		}
	})
}

// eventSchemas returns the compiled published schemas.
func eventSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	files, err := event.Published()
	require.NoError(t, err)
	out := map[string]*jsonschema.Schema{}
	for _, d := range event.Definitions() {
		name := "schemas/" + string(d.Type) + ".json"
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(files[name]))
		require.NoError(t, err)
		require.NoError(t, c.AddResource(name, doc))
		out[string(d.Type)], err = c.Compile(name)
		require.NoError(t, err)
	}
	return out
}
