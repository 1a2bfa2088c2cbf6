package slurm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// A mark that is lost must not take the accounting of every instance with it.
func TestDatabaseIsNotMadeOverAnother(t *testing.T) {
	c := newCluster(t)
	neighbour := c.freshRecord()
	neighbour.Unit.Instance.Key = schema.InstanceKey("t", "p", "two")
	neighbour.Cluster = clusterName(neighbour.Unit.Instance.Key)
	records := profile.Stack{Cluster: neighbour.Cluster}.Record()
	delete(c.ctl.files, profile.DatabaseInstalled)
	c.ctl.files[profile.DatabaseData+"/ibdata1"] = []byte("accounting")

	// Its server runs.
	require.ErrorContains(t, c.on(t).database(t.Context()), profile.DatabaseInstalled)
	// Another instance is complete.
	c.ctl.services[profile.MariaDB] = false
	c.ctl.files[records] = neighbour.encode()
	require.ErrorContains(t, c.on(t).database(t.Context()), "two")
	require.Equal(t, "accounting", string(c.ctl.files[profile.DatabaseData+"/ibdata1"]))
	require.False(t, c.ctl.ran("mariadb-install-db"))
	// An attempt that was cut off is begun again.
	delete(c.ctl.files, records)
	require.NoError(t, c.on(t).database(t.Context()))
	require.True(t, c.ctl.ran("mariadb-install-db"))
	require.Contains(t, c.ctl.files, profile.DatabaseInstalled)
}
