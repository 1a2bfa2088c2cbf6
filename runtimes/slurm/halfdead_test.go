package slurm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// onWorker runs a script on the host of a worker.
func (c *company) onWorker(t *testing.T, worker int, script string) string {
	t.Helper()
	out, err := c.lab.Run(t.Context(), c.workers[worker].Key.Name, "sh", "-c", script)
	require.NoError(t, err, out)
	return out
}
