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

// faulty is a status branch whose calls fail as the next of fates says.
type faulty struct {
	statusRepo
	fates  []string // of the next writes; none left: it lands
	blind  int      // the next so many fetches and reads fail
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
	case "overtaken": // somebody else writes first
		f.foreign()
	case "lost", "lost and overtaken", "conflict on top":
		if _, err := f.statusRepo.WriteStatus(ctx, old, b); err != nil {
			return "", err
		}
		if fate == "conflict on top" { // the answer is lost, and the remote then shows a later foreign commit
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

// foreign is a write of somebody who is not the leader: he spoils what stands
// there and takes the revision as he finds it.
func (f *faulty) foreign() {
	if f.tip == 0 {
		return
	}
	tree := f.trees[f.tip-1]
	b := reconciler.StatusBatch{Revision: tree.Revision, Units: []plan.Status{{Key: schema.InstanceKey("physics", "lhc", "invented"), Phase: plan.PhaseRunning}}}
	for _, k := range tree.Units.Keys() {
		s := *tree.Units.Get(k)
		s.FailureReason = "spoilt"
		b.Units = append(b.Units, s)
	}
	if _, err := f.statusRepo.WriteStatus(context.Background(), f.id(), b); err != nil {
		panic(err)
	}
}

// step is a state an object was brought to, and what its event tells; "" where
// it makes none.
type step struct {
	state string
	event string
}

// model drives a writer the way the loop does, through faults and restarts, and
// knows what may be on the branch.
type model struct {
	repo    *faulty
	now     time.Time
	w       *Writer
	attempt int                   // raised by each step: it names the state
	steps   map[schema.Key][]step // of each object, oldest first, of which some may be lost in a crash
	decided int                   // decisions made; the revision says how many were written
	checked int                   // batches whose events were held against their schemas
}

func (m *model) clock() time.Time { return m.now }

// restart is a crash: what was not written is forgotten, and what is written
// says where to go on.
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
			// Somebody else spoilt it and the crash came before it was written
			// over: whoever looks at the unit again puts it right.
			right := *s
			right.FailureReason = ""
			_, ok := m.w.SetUnit(s, right)
			require.True(t, ok)
		}
		i := slices.IndexFunc(steps, func(s step) bool { return s.state == state })
		require.True(t, i >= 0 || state == "", "%s is in a state it never was in: %q", key, state)
		m.steps[key] = steps[:i+1]
	}
}

func (m *model) unit(t *rapid.T) {
	key := schema.InstanceKey("physics", "lhc", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "unit"))
	p := rapid.SampledFrom([]plan.Phase{plan.PhaseRequested, plan.PhaseDeploying, plan.PhaseRunning, plan.PhaseFailed, plan.PhaseDeleting}).Draw(t, "phase")
	m.attempt++
	prev := m.w.Unit(key)
	s := plan.Status{Key: key, Phase: p, Attempt: m.attempt, Revision: "r", CorrelationID: "c", App: "app"}
	changed, ok := m.w.SetUnit(prev, s)
	require.True(t, changed && ok)
	told := ""
	if d, is := event.Of(key.Kind, string(p)); is && (prev == nil || prev.Phase != p) {
		told = event.ID(d.Type, key, "r", m.attempt)
	}
	m.steps[key] = append(m.steps[key], step{fmt.Sprint(m.attempt), told})
}

func (m *model) thing(t *rapid.T) {
	key := rapid.SampledFrom([]schema.Key{
		{Kind: schema.KindArtifact, Tenant: "physics", Project: "lhc", Name: "model"},
		{Kind: schema.KindAttachment, Tenant: "physics", Parent: "big", Name: "lhc"},
		{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "big"},
		{Kind: schema.KindNode, Name: "gpu-1"}, // which makes no events
	}).Draw(t, "thing")
	p := rapid.SampledFrom([]string{"requested", "registered", "promoted", "attached", "running", "other"}).Draw(t, "phase")
	m.attempt++
	rev := fmt.Sprint(m.attempt)
	prev := m.w.Resource(key)
	changed, ok := m.w.SetResource(prev, plan.ThingStatus{Key: key, Phase: p, Revision: rev, CorrelationID: "c"})
	require.True(t, changed && ok)
	told := ""
	if d, is := event.Of(key.Kind, p); is && (prev == nil || prev.Phase != p) {
		told = event.ID(d.Type, key, rev, 0)
	}
	m.steps[key] = append(m.steps[key], step{rev, told})
}

