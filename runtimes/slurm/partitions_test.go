package slurm

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// A partition that a person made goes by itself, so it waits for its jobs whatever on_jobs says: no plan named them.
func TestPartitionMadeByHandWaitsForItsJobs(t *testing.T) {
	c := newCluster(t)
	c.unit.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 60}
	c.partitions, c.queue = append(c.partitions, "mine"), []string{"7 R 2001 mine"}
	require.Contains(t, fmt.Sprint(c.observe(t).Drift), "partition mine was made by hand")
	for range 2 {
		require.ErrorIs(t, c.apply(t, plan.Configure, c.unit), runtimes.ErrWaiting)
		c.now = c.now.Add(time.Hour)
	}
	require.False(t, c.ctl.ran("scancel"))
	c.queue = nil
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.Equal(t, []string{"main"}, c.partitions)
}
