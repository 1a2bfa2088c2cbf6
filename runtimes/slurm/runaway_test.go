package slurm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// A job that is active again when the list is read is not ended.
func TestActiveJobIsNotEnded(t *testing.T) {
	c := newCluster(t)
	config := "NEXT_JOB_ID = 9\nHASH_VAL = Match"
	c.hash = config
	inner := c.ctl.answer
	c.ctl.answer = func(run *runtimes.Run) (string, int) {
		if run.Program == "sacctmgr" && len(run.Args) > 3 && run.Args[0] != "-i" {
			require.Equal(t, "n\n", string(run.Stdin))
			return "NOTE: Runaway jobs are jobs that …\nID\n7\n\nWould you like to fix these runaway jobs?\n", 0
		}
		if run.Program == "sacctmgr" && slices.Contains(run.Args, "runaway") {
			return "", 0
		}
		if run.Program == "sacct" {
			return runsHeading, 0
		}
		if run.Program == "squeue" && !slices.Contains(run.Args, profile.SnapshotFormat) {
			return "JOBID ST UID PARTITION\n36_2 R 2001 main\n", 0 // a task of an array, whose own id is 7
		}
		return inner(run)
	}
	c.queue = []string{"7 R 2001 main"}
	require.ErrorIs(t, jobRecords{c.on(t).control}.endRunaways(t.Context()), runtimes.ErrWaiting)
	require.False(t, c.ctl.ran("sacctmgr -i", "runaway"))

	c.queue, c.hash = nil, "NEXT_JOB_ID = 7\nHASH_VAL = Match"
	require.ErrorIs(t, jobRecords{c.on(t).control}.endRunaways(t.Context()), runtimes.ErrWaiting)
	require.False(t, c.ctl.ran("sacctmgr -i", "runaway"))
	require.Equal(t, 8, c.record(t).FirstJob)

	c.hash = config
	require.NoError(t, jobRecords{c.on(t).control}.endRunaways(t.Context()))
	require.True(t, c.ctl.ran("sacctmgr -i", "runaway"))
}

// Only the newest record of an id is marked as lost, and only while it has no end: slurmctld may have given the id again.
func TestNewestActiveRunIsMarked(t *testing.T) {
	runs := []cli.Run{{ID: 7, Submitted: 10}, {ID: 8, Submitted: 10}, {ID: 8, Submitted: 20, Ended: 30}, {ID: 9, Submitted: 20},
		{ID: 9, Submitted: 10, Ended: 15}}
	require.Equal(t, []int{7, 9}, newestActive([]int{7, 8, 9, 10}, runs))
}