func entitled(n int) schema.Key {
	return schema.Key{Kind: schema.KindEntitlement, Tenant: "physics", Project: "lhc", Name: fmt.Sprintf("app-%d", n)}
}

// decide records what is true only together: a decision, its audit records and
// its announcement. What was decided and not written is decided again.
func (m *model) decide(t *rapid.T) {
	m.decided++
	m.w.Decision.Lock()
	defer m.w.Decision.Unlock()
	n := fmt.Sprint(m.decided)
	m.w.Revise(func(r *reconciler.Revision) { r.Commit = n })
	for range rapid.IntRange(1, 2).Draw(t, "times") { // said twice, told once
		m.w.Record(audit.Record{Action: "document.added", Commit: n, CorrelationID: "c"}, audit.Record{Action: "document.deleted", Commit: n})
		m.w.Announce(NewEvent(event.EntitlementUpdated, entitled(m.decided), n, 0, "c", event.Entitlement{OrgID: "physics", ProjectID: "physics.lhc", AppSlug: entitled(m.decided).Name, Enabled: true, UpdatedBy: "ada", Revision: n}, m.now))
	}
}

// push tries to write, with faults on the way; something may change meanwhile.
func (m *model) push(t *rapid.T) {
	m.repo.fates = rapid.SliceOfN(rapid.SampledFrom([]string{"lands", "refused", "overtaken", "lost", "lost and overtaken", "conflict on top"}), 0, 4).Draw(t, "fates")
	m.repo.blind = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "blind")
	if rapid.Bool().Draw(t, "meanwhile") {
		m.repo.during = func() { m.unit(t) }
	}
	_ = m.w.push(t.Context()) // what does not get through is kept
	m.repo.fates, m.repo.blind, m.repo.during = nil, 0, nil
}

// written says what must hold of the branch at any time.
func (m *model) written(t *rapid.T, schemas map[string]*jsonschema.Schema) {
	if m.repo.tip == 0 {
		return
	}
	tree := m.repo.trees[m.repo.tip-1]
	var events []string
	var chain []audit.Record
	told := map[string]bool{}
	for i, b := range m.repo.batches {
		for _, e := range b.Events {
			require.False(t, told[e.EventID], "%s is told twice", e.EventType)
			told[e.EventID] = true
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

	// The chain verifies, and each record is there once.
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

	// Of each object, exactly the events up to its state, in order.
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
	// Of each decision, its announcement and its two records.
	decided := 0
	if tree.Revision.Commit != "" {
		_, err := fmt.Sscan(tree.Revision.Commit, &decided)
		require.NoError(t, err)
	}
	require.Len(t, chain, 2*decided)
	for n := 1; n <= decided; n++ {
		require.True(t, told[event.ID(event.EntitlementUpdated, entitled(n), fmt.Sprint(n), 0)])
	}
}

// Whatever fails, is lost, is written by others, or crashes: events and audit
// are there exactly once, in order, and agree with the states beside them
// (requirement A8, A12; each event satisfies its published schema).
func TestWriterTellsExactlyOnce(t *testing.T) {
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
		// With no more faults, all of it gets there.
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
				require.Empty(t, tree.Units.Get(key).FailureReason, "what somebody spoilt is put right")
			} else {
				require.Equal(t, last, tree.Things[key].Revision)
			}
		}
	})
}

// eventSchemas are the published schemas, compiled.
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
