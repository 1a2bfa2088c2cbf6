package loop_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/runtimes/memory"
	"berth/schema/usage"
)

// parts returns job, day, CPU seconds and correction of each line of usage on the branch, sorted,
// and the closings.
func (w *world) parts() (records, closings []string) {
	w.t.Helper()
	files, err := w.git.Files(reconciler.BranchStatus)
	require.NoError(w.t, err)
	for path, text := range files {
		if strings.HasPrefix(path, usage.ClosedDir) {
			c, err := usage.DecodeClosing([]byte(text))
			require.NoError(w.t, err)
			closings = append(closings, fmt.Sprint(c.Day, " ", c.Parts, " ", c.CPUs, " ", c.Accounted))
		} else if strings.HasPrefix(path, "usage/") {
			for line := range strings.Lines(text) {
				var r usage.Record
				require.NoError(w.t, json.Unmarshal([]byte(line), &r))
				require.Contains(w.t, path, "/"+r.Day()+"/physics/")
				records = append(records, fmt.Sprint(r.JobID, " ", r.Day(), " ", r.Elapsed()*int64(r.CPUs), " ", r.Correction))
			}
		}
	}
	slices.Sort(records)
	slices.Sort(closings)
	return records, closings
}

// What jobs used is on the branch while their unit runs, each part once, also for a daemon that
// begins with an empty disk. A day closes once accounting has added it up, and not while accounting
// does not answer; what came late or changed by then is recorded too, as a correction beside the first
// record. What a deletion takes was recorded before, and is not recorded again (requirement A13).
func TestUsageIsCollectedWhileAUnitRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quick := func(o *loop.Options) { o.Settings.Usage = 20 * time.Millisecond }
	d := w.start(quick)
	w.put(operatorFiles(""))
	w.put(map[string]string{commonsPath: commonsText(""), attachmentPath: attachmentText(""), viewPath: viewText("tenant")})
	w.eventually("attached", func() bool { return w.attachment(commons) == "attached Attached" })
	cluster := memory.New(w.world).Cluster(commons)
	day := time.Date(2026, 10, 30, 0, 0, 0, 0, time.UTC)
	job := func(id int, from, to time.Duration) usage.Job {
		at := day.Add(from)
		return usage.Job{Cluster: cluster, JobID: id, Submitted: at, Started: at, Ended: day.Add(to), State: "COMPLETED", User: "eve", ProjectID: "physics.lab", CPUs: 2}
	}
	first := job(1, time.Hour, 2*time.Hour)
	require.NoError(t, w.world.SetUsage(commons, first))
	time.Sleep(100 * time.Millisecond)
	records, closings := w.parts()
	require.Empty(t, records, "accounting does not answer")
	require.Empty(t, closings)

	require.NoError(t, w.world.SetClock(commons, day.Add(3*time.Hour)))
	awaits := func(wantRecords, wantClosings string) {
		t.Helper()
		w.eventually(wantRecords+wantClosings, func() bool {
			records, closings := w.parts()
			return strings.Join(records, ", ") == wantRecords && strings.Join(closings, ", ") == wantClosings
		})
	}
	awaits("1 2026-10-30 7200 0", "")
	d.stop()
	d = w.start(quick) // with an empty disk
	second := job(2, 4*time.Hour, 5*time.Hour)
	require.NoError(t, w.world.SetUsage(commons, first, second))
	require.NoError(t, w.world.SetClock(commons, day.Add(6*time.Hour)))
	awaits("1 2026-10-30 7200 0, 2 2026-10-30 7200 0", "")

	// Midnight: the end of the first one was wrong, another one was not known, and a third one runs on.
	first.Ended = first.Ended.Add(-30 * time.Minute)
	late, over := job(3, time.Hour, 90*time.Minute), job(4, 23*time.Hour, 24*time.Hour)
	over.State = ""
	require.NoError(t, w.world.SetUsage(commons, first, second, late, over))
	require.NoError(t, w.world.SetClock(commons, day.Add(25*time.Hour)))
	dayOver := "1 2026-10-30 3600 1, 1 2026-10-30 7200 0, 2 2026-10-30 7200 0, 3 2026-10-30 3600 0, 4 2026-10-30 7200 0"
	awaits(dayOver, "2026-10-30 4 21600 21600")

	// The next day, after an outage of three days.
	d.stop()
	rest := over
	rest.Started, rest.Ended, rest.State = day.Add(24*time.Hour), day.Add(26*time.Hour), "COMPLETED"
	require.NoError(t, w.world.SetUsage(commons, first, second, late, over, rest))
	require.NoError(t, w.world.SetClock(commons, day.Add(75*time.Hour)))
	w.start(quick)
	all := strings.Replace(dayOver, "4 2026-10-30 7200 0", "4 2026-10-30 7200 0, 4 2026-10-31 14400 0", 1)
	awaits(all, "2026-10-30 4 21600 21600, 2026-10-31 1 14400 14400, 2026-11-01 0 0 0")

	w.put(nil, viewPath, attachmentPath)
	w.eventually("attachment gone", func() bool { return w.attachment(commons) == "" })
	w.put(nil, commonsPath)
	w.eventually("runtime gone", func() bool { return w.unit(commons) == nil })
	records, _ = w.parts()
	require.Equal(t, all, strings.Join(records, ", "))
}
