//go:build long

package slurm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// A cluster may have no workers for a while.
func TestLongClusterWithoutWorkers(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition)
	id, err := c.trySubmit(t, u, alice, "true\n")
	require.NoError(t, err)
	c.await(t, u, id, slurmtest.Pending)
	one := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0)
	c.carry(t, one, false)
	c.await(t, one, id, slurmtest.Completed)
	c.carry(t, u, false)
	require.Empty(t, c.tool(t, u, "sinfo -h -N"))
}
