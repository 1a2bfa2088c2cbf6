package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// statusRepo is a status branch with compare-and-swap. Methods that a writer does not
// use panic.
type statusRepo struct {
	mu      sync.Mutex
	tip     int
	trees   []reconciler.StatusTree
	batches []reconciler.StatusBatch
	down    error
	lose    bool // the next write succeeds, but its answer is lost
	damaged bool // the mirror has only the tip of the branch
	stale   int  // number of fetches that show the branch as it was before its last commit
}

func (s *statusRepo) Fetch(context.Context) (reconciler.Tips, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale > 0 {
		s.stale--
		return reconciler.Tips{Main: "m", Status: fmt.Sprint(s.tip - 1)}, s.down
	}
	return reconciler.Tips{Main: "m", Status: s.id()}, s.down
}

func (s *statusRepo) id() string {
	if s.tip == 0 {
		return ""
	}
	return fmt.Sprint(s.tip)
}

func (s *statusRepo) ReadStatus(_ context.Context, commit string) (reconciler.StatusTree, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if commit == "" {
		return reconciler.StatusTree{}, nil
	}
	at, err := strconv.Atoi(commit)
	if err != nil {
		return reconciler.StatusTree{}, err
	}
	t := s.trees[at-1]
	return reconciler.StatusTree{Revision: t.Revision, Unread: t.Unread, Units: t.Units, Things: maps.Clone(t.Things),
		Reviews: maps.Clone(t.Reviews)}, nil
}

// AuditTail returns all records ever written.
func (s *statusRepo) AuditTail(context.Context, string, time.Time, int) (lines []audit.Line, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.batches {
		for j, r := range b.Audit {
			lines = append(lines, audit.Line{Record: r, File: fmt.Sprint("audit/", i), Number: j + 1})
		}
	}
	return lines, nil
}

func (s *statusRepo) WriteStatus(_ context.Context, old string, b reconciler.StatusBatch) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return "", s.down
	}
	if old != s.id() && s.damaged {
		return "", fmt.Errorf("commit %s: %w", old, reconciler.ErrNotFound)
	}
	if old != s.id() {
		return "", reconciler.ErrConflict
	}
	next := reconciler.StatusTree{Revision: b.Revision, Things: map[schema.Key]*plan.ThingStatus{}, Reviews: map[int]*plan.Review{}}
	if s.tip > 0 {
		maps.Copy(next.Reviews, s.trees[s.tip-1].Reviews)
		next.Units = s.trees[s.tip-1].Units
		maps.Copy(next.Things, s.trees[s.tip-1].Things)
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
	for i := range b.Reviews {
		next.Reviews[b.Reviews[i].Pull] = &b.Reviews[i]
	}
	for _, n := range b.ReviewsGone {
		delete(next.Reviews, n)
	}
	s.trees = append(s.trees, next)
	s.batches = append(s.batches, b)
	s.tip++
	if s.lose {
		s.lose = false
		return "", errors.New("connection reset")
	}
	return s.id(), nil
}

func (s *statusRepo) events() []plan.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []plan.Event
	for _, b := range s.batches {
		out = append(out, b.Events...)
	}
	return out
}

func (s *statusRepo) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

var train = schema.InstanceKey("physics", "lhc", "train")

func phase(p plan.Phase) plan.Status {
	return plan.Status{Key: train, Phase: p, LastApplied: plan.LastApplied{Revision: "abc", CorrelationID: "c1"},
		EffectiveValues: plan.EffectiveValues{App: "app"}}
}

// put replaces the status of a unit.
func put(w *Writer, s plan.Status) bool {
	changed, _ := w.SetUnit(w.Unit(s.Key), s)
	return changed
}

func newWriter(t *testing.T, repo Branch, window time.Duration) *Writer {
	return NewWriter(Options{Repo: repo, Window: window, Log: testLog(t), Now: time.Now})
}

func startWriter(t *testing.T, repo Branch, window time.Duration) (*Writer, func() error) {
	t.Helper()
	return start(t, newWriter(t, repo, window))
}

