package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/usage"
)

// parts returns job, day, CPU seconds and the corrected day of each line of usage on the branch, sorted,
// and the closings.
func (w *world) parts() (records, closings []string) {
	w.t.Helper()
	files := w.files()
	for path, text := range files {
		if strings.HasPrefix(path, usage.ClosedDir) {
			c, err := usage.DecodeClosing([]byte(text))
			require.NoError(w.t, err)
			closings = append(closings, fmt.Sprint(c.Day, " ", c.Records, " ", c.CPUs, " ", c.Accounted))
			require.Equal(w.t, []any{"SharedRuntime physics/commons", "physics", "batch", "dear", []string{"physics.lab"}},
				[]any{c.Unit, c.OwnerID, c.AppSlug, c.BillingPolicyRef, c.Projects})
			require.Equal(w.t, &usage.Unused{IdleCPUs: 8*86400 - c.Accounted, IdleGPUs: 2 * 86400}, c.Unused)
		} else if strings.HasPrefix(path, "usage/") {
			for line := range strings.Lines(text) {
				var r usage.Record
				require.NoError(w.t, json.Unmarshal([]byte(line), &r))
				require.Equal(w.t, "usage/"+r.Day+"/physics/"+r.Cluster+".jsonl", path)
				if r.ProjectID != "" {
					require.Equal(w.t, "cheap", r.BillingPolicyRef)
				}
				records = append(records, strings.TrimSpace(fmt.Sprint(r.JobID, " ", r.Day, " ", r.CPUSeconds, " ", r.Corrects)))
			}
		}
	}
	slices.Sort(records)
	slices.Sort(closings)
	return records, closings
}

// firstDay is the day on which the units of these tests begin.
var firstDay = time.Date(2026, 10, 30, 0, 0, 0, 0, time.UTC)

// testClock is the clock of Berth. It goes on from where it was set.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *testClock) set(at time.Time) { c.ahead.Store(int64(time.Until(at))) }

// meter is a runtime that counts the readings of what jobs used.
type meter struct {
	*memory.Runtime
	asked *atomic.Int64
}

func (m meter) ReadUsage(
	ctx context.Context, s runtimes.Scope, stamp runtimes.Stamp, r runtimes.UsageRange,
) (runtimes.UsageReading, error) {
	m.asked.Add(1)
	return m.Runtime.ReadUsage(ctx, s, stamp, r)
}

