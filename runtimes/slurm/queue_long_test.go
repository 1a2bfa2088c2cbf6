//go:build long

package slurm_test

import (
	"testing"

	"berth/examples/explore"
)

// 20 kills of slurmctld.
func TestLongQueueAfterKilledSlurmctlds(t *testing.T) {
	t.Parallel()
	queueSurvivesKills(t, explore.Count(2, 20))
}