// start takes leadership and runs a writer. The returned function stops it.
func start(t *testing.T, w *Writer) (*Writer, func() error) {
	t.Helper()
	require.NoError(t, w.Lead(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return w, func() error {
		cancel()
		return <-ended
	}
}

func TestWriterWritesOneCommitPerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		for i := range 50 {
			s := phase(plan.PhaseRequested)
			s.Key.Name = fmt.Sprintf("train-%d", i)
			require.True(t, put(w, s))
		}
		require.False(t, put(w, *w.Unit(schema.InstanceKey("physics", "lhc", "train-3"))), "an equal status changes nothing")
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.Len(t, repo.batches, 2, "the leadership and one commit for all changes")
		require.Len(t, repo.batches[1].Units, 50)
		require.Len(t, repo.batches[1].Events, 50)
		require.EqualValues(t, 50, repo.batches[1].Revision.Sequence)
		require.True(t, w.IsWritten())
		require.NoError(t, stop())
	})
}

func TestWriterFlushDoesNotWaitForTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Hour)
		put(w, phase(plan.PhaseRequested))
		start := time.Now()
		require.NoError(t, w.Flush(t.Context()))
		require.Zero(t, time.Since(start))
		require.Len(t, repo.events(), 1)
		require.NoError(t, stop())
	})
}

// However many callers wait for their records, there is one commit a window after the first few, and
// each of them has what was recorded meanwhile.
func TestWriterLimitsItsCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		began := time.Now()
		const callers, each = 50, 20
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for n := range each {
					s := phase(plan.PhaseRequested)
					s.Key.Name, s.Revision = fmt.Sprintf("train-%d", i), fmt.Sprint(n)
					put(w, s)
					require.NoError(t, w.Flush(t.Context()))
					time.Sleep(time.Duration(i) * time.Millisecond) // the callers do not keep step
				}
			})
		}
		wg.Wait()
		seconds := int(time.Since(began) / time.Second)
		require.GreaterOrEqual(t, seconds, each-pushesAtOnce)
		require.LessOrEqual(t, len(repo.batches), 1+pushesAtOnce+seconds+1)
		require.LessOrEqual(t, seconds, 2*each, "a caller waits for at most two commits")
		require.NoError(t, stop())
	})
}

func TestWriterKeepsEverythingWhileTheRemoteIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		repo.setDown(errors.New("remote is down"))
		for _, p := range []plan.Phase{plan.PhaseRequested, plan.PhaseDeploying, plan.PhaseRunning} {
			put(w, phase(p))
			time.Sleep(2 * time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.ErrorContains(t, w.Flush(ctx), "remote is down")
		repo.setDown(nil)
		time.Sleep(time.Minute)
		require.True(t, w.IsWritten())
		var types []string
		for _, e := range repo.events() {
			types = append(types, e.EventType)
		}
		require.Equal(t, []string{"apps.instance.requested", "apps.instance.running"}, types)
		require.NoError(t, stop())
	})
}

// A push may succeed although its answer is lost. The writer recognizes its own commit
// and does not write the events again.
func TestWriterRecognizesItsCommitAfterLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		repo.mu.Lock()
		repo.lose = true
		repo.mu.Unlock()
		put(w, phase(plan.PhaseRequested))
		time.Sleep(time.Minute)
		require.True(t, w.IsWritten())
		seen := map[string]int{}
		for _, e := range repo.events() {
			seen[e.EventID]++
		}
		for id, n := range seen {
			require.Equal(t, 1, n, "event %s", id)
		}
		require.Len(t, seen, 1)
		require.NoError(t, stop())
	})
}

// A replica of the remote may show the branch without a commit whose answer was lost. The
// writer recognizes the commit when it sees it.
func TestWriterRecognizesItsCommitAfterAStaleFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Millisecond)
		put(w, phase(plan.PhaseRequested))
		time.Sleep(time.Minute)
		require.True(t, w.IsWritten())
		repo.mu.Lock()
		repo.lose, repo.stale = true, 1
		repo.mu.Unlock()
		put(w, phase(plan.PhaseRunning))
		time.Sleep(100 * time.Millisecond)
		put(w, phase(plan.PhaseFailed))
		time.Sleep(time.Minute)
		require.True(t, w.IsWritten())
		require.Zero(t, repo.stale)
		seen := map[string]int{}
		for _, e := range repo.events() {
			seen[e.EventID]++
		}
		require.Len(t, seen, 3)
		for id, n := range seen {
			require.Equal(t, 1, n, "event %s", id)
		}
		require.NoError(t, stop())
	})
}

