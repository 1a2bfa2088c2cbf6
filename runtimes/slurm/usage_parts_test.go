package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/schema/usage"
)

// More runs than a host prints at once come in parts, each run once, also one that two parts have.
func TestUsageComesInParts(t *testing.T) {
	c := newCluster(t)
	ends := []int64{1600000000, 1600000005, 1650000000, 1795000000}
	calls := 0
	host := c.hosts.host("ctl")
	host.before = func(op runtimes.Op) error {
		if op.Run != nil && op.Run.Program == "sacct" {
			calls++
			if from, to := window(t, op.Run.Args); between(ends, from, to) > 1 {
				return &runtimes.OpError{Host: "ctl", Op: "run sacct", Code: "output", Message: "printed more than 8 MiB"}
			}
		}
		return nil
	}
	host.answer = func(run *runtimes.Run) (string, int) {
		if run.Program != "sacct" {
			return noneEnded(run)
		}
		from, to := window(t, run.Args)
		out := runsHeading
		for i, end := range ends {
			if end >= from && end <= to {
				out += fmt.Sprintf("c|%d|%d|%d|%d|COMPLETED|physics.lhc|eve|cpu=1,mem=2M|30|w1|main|normal\n", i+1, end-60, end-30, end)
			}
		}
		return out, 0
	}
	ended, lacks, err := jobRecords{c.on(t).control}.lastUsage(t.Context(), "physics.lhc")
	require.NoError(t, err)
	require.Empty(t, lacks)
	require.Len(t, ended, len(ends))
	require.Less(t, calls, 200)
}

// An unreadable run delays the usage of no other one.
func TestUnreadRunHoldsUpNoOther(t *testing.T) {
	c := newCluster(t)
	c.hosts.host("ctl").answer = func(run *runtimes.Run) (string, int) {
		switch run.Program {
		case "sacct":
			return runsHeading + "c|1|1793527000|1793527010|soon|COMPLETED|physics.lhc|eve|cpu=1|30|w1|main|normal\n" +
				"c|2|1793527000|1793527010|1793527040|COMPLETED|physics.lhc|eve|cpu=1,mem=2M|30|w1|main|normal\n", 0
		case "squeue":
			return endedHeading + "1|1793527040|w1|\n2|1793527040|w1|\n", 0
		}
		return noneEnded(run)
	}
	ended, lacks, err := jobRecords{c.on(t).control}.lastUsage(t.Context(), "physics.lhc")
	require.NoError(t, err)
	require.Empty(t, lacks)
	require.Len(t, ended, 1)
	require.Equal(t, 2, ended[0].JobID)
}

const (
	runsHeading  = "Cluster|JobIDRaw|Submit|Start|End|State|Account|User|AllocTRES|ElapsedRaw|NodeList|Partition|QOS\n"
	endedHeading = "JOBID|END_TIME|NODELIST|\n"
)

// noneEnded answers of a slurmctld whose messages have all arrived and that knows no ended job.
func noneEnded(run *runtimes.Run) (string, int) {
	return map[string]string{"sdiag": "sdiag output at Sun Nov  1 10:00:00 2026 (1793527200)\nDBD Agent queue size: 0\n",
		"squeue": endedHeading}[run.Program], 0
}

