//go:build long

package slurm_test

import "testing"

// 20 kills of slurmctld.
func TestLongQueueAfterKilledSlurmctlds(t *testing.T) {
	t.Parallel()
	queueSurvivesKills(t, 20)
}
