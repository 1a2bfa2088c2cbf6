package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/loop"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema/audit"
)

// starting is a repository whose first status push waits for the push of the other
// daemon. Both daemons have then read the same branch.
type starting struct {
	reconciler.Repo
	start *sameStart
	once  sync.Once
}

func (s *starting) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	s.once.Do(s.start.wait)
	return s.Repo.WriteStatus(ctx, old, b)
}

// sameStart makes two daemons push their leadership at the same time. Its clock does
// not advance until then.
type sameStart struct {
	ready  sync.WaitGroup
	second time.Time
	pushed atomic.Pointer[time.Time]
}

func newSameStart() *sameStart {
	s := &sameStart{second: time.Now().Truncate(time.Second)}
	s.ready.Add(2)
	return s
}

func (s *sameStart) wait() {
	s.ready.Done()
	s.ready.Wait()
	now := time.Now()
	s.pushed.CompareAndSwap(nil, &now)
}

func (s *sameStart) now() time.Time {
	if pushed := s.pushed.Load(); pushed != nil {
		return s.second.Add(time.Since(*pushed))
	}
	return s.second
}

// leaders records the leaders that act on hosts.
type leaders struct {
	runtimes.Runtime
	mu   *sync.Mutex
	seen map[string]bool
}

func (l leaders) Apply(ctx context.Context, c runtimes.Change) error {
	err := l.Runtime.Apply(ctx, c)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen[fmt.Sprint(c.Stamp.Epoch, " ", c.Stamp.Leader)] = true
	}
	return err
}

// twoDaemonsInTheSameSecond starts two daemons on one estate that push their
// leadership in the same second, on the same commit.
func twoDaemonsInTheSameSecond(t *testing.T) {
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	start := newSameStart()
	acted := leaders{memory.New(w.world), &sync.Mutex{}, map[string]bool{}}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	var daemons [2]*daemon
	for i := range daemons {
		repo, err := gitrepo.Open(t.Context(),
			gitrepo.Options{PullRefs: pullRefs(), URL: w.git.URL, Dir: t.TempDir(), Timeout: await.Limit, Now: start.now})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		daemons[i] = &daemon{w: w, cancel: cancel, ended: make(chan error, 1), repo: repo, Reconciler: loop.New(loop.Options{
			Repo: &starting{Repo: repo, start: start}, Decide: decide.Options{Loader: newLoader(t)}, Render: render(),
			Runtimes: map[string]runtimes.Runtime{"bare_metal": acted},
			Settings: loop.Settings{
				Interval: 50 * time.Millisecond, Poll: 50 * time.Millisecond, Flush: 10 * time.Millisecond,
				AuthorLag: 10 * time.Millisecond,
				Workers:   4, MaxAttempts: 10,
			},
			Log: log.With("daemon", i), Now: start.now,
		})}
		d := daemons[i]
		t.Cleanup(func() { d.stop() })
		go func() { d.ended <- d.Run(ctx) }()
	}

	// One daemon ends with a reason; the other has leadership and works.
	var deposed error
	var leading *daemon
	select {
	case deposed = <-daemons[0].ended:
		close(daemons[0].ended)
		leading = daemons[1]
	case deposed = <-daemons[1].ended:
		close(daemons[1].ended)
		leading = daemons[0]
	case <-await.Context(t).Done():
		t.Fatalf("both daemons claim leadership; saw %v", w.saw())
	}
	require.ErrorContains(t, deposed, "another daemon")
	path, text = instance("train", 2)
	commit := w.put(map[string]string{path: text})
	w.eventually("grown and running", func() bool {
		s := w.status("train")
		return converged(s, 3) && w.revision().Commit == commit
	})
	rev := w.revision()
	require.Empty(t, rev.Frozen)
	require.NotEmpty(t, rev.Leader)
	select {
	case err := <-leading.ended:
		t.Fatalf("no daemon has leadership: %v", err)
	default:
	}
	require.NoError(t, leading.stop())
	acted.mu.Lock()
	defer acted.mu.Unlock()
	require.LessOrEqual(t, len(acted.seen), 2)
	require.Contains(t, acted.seen, fmt.Sprint(rev.Epoch, " ", rev.Leader), "the recorded leader acts on the hosts")

	w.noEventTwice()
	require.NoError(t, w.verifyAudit())
}

// verifyAudit verifies the audit chain on the status branch.
func (w *world) verifyAudit() error {
	repo, err := gitrepo.OpenLocal(w.git.Dir)
	require.NoError(w.t, err)
	defer repo.Close()
	tip := w.git.Tip(reconciler.BranchStatus)
	tree, err := repo.ReadStatus(w.t.Context(), tip)
	require.NoError(w.t, err)
	_, err = audit.Verify(func(yield func(audit.Line) bool) {
		for l, err := range repo.Audit(w.t.Context(), tip, statusbranch.LogOrder{}) {
			if !yield(audit.Line{Record: l.Value, File: l.File, Number: l.Line, Err: err}) {
				return
			}
		}
	}, audit.Head{Sequence: tree.Revision.AuditSequence, Hash: tree.Revision.AuditHead})
	return err
}

// The long form, TestLongTwoDaemonsInTheSameSecond, does 100 rounds.
func TestTwoDaemonsInTheSameSecond(t *testing.T) {
	t.Parallel()
	twoDaemonsInTheSameSecond(t)
}