// slurmctld sends the end of a short job before its start, and until then sacct does not list it. Its usage is
// awaited, where only the messages that slurmctld counts would say that accounting has all.
func TestUsageOfAJobWhoseStartComesLate(t *testing.T) {
	c := newCluster(t)
	// A run of the same id.
	const earlier = "c|7|1793526080|1793526090|1793526100|COMPLETED|physics.lhc|eve|cpu=1,mem=2M|10|gpu-1|main|normal\n"
	asked := 0
	c.hosts.host("ctl").answer = func(run *runtimes.Run) (string, int) {
		switch run.Program {
		case "squeue":
			return endedHeading + "7|1793527100|gpu-1|\n8|1793527000||\n", 0 // 8 never ran
		case "sacct":
			if asked++; asked > 2 {
				return runsHeading + earlier +
					"c|7|1793527080|1793527090|1793527100|COMPLETED|physics.lhc|eve|cpu=1,mem=2M|10|gpu-1|main|normal\n", 0
			}
			return runsHeading + earlier, 0
		}
		return noneEnded(run)
	}
	read := func(since int64) (runtimes.UsageReading, error) {
		return jobRecords{c.on(t).control}.readUsage(t.Context(), runtimes.UsageRange{Since: time.Unix(since, 0)})
	}
	_, err := read(1793527050)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "accounting lacks the end of job 7")
	reading, err := read(1793527101)
	require.NoError(t, err, "the job ended before, and the last reading has it")
	require.LessOrEqual(t, len(reading.Jobs), 1)

	asked = 0
	var kept []usage.Job
	a := jobRecords{c.on(t).control}
	a.keepUsage = func(_ context.Context, jobs []usage.Job) error {
		kept = append(kept, jobs...)
		return nil
	}
	require.NoError(t, a.recordUsage(t.Context(), "physics.lhc"))
	require.Len(t, kept, 2)
	require.Equal(t, []int64{7, 7}, []int64{int64(kept[0].JobID), int64(kept[1].JobID)})
}

// What a run that has not ended used today counts until the last second of slurmctld that has passed, less its ended
// suspensions, and only where it is asked for. sacct counts it to the end of the time that it is asked for, and to its
// own time where that end has not passed.
func TestUsageUntilNow(t *testing.T) {
	c := newCluster(t)
	const now, midnight = 1793527200, 1793491200
	var ends []int64
	c.hosts.host("ctl").answer = func(run *runtimes.Run) (string, int) {
		if run.Program != "sacct" {
			return noneEnded(run)
		}
		from, to := window(t, run.Args)
		line := func(id int, start, elapsed int64) string {
			return fmt.Sprintf("c|%d|%d|%d|Unknown|RUNNING|physics.lhc|eve|cpu=1,mem=2M|%d|w1|main|normal\n", id, midnight-7200, start, elapsed)
		}
		if !slices.Contains(run.Args, "--truncate") {
			return runsHeading + line(1, midnight-3600, 30000) + line(2, now+5, 1), 0
		}
		ends = append(ends, to)
		return runsHeading + line(1, from, to-max(from, midnight-3600)-600), 0 // 10 minutes suspended a day
	}
	read := func(toNow bool) (all []string) {
		reading, err := jobRecords{c.on(t).control}.readUsage(t.Context(),
			runtimes.UsageRange{Since: time.Unix(midnight-86400, 0), ToNow: toNow})
		require.NoError(t, err)
		for _, j := range reading.Jobs {
			all = append(all, fmt.Sprint(j.JobID, " ", j.StartDay(), " ", j.Held(), " ", j.Elapsed(), j.State))
		}
		return all
	}
	require.Equal(t, []string{"1 2026-10-31 3600 3000"}, read(false))
	require.Equal(t, []int64{midnight}, ends)
	ends = nil
	require.Equal(t, []string{"1 2026-10-31 3600 3000", "1 2026-11-01 35999 35399"}, read(true))
	require.Equal(t, []int64{midnight, now - 1}, ends)
}

func window(t *testing.T, args []string) (from, to int64) {
	t.Helper()
	for _, a := range args {
		for option, into := range map[string]*int64{"--starttime=uts": &from, "--endtime=uts": &to} {
			if text, ok := strings.CutPrefix(a, option); ok {
				var err error
				*into, err = strconv.ParseInt(text, 10, 64)
				require.NoError(t, err)
			}
		}
	}
	return from, to
}

func between(all []int64, from, to int64) (n int) {
	for _, at := range all {
		if at >= from && at <= to {
			n++
		}
	}
	return n
}