// What jobs used is on the branch while their unit runs, each part once, also for a daemon that
// begins with an empty disk. A day closes once accounting has added it up, and not while accounting
// does not answer; what came late or changed by then is in its records. What a deletion takes was recorded
// before, and is not recorded again (requirement A13).
func TestUsageIsCollectedWhileAUnitRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	day := firstDay
	var clock testClock
	clock.set(day)
	quick := func(o *loop.Options) { o.Settings.Usage, o.Now = 20*time.Millisecond, clock.now }
	meter := meter{memory.New(w.world), &atomic.Int64{}}
	d := w.start(quick, func(o *loop.Options) { o.Runtimes = map[string]runtimes.Runtime{"bare_metal": meter} })
	w.put(operatorFiles(""))
	w.put(map[string]string{commonsPath: commonsText("  billing_policy_ref: dear\n"), attachmentPath: attachmentText(""),
		viewPath: viewText("tenant")})
	w.eventually("attached", func() bool { return w.attachment(commons) == "attached Attached" })
	cluster := memory.New(w.world).Cluster(commons)
	job := func(id int, from, to time.Duration) usage.Job {
		at := day.Add(from)
		return usage.Job{Cluster: cluster, JobID: id, Submitted: at, Started: at, Ended: day.Add(to), State: "COMPLETED",
			User: "eve", ProjectID: "physics.lab", Resources: usage.Resources{CPUs: 2}}
	}
	first := job(1, time.Hour, 2*time.Hour)
	require.NoError(t, w.world.SetUsage(commons, first))
	asked := meter.asked.Load()
	w.eventually("accounting asked again", func() bool { return meter.asked.Load() >= asked+3 })
	records, closings := w.parts()
	require.Empty(t, records, "accounting does not answer")
	require.Empty(t, closings)

	set := func(hours time.Duration) {
		clock.set(day.Add(hours * time.Hour))
		require.NoError(t, w.world.SetClock(commons, day.Add(hours*time.Hour)))
	}
	set(3)
	awaits := func(wantRecords, wantClosings string) {
		t.Helper()
		w.eventually(wantRecords+wantClosings, func() bool {
			records, closings := w.parts()
			return strings.Join(records, ", ") == wantRecords && strings.Join(closings, ", ") == wantClosings
		})
	}
	awaits("1 2026-10-30 7200", "")
	d.stop()
	d = w.start(quick) // with an empty disk
	second := job(2, 4*time.Hour, 5*time.Hour)
	require.NoError(t, w.world.SetUsage(commons, first, second))
	set(6)
	awaits("1 2026-10-30 7200, 2 2026-10-30 7200", "")

	// Midnight: the end of the first one was wrong, another one was not known, and a third one runs on.
	first.Ended = first.Ended.Add(-30 * time.Minute)
	late, over := job(3, time.Hour, 90*time.Minute), job(4, 23*time.Hour, 24*time.Hour)
	over.State = ""
	require.NoError(t, w.world.SetUsage(commons, first, second, late, over))
	set(25)
	dayOver := "1 2026-10-30 3600, 2 2026-10-30 7200, 3 2026-10-30 3600, 4 2026-10-30 7200"
	awaits(dayOver, "2026-10-30 4 21600 21600")

	// The next day, after an outage of three days.
	d.stop()
	rest := over
	rest.Started, rest.Ended, rest.State = day.Add(24*time.Hour), day.Add(26*time.Hour), "COMPLETED"
	require.NoError(t, w.world.SetUsage(commons, first, second, late, over, rest))
	set(75)
	w.start(quick)
	all := dayOver + ", 4 2026-10-31 14400"
	awaits(all, "2026-10-30 4 21600 21600, 2026-10-31 1 14400 14400, 2026-11-01 0 0 0")

	w.put(nil, viewPath, attachmentPath)
	w.eventually("attachment gone", func() bool { return w.attachment(commons) == "" })
	w.put(nil, commonsPath)
	w.eventually("runtime gone", func() bool { return w.unit(commons) == nil })
	records, _ = w.parts()
	require.Equal(t, all, strings.Join(records, ", "))
}

// usageOfCommons starts a daemon with the shared runtime commons, and returns its accounting and what
// awaits records and closings as parts returns them.
func usageOfCommons(
	t *testing.T, tunes ...tune,
) (w *world, set func(at time.Time, jobs ...usage.Job), awaits func(records, closings string)) {
	w = newWorld(t)
	var clock testClock
	clock.set(firstDay)
	w.start(append([]tune{func(o *loop.Options) { o.Settings.Usage, o.Now = 20*time.Millisecond, clock.now }}, tunes...)...)
	w.put(operatorFiles(""))
	w.put(map[string]string{commonsPath: commonsText("  billing_policy_ref: dear\n"), attachmentPath: attachmentText(""),
		viewPath: viewText("tenant")})
	w.eventually("attached", func() bool { return w.attachment(commons) == "attached Attached" })
	set = func(at time.Time, jobs ...usage.Job) {
		clock.set(at)
		require.NoError(t, w.world.SetUsage(commons, jobs...))
		require.NoError(t, w.world.SetClock(commons, at))
	}
	awaits = func(wantRecords, wantClosings string) {
		t.Helper()
		w.eventually(wantRecords+wantClosings, func() bool {
			records, closings := w.parts()
			return strings.Join(records, ", ") == wantRecords && strings.Join(closings, ", ") == wantClosings
		})
	}
	return w, set, awaits
}

