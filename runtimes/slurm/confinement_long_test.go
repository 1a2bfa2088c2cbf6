//go:build long

package slurm_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// A version that accepts hosts without control groups runs jobs there, unconfined.
func TestLongUnconfinedJobsAreAccepted(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	worker := c.workers[0].Key.Name
	_, err := c.lab.Run(t.Context(), worker, "umount", "/sys/fs/cgroup/memory")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := c.lab.Run(context.Background(), worker, "mount", "-t", "cgroup", "-o", "memory", "cgroup", "/sys/fs/cgroup/memory")
		require.NoError(t, err)
	})
	u := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)), "host "+worker+" cannot confine jobs")

	u = c.unit(strings.Replace(onePartition, `"identity"`, `"confinement":"none","identity"`, 1), []schema.UnixUser{alice}, nil, 0)
	p := c.plan(t, u, false)
	require.Contains(t, fmt.Sprint(p.Actions[0].Impact.Notes), "jobs are not confined")
	c.carry(t, u, false)
	_, out := c.output(t, u, slurmtest.Completed, "cat /proc/self/cgroup")
	require.NotContains(t, out, "job_")
}
