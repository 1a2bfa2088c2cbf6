package slurm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
)

// If the control host is lost during an observation, nothing is known: slurmctld must
// not be reported dead, or the loop would start it. If only its programs time out,
// slurmctld does not answer.
func TestLostControlHostIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		presence plan.Presence
		state    plan.State
	}{
		"lost":      {fmt.Errorf("host ctl: %w: i/o timeout", runtimes.ErrUnreachable), plan.Unknown, ""},
		"no answer": {&runtimes.OpError{Host: "ctl", Op: "run scontrol ping", Code: "timeout", Message: "took longer than 5s"}, plan.Present, plan.Hung},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.ctl.before = func(op runtimes.Op) error {
				if op.Run != nil && op.Run.Program == "scontrol" {
					return test.err
				}
				return nil
			}
			obs := c.rt.Observe(t.Context(), runtimes.Scope{Key: c.unit.Instance.Key, Members: c.unit.Members, Instance: &c.unit.Instance})
			require.Equal(t, test.presence, obs.Presence)
			if test.presence == plan.Unknown {
				require.Contains(t, obs.Reason, "host ctl")
				require.Empty(t, obs.Members)
				return
			}
			require.Equal(t, test.state, obs.Members[0].State)
			require.True(t, strings.Contains(obs.Members[0].Detail, "does not answer"), obs.Members[0].Detail)
		})
	}
}
