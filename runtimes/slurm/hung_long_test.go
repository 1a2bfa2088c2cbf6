//go:build long

package slurm_test

import "testing"

// A slurmd that hangs is restarted once, and not again within ten minutes. slurmctld waits
// 60 s for a node before it takes it for down.
func TestLongHungSlurmdIsRestartedOnce(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	u := c.hangs(t)
	c.restartedOnce(t, u, u.Members[1].Node, "slurmd")
}

// A mariadbd that hangs, below slurmdbd, is restarted as a munged is.
func TestLongHungDatabaseIsRestartedOnce(t *testing.T) {
	t.Parallel()
	belowSlurmctldIsRestartedOnce(t, "mariadbd")
}
