package loop_test

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"berth/reconciler"
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
	d.does(nobody)
	d.does(nobody)
	calls, commits := w.world.TotalCalls(), 0
	for b.Loop() {
		commits++
		commit := w.put(map[string]string{"README.md": fmt.Sprintf("nothing of Berth's: %d\n", commits)})
		w.eventually("decided", func() bool { return w.revision().Commit == commit })
	}
	d.does(nobody) // late calls came before
	d.does(nobody)
	b.ReportMetric(float64(w.world.TotalCalls()-calls)/float64(commits), "runtime-calls/commit")
	if err := d.stop(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMemberOperation measures the time from the merge of a MemberOperation, of which the webhook tells,
// to its first effect. Before it, berth/in-force and berth/status are pushed; the peer is two pushes by git.
func BenchmarkMemberOperation(b *testing.B) {
	const rounds = 11
	for b.Loop() {
		w := newWorld(b)
		d := w.start(func(o *loop.Options) { o.Forge, o.Settings.Flush = nil, time.Second })
		w.trains(1)
		clone := b.TempDir()
		run := func(args ...string) {
			cmd := exec.Command("git", append([]string{"-C", clone, "-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
		run("clone", "-q", w.git.URL, ".")
		var effects, pushes []time.Duration
		for n := range rounds {
			verb := []string{"cordon", "uncordon"}[n%2]
			before, name := w.world.Calls(verb), fmt.Sprint("n", n)
			began := time.Now()
			w.ask([3]string{name, verb, "worker-0"})
			d.Enqueue(reconciler.Item{Task: reconciler.TaskEstate}) // as the webhook does
			w.eventually("the effect", func() bool { return w.world.Calls(verb) > before })
			effects = append(effects, time.Since(began))
			w.operated(name, plan.OperationDone)

			began = time.Now()
			for k := range 2 {
				run("commit", "-q", "--allow-empty", "-m", "a push")
				run("push", "-q", "origin", fmt.Sprintf("HEAD:refs/heads/peer-%d-%d", n, k))
			}
			pushes = append(pushes, time.Since(began))
		}
		slices.Sort(effects)
		slices.Sort(pushes)
		b.ReportMetric(float64(effects[rounds-1].Milliseconds()), "slowest-ms")
		b.ReportMetric(float64(effects[rounds/2].Milliseconds()), "effect-ms")
		b.ReportMetric(float64(pushes[rounds/2].Milliseconds()), "git-push-ms")
		if err := d.stop(); err != nil {
			b.Fatal(err)
		}
	}
}
