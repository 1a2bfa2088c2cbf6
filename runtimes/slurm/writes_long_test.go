//go:build long

package slurm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm"
	"berth/schema"
)

// A reconcile without a change writes nothing to a host.
func TestLongReconcileWithoutAChangeWritesNothing(t *testing.T) {
	t.Parallel()
	c, _ := newCompany(t, onePartition, 0, 1)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carry(t, u, false)
	rec := &recorder{inner: c.hosts}
	rec.reset()
	c.rt = slurm.New(slurm.Options{Hosts: rec, Timeouts: generous})
	for range 3 {
		p := c.plan(t, u, false)
		require.True(t, p.Empty(), "%+v", p.Actions)
	}
	require.Zero(t, rec.effects())
}