// A new fetch after a foreign commit lacks the commit that the writer builds on. The
// writer continues from the tip of the branch.
func TestWriterContinuesWithoutItsTipInTheMirror(t *testing.T) {
	for name, move := range map[string]func(t *testing.T, w *Writer, repo *statusRepo){
		"the answer to a push was lost": func(t *testing.T, w *Writer, repo *statusRepo) {
			repo.lose = true
			put(w, phase(plan.PhaseRequested))
			require.Error(t, w.push(t.Context()))
		},
		"another program wrote": func(t *testing.T, w *Writer, repo *statusRepo) {
			put(w, phase(plan.PhaseRequested))
			_, err := repo.WriteStatus(t.Context(), repo.id(), reconciler.StatusBatch{Revision: w.Revision()})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := &statusRepo{}
			w := newWriter(t, repo, time.Hour)
			require.NoError(t, w.Lead(t.Context()))
			move(t, w, repo)
			repo.damaged = true
			put(w, phase(plan.PhaseRunning))
			require.NoError(t, w.push(t.Context()))
			require.True(t, w.IsWritten())
			var types []string
			for _, e := range repo.events() {
				types = append(types, e.EventType)
			}
			require.Equal(t, []string{"apps.instance.requested", "apps.instance.running"}, types)
		})
	}
}

// The answer is lost, and the remote goes down with one more event to write. The
// writer still recognizes the first batch.
func TestWriterRecognizesItsCommitAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		repo.mu.Lock()
		repo.lose = true
		repo.mu.Unlock()
		put(w, phase(plan.PhaseRequested))
		time.Sleep(1200 * time.Millisecond)
		repo.setDown(errors.New("down"))
		put(w, phase(plan.PhaseRunning))
		time.Sleep(10 * time.Second)
		repo.setDown(nil)
		time.Sleep(time.Minute)
		var types []string
		for _, e := range repo.events() {
			types = append(types, e.EventType)
		}
		require.Equal(t, []string{"apps.instance.requested", "apps.instance.running"}, types)
		require.NoError(t, stop())
	})
}

func TestWriterIsDeposedByALaterEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		first, stop := startWriter(t, repo, time.Second)
		second, stopSecond := startWriter(t, repo, time.Second)
		require.Greater(t, second.rev.Epoch, first.rev.Epoch)
		put(first, phase(plan.PhaseRequested))
		require.ErrorIs(t, first.Flush(t.Context()), ErrDeposed)
		require.ErrorIs(t, stop(), ErrDeposed)
		require.Empty(t, repo.events(), "a deposed writer writes nothing")
		require.NoError(t, stopSecond())
	})
}

// A branch that names another leader of the same epoch ends the daemon, because hosts
// then obey that leader.
func TestWriterIsDeposedByAnotherLeaderOfItsEpoch(t *testing.T) {
	for name, meet := range map[string]func(*testing.T, *Writer, *statusRepo) error{
		"at a fetch": func(t *testing.T, w *Writer, repo *statusRepo) error { return w.Fetched(t.Context(), repo.id()) },
		"at a push": func(t *testing.T, w *Writer, repo *statusRepo) error {
			put(w, phase(plan.PhaseRunning))
			return w.push(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := &statusRepo{}
			w := newWriter(t, repo, time.Hour)
			require.NoError(t, w.Lead(t.Context()))
			require.Equal(t, w.leader, w.Revision().Leader)
			rev := w.Revision()
			w.Revise(func(r *reconciler.Revision) { r.Leader = "forged" })
			require.Equal(t, rev, w.Revision(), "a caller cannot change the leader")
			rev.Leader = "other"
			_, err := repo.WriteStatus(t.Context(), repo.id(), reconciler.StatusBatch{Revision: rev})
			require.NoError(t, err)
			err = meet(t, w, repo)
			require.ErrorIs(t, err, ErrDeposed)
			require.ErrorContains(t, err, "names leader other with epoch")
		})
	}
}

func TestWriterOverwritesForeignCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		put(w, phase(plan.PhaseRunning))
		require.NoError(t, w.Flush(t.Context()))
		// Another program writes a status without a later epoch.
		forged := phase(plan.PhaseDeleted)
		other := schema.InstanceKey("physics", "lhc", "invented")
		_, err := repo.WriteStatus(t.Context(), repo.id(),
			reconciler.StatusBatch{Revision: w.Revision(), Units: []plan.Status{forged, {Key: other, Phase: plan.PhaseRunning}}})
		require.NoError(t, err)
		w.Revise(func(r *reconciler.Revision) { r.Commit = "next" })
		require.NoError(t, w.Flush(t.Context()))
		tree, err := repo.ReadStatus(t.Context(), repo.id())
		require.NoError(t, err)
		require.Equal(t, plan.PhaseRunning, tree.Units.Get(train).Phase)
		require.Nil(t, tree.Units.Get(other))
		require.NoError(t, stop())
	})
}

// A status computed from an outdated status is refused.
func TestWriterRefusesAStaleStatus(t *testing.T) {
	w := newWriter(t, &statusRepo{}, time.Hour)
	require.True(t, put(w, phase(plan.PhaseRequested)))
	seen := w.Unit(train)
	require.True(t, put(w, phase(plan.PhaseDeploying)))
	_, ok := w.SetUnit(seen, phase(plan.PhaseRunning))
	require.False(t, ok)
	require.Equal(t, plan.PhaseDeploying, w.Unit(train).Phase)
	_, ok = w.SetUnit(nil, phase(plan.PhaseRunning))
	require.False(t, ok)
}

// The status of a resource is recorded, published and removed like that of a unit.
func TestWriterRecordsResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		model := schema.Key{Kind: schema.KindArtifact, Tenant: "physics", Project: "lhc", Name: "model"}
		s := plan.ThingStatus{Key: model, UID: "0d9f-model", Phase: "registered", Revision: "abc", CorrelationID: "c1",
			Detail: []byte(`{"app_slug":"batch","digest":"sha256:00","media_type":7}`)}
		changed, ok := w.SetResource(nil, s)
		require.True(t, changed && ok)
		changed, ok = w.SetResource(w.Resource(model), s)
		require.True(t, ok && !changed, "an equal status changes nothing")
		_, ok = w.SetResource(nil, s)
		require.False(t, ok, "a newer status was recorded meanwhile")
		require.NoError(t, w.Flush(t.Context()))
		events := repo.events()
		require.Len(t, events, 1)
		require.Equal(t, "apps.artifact.registered", events[0].EventType)
		require.JSONEq(t, `{"org_id":"physics","project_id":"physics.lhc","app_slug":"batch","artifact_id":"0d9f-model","resource_name":"physics.lhc/model","status":"registered",
			"source":"","reference":"","media_type":"","digest":"sha256:00","revision":"abc"}`, string(events[0].Payload))

		seen := w.Resource(model)
		s.Phase = "promoted"
		_, ok = w.SetResource(seen, s)
		require.True(t, ok)
		require.False(t, w.RemoveResource(seen), "a newer status is recorded")
		require.True(t, w.RemoveResource(w.Resource(model)))
		require.False(t, w.RemoveResource(nil))
		require.NoError(t, w.Flush(t.Context()))
		tree, err := repo.ReadStatus(t.Context(), repo.id())
		require.NoError(t, err)
		require.Empty(t, tree.Things)
		require.Len(t, repo.events(), 2, "events of the removed resource are published")
		require.NoError(t, stop())
	})
}

