package slurm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/schema"
)

// A removal cancels or moves the tasks of a job array that wait, and leaves those that run:
// the tasks that wait have the id of the array, with which scancel ends all of them.
func TestRemovalKeepsRunningTasksOfAnArray(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, twoPartitions, 0)
	array := func(partitions string) string {
		id, err := c.trySubmit(t, u, alice, "#SBATCH --array=1-4\nsleep 600\n", "--partition="+partitions, "--time=20", "--gres=gpu:1")
		require.NoError(t, err)
		return id
	}
	tasks := func(id, state string) []string {
		return strings.Fields(c.tool(t, u, "squeue --array -h -o %i,%P -t "+state+" -j "+id))
	}
	id := array("main,quick")
	eventually(t, "two tasks run", func() (bool, string) {
		out := c.tool(t, u, "squeue -h --array -o '%i %T %P %r'")
		return len(tasks(id, "running")) == 2 && len(tasks(id, "pending")) == 2, out
	})
	running := tasks(id, "running")
	u = c.unit(onePartition, []schema.UnixUser{alice}, nil, 0) // quick goes
	c.carry(t, u, false)
	require.Equal(t, running, tasks(id, "running"))
	require.Equal(t, []string{id + "_3,main", id + "_4,main"}, tasks(id, "pending"))

	service := fmt.Sprintf(`{"reservations":[{"name":"service","start":%q,"duration_minutes":60}],`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	u = c.unit(strings.Replace(onePartition, "{", service, 1), nil, nil, 0) // and alice
	c.carryUntilWaiting(t, u)
	require.Equal(t, running, tasks(id, "running"))
	require.Empty(t, tasks(id, "pending"))

	// Nothing else waits with it.
	c.tool(t, u, "scontrol delete reservationname=berth-service")
	require.ErrorIs(t, c.apply(t, c.plan(t, u, false)), runtimes.ErrWaiting)
	require.Contains(t, c.tool(t, u, "scontrol -o show reservations"), "ReservationName=berth-service ")

	// Then her jobs are cancelled at once. The last task to start has the id of the array.
	u.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	c.removed(t, u)
	require.Empty(t, strings.TrimSpace(c.tool(t, u, "squeue -h -t running")))
}