// usedBy returns a job with one CPU in hours after a day.
func usedBy(id int, day time.Time, from, to time.Duration) usage.Job {
	return usage.Job{Cluster: memory.New(nil).Cluster(commons), JobID: id, Submitted: day.Add(from), Started: day.Add(from),
		Ended: day.Add(to), State: "COMPLETED", User: "eve", ProjectID: "physics.lab", Resources: usage.Resources{CPUs: 1}}
}

// A job that the runtime had lost, and that ended before it was recorded, loses its use of open days, and is
// corrected for closed ones: once, on the first open day. A job that accounting has no longer keeps its records.
func TestUsageOfALostJobIsCorrected(t *testing.T) {
	t.Parallel()
	_, set, awaits := usageOfCommons(t)
	day := firstDay
	next := day.AddDate(0, 0, 1)
	first, second := usedBy(1, day, 23*time.Hour, 24*time.Hour), usedBy(1, next, 0, time.Hour)
	second.Submitted, first.State = first.Submitted, ""
	purged := usedBy(2, next, 0, 2*time.Hour)
	set(day.Add(26*time.Hour), first, second, purged)
	awaits("1 2026-10-30 3600, 1 2026-10-31 3600, 2 2026-10-31 7200", "2026-10-30 1 3600 3600")
	first.Ended, first.State = first.Ended.Add(-30*time.Minute), "FAILED" // before the day that is open
	set(day.Add(30*time.Hour), first)
	const corrected = "1 2026-10-30 3600, 1 2026-10-31 -1800 2026-10-30, 2 2026-10-31 7200"
	awaits(corrected, "2026-10-30 1 3600 3600")
	set(day.Add(49*time.Hour), first)
	awaits(corrected, "2026-10-30 1 3600 3600, 2026-10-31 1 7200 0")
	set(day.Add(73*time.Hour), first)
	awaits(corrected, "2026-10-30 1 3600 3600, 2026-10-31 1 7200 0, 2026-11-01 0 0 0")
}

// A removal records likewise what its last reading says of closed days, and keeps what jobs of other accounts used.
func TestRemovalCorrectsClosedDays(t *testing.T) {
	t.Parallel()
	w, set, awaits := usageOfCommons(t)
	first := usedBy(1, firstDay, 23*time.Hour, 24*time.Hour)
	other := usedBy(2, firstDay.AddDate(0, 0, 1), 0, time.Hour)
	first.State, other.ProjectID = "", ""
	set(firstDay.Add(26*time.Hour), first, other)
	awaits("1 2026-10-30 3600, 2 2026-10-31 3600", "2026-10-30 1 3600 3600")
	require.NoError(t, w.world.SetClock(commons, time.Time{})) // only the removal reads it
	first.Ended, first.State = first.Ended.Add(-30*time.Minute), "FAILED"
	require.NoError(t, w.world.SetUsage(commons, first, other))
	w.put(nil, viewPath)
	w.eventually("detached", func() bool { return len(w.unit(commons).Observed.Unit.Effective.Attachments) == 0 })
	awaits("1 2026-10-30 3600, 1 2026-10-31 -1800 2026-10-30, 2 2026-10-31 3600", "2026-10-30 1 3600 3600")
}

// An account of another tenant on a tenant's unit bills nobody else. Without a QueueMap, the partition is the queue.
func TestUsageOfAForeignAccountStaysWithTheTenant(t *testing.T) {
	t.Parallel()
	w, set, _ := usageOfCommons(t)
	j := usedBy(1, firstDay, time.Hour, 2*time.Hour)
	j.ProjectID, j.Place = "biology.genomes", usage.Place{Partition: "main", QoS: "normal"}
	set(firstDay.Add(3*time.Hour), j)
	w.eventually("recorded", func() bool {
		for path, text := range w.files() {
			if strings.HasPrefix(path, "usage/2026") {
				r, err := usage.Decode([]byte(text))
				require.NoError(t, err)
				require.Equal(t, []string{"physics", ""}, []string{r.OrgID, r.ProjectID})
				require.Equal(t, usage.Place{Queue: "main", Partition: "main", QoS: "normal"}, r.Place)
				return true
			}
		}
		return false
	})
}