// Callers of Revise cannot change the audit chain.
func TestWriterChainsAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		for i := range 3 {
			w.Record(audit.Record{Action: fmt.Sprint(i)}, audit.Record{Action: fmt.Sprint(i)})
			w.Revise(func(r *reconciler.Revision) { r.AuditSequence, r.AuditHead = 99, "forged" })
			require.NoError(t, w.Flush(t.Context()))
		}
		require.NoError(t, stop())
		var chain []audit.Record
		for _, b := range repo.batches {
			chain = append(chain, b.Audit...)
		}
		require.Len(t, chain, 3)
		rev := repo.batches[len(repo.batches)-1].Revision
		_, err := audit.Verify(func(yield func(audit.Line) bool) {
			for _, r := range chain {
				require.False(t, r.OccurredAt.IsZero())
				if !yield(audit.Line{Record: r}) {
					return
				}
			}
		}, audit.Head{Sequence: rev.AuditSequence, Hash: rev.AuditHead})
		require.NoError(t, err)
	})
}

// A transition that is repeated after a crash has the same event ID.
func TestRepeatedTransitionHasTheSameEventID(t *testing.T) {
	prev, next := phase(plan.PhaseDeploying), phase(plan.PhaseRunning)
	a, ok := phaseEvent(&prev, &next, time.Unix(1, 0))
	require.True(t, ok)
	b, _ := phaseEvent(&prev, &next, time.Unix(99, 0))
	require.Equal(t, a.EventID, b.EventID)
	next.Revision = "def"
	c, _ := phaseEvent(&prev, &next, time.Unix(1, 0))
	require.NotEqual(t, a.EventID, c.EventID)
	_, ok = phaseEvent(&next, &next, time.Unix(1, 0))
	require.False(t, ok, "no change, no event")
}

// A transition of a node has one event and one id; a status that is written again, and a node that never answered, have none.
func TestTransitionOfANodeHasOneEvent(t *testing.T) {
	node := func(phase, detail string) *plan.ThingStatus {
		return &plan.ThingStatus{Key: schema.Key{Kind: schema.KindNode, Name: "gpu-1"}, Phase: phase, Revision: "abc",
			Detail: json.RawMessage(detail)}
	}
	ready, lost := node("ready", `{"attempt":1,"previous_status":"unknown"}`), node("lost", `{"attempt":2,"previous_status":"ready"}`)
	require.Empty(t, resourceEvents(nil, node("unknown", `{}`), time.Unix(1, 0)))
	require.Empty(t, resourceEvents(ready, node("ready", `{"attempt":1,"silence_seconds":3}`), time.Unix(1, 0)))
	a, b := resourceEvents(ready, lost, time.Unix(1, 0)), resourceEvents(ready, lost, time.Unix(99, 0))
	require.Len(t, a, 1)
	require.Equal(t, "berth.node.lost", a[0].EventType)
	require.Equal(t, a[0].EventID, b[0].EventID)
	again := resourceEvents(node("ready", `{"attempt":3}`), node("lost", `{"attempt":4}`), time.Unix(1, 0))
	require.NotEqual(t, a[0].EventID, again[0].EventID)
}

// Changes that wait for a remote are written as soon as the remote answers a fetch.
func TestWriterContinuesWhenTheRemoteRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		repo.setDown(errors.New("remote is down"))
		put(w, phase(plan.PhaseRequested))
		time.Sleep(time.Minute) // the next attempt is far away
		repo.setDown(nil)
		start := time.Now()
		require.NoError(t, w.Fetched(t.Context(), repo.id()))
		require.NoError(t, w.Flush(t.Context()))
		require.Zero(t, time.Since(start))
		require.NoError(t, stop())
	})
}

// A commit holds all records of a decision or none of them.
func TestWriterWritesDecisionAtomically(t *testing.T) {
	repo := &statusRepo{}
	w, stop := startWriter(t, repo, time.Millisecond)
	w.Decision.Lock()
	put(w, phase(plan.PhaseDeleting))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the moment at which the caller gives up
	defer cancel()
	require.Error(t, w.Flush(ctx), "half of the decision was written")
	w.Revise(func(r *reconciler.Revision) { r.Commit = "next" })
	w.Decision.Unlock()
	require.NoError(t, w.Flush(t.Context()))
	require.NoError(t, stop())
	require.Len(t, repo.batches, 2, "the leadership and the decision")
	require.Equal(t, "next", repo.batches[1].Revision.Commit)
	require.Len(t, repo.batches[1].Units, 1)
}
