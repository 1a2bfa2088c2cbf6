//go:build long

package loop_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

// spoilCache removes all objects of a daemon's mirror, also during a fetch.
func spoilCache(t *testing.T, dir string) {
	t.Helper()
	removed := 0
	await.True(t, "a pack in the mirror", func() bool {
		packs, err := filepath.Glob(filepath.Join(dir, "mirror.git", "objects", "pack", "*"))
		require.NoError(t, err)
		for _, pack := range packs {
			if os.Remove(pack) == nil {
				removed++
			}
		}
		return removed > 0
	}, func() any { return "no pack in " + dir })
}

// The answer to a push is lost and the cache is damaged before the daemon reads the
// result. The daemon recovers, and no record is duplicated.
func TestLongDamagedCacheHealsAfterALostResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	dir := t.TempDir()
	d := w.startAt(dir)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())
	d = w.startAt(dir)
	d.ready()

	for _, n := range []int{2, 3, 4} {
		tip := w.git.Tip(reconciler.BranchStatus)
		w.git.SetFaults(gittest.Faults{DropReplies: 3})
		path, text = instance("train", n)
		commit := w.put(map[string]string{path: text})
		w.eventually("status moved", func() bool { return w.git.Tip(reconciler.BranchStatus) != tip })
		w.git.SetFaults(gittest.Faults{Down: true})
		spoilCache(t, dir)
		w.git.SetFaults(gittest.Faults{})
		w.eventually("goes on", func() bool {
			s := w.status("train")
			return converged(s, n+1) && w.revision().Commit == commit
		})
	}
	require.Empty(t, w.revision().Frozen)
	require.NoError(t, d.stop())
	w.noEventTwice()
	require.NoError(t, w.verifyAudit())
}

// A daemon with a damaged cache takes leadership again after another daemon had it and
// advanced berth/status.
func TestLongDamagedCacheHealsAfterFailover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	dir := t.TempDir()
	d := w.startAt(dir)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, d.stop())
	d = w.startAt(dir) // its mirror has a shallow status branch, as after a new clone
	d.ready()
	require.NoError(t, d.stop())

	spoilCache(t, dir)
	other := w.start()
	path, text = instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("grown", w.running("train", 2))
	require.NoError(t, other.stop())

	w.startAt(dir)
	path, text = instance("train", 3)
	commit := w.put(map[string]string{path: text})
	w.eventually("goes on", func() bool {
		s := w.status("train")
		return converged(s, 4) && w.revision().Commit == commit
	})
	require.Empty(t, w.revision().Frozen)
	w.noEventTwice()
	require.NoError(t, w.verifyAudit())
}