// A document that moves while its instance runs is held, as what runs has its name. Its usage goes on at the old
// place, with the same id.
func TestUsageOfAHeldMoveGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var clock testClock
	clock.set(firstDay)
	w.start(func(o *loop.Options) { o.Settings.Usage, o.Now = 20*time.Millisecond, clock.now })
	place := func(name string) (string, map[string]string) {
		path, text := instance(name, 1)
		return path, map[string]string{path: strings.Replace(text, "metadata: {name: "+name+"}", "metadata: {name: "+name+", uid: i-9}", 1)}
	}
	key := schema.InstanceKey("physics", "lab", "train")
	day := firstDay
	used := func(hours time.Duration, ids ...int) {
		var jobs []usage.Job
		for _, id := range ids {
			j := usedBy(id, day, time.Hour, time.Duration(1+id)*time.Hour)
			j.Cluster, j.ProjectID = memory.New(nil).Cluster(key), ""
			jobs = append(jobs, j)
		}
		require.NoError(t, w.world.SetUsage(key, jobs...))
		require.NoError(t, w.world.SetClock(key, day.Add(hours*time.Hour)))
	}
	awaits := func(want ...string) {
		t.Helper()
		w.eventually(strings.Join(want, ", "), func() bool {
			var all []string
			for path, text := range w.files() {
				if strings.HasPrefix(path, "usage/2026") {
					for line := range strings.Lines(text) {
						r, err := usage.Decode([]byte(line))
						require.NoError(t, err)
						all = append(all, fmt.Sprint(r.JobID, " ", r.Unit, " ", r.UnitID, " ", r.ProjectID))
					}
				}
			}
			slices.Sort(all)
			return slices.Equal(all, want)
		})
	}
	oldPath, oldFiles := place("train")
	_, newFiles := place("infer")
	w.put(oldFiles)
	w.eventually("running", func() bool { s := w.unit(key); return s != nil && s.Phase == plan.PhaseRunning })
	used(3, 1)
	awaits("1 Instance physics.lab/train i-9 physics.lab")
	w.put(newFiles, oldPath)
	used(5, 1, 2)
	awaits("1 Instance physics.lab/train i-9 physics.lab", "2 Instance physics.lab/train i-9 physics.lab")
}

// A daemon reads the usage until now with its own branch and runtime, for a day that is not over also that of a job that
// runs. Once accounting does not answer, it shows what it wrote.
func TestDaemonReadsUsageUntilNow(t *testing.T) {
	t.Parallel()
	w, set, awaits := usageOfCommons(t)
	ended, running := usedBy(1, firstDay, time.Hour, 2*time.Hour), usedBy(2, firstDay, 2*time.Hour, 0)
	running.Ended, running.State = time.Time{}, ""
	set(firstDay.Add(4*time.Hour), ended, running)
	awaits("1 2026-10-30 3600", "")
	read := func() usage.LiveUsage {
		got, err := w.latest.LiveUsage(t.Context(), commons)
		require.NoError(t, err)
		return got
	}
	days := func(jobs int, hours int64) []usage.DaySum {
		return []usage.DaySum{{Day: "2026-10-30", ProjectID: "physics.lab", Jobs: jobs, Amounts: usage.Amounts{CPUSeconds: hours * 3600}}}
	}
	require.Equal(t, days(2, 3), read().Days)
	require.NoError(t, w.world.SetClock(commons, time.Time{}))
	w.eventually("the daemon knows what it wrote", func() bool {
		tip, _, _ := w.latest.StatusTip()
		return tip == w.git.Tip("berth/status")
	})
	got := read()
	require.Equal(t, days(1, 1), got.Days)
	require.NotEmpty(t, got.Reason)
	require.Equal(t, ended.Ended, got.ObservedAt)
	_, err := w.latest.LiveUsage(t.Context(), schema.InstanceKey("physics", "lab", "none"))
	require.Error(t, err)
}
