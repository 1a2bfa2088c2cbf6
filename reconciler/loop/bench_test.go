package loop_test

import (
	"fmt"
	"testing"
	"time"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// BenchmarkCommitThatChangesNothing measures the time from the push of a commit
// without any instance change to its revision on berth/status. Such a commit causes no
// runtime call.
func BenchmarkCommitThatChangesNothing(b *testing.B) {
	w := newWorld(b)
	files := map[string]string{}
	for i := range 3 {
		path, text := instance(fmt.Sprintf("i%d", i), 1)
		files[path] = text
	}
	w.put(files)
	// Only the timer would observe again, after an hour.
	d := w.start(func(o *loop.Options) { o.Settings.Interval = time.Hour })
	for i := range 3 {
		w.eventually("running", w.phase(fmt.Sprintf("i%d", i), plan.PhaseRunning))
	}
	time.Sleep(300 * time.Millisecond)
	calls, commits := w.world.TotalCalls(), 0
	for b.Loop() {
		commits++
		commit := w.put(map[string]string{"README.md": fmt.Sprintf("nothing of Berth's: %d\n", commits)})
		w.eventually("decided", func() bool { return w.revision().Commit == commit })
	}
	time.Sleep(300 * time.Millisecond) // allows for late calls
	b.ReportMetric(float64(w.world.TotalCalls()-calls)/float64(commits), "runtime-calls/commit")
	if err := d.stop(); err != nil {
		b.Fatal(err)
	}
}
