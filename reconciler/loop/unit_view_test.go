package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// The document of an operation goes with that of its unit, and its hold does not: nothing deletes a held unit.
func TestHoldStaysWithoutTheDocumentOfItsUnit(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	s := &plan.Status{Key: schema.InstanceKey("physics", "lab", "train"), Operations: []plan.Operation{
		{Name: "keep", ID: "keep", Phase: plan.OperationRunning, Spec: schema.MemberOperationSpec{Operation: schema.OpHold, Reason: "looked at"}},
		{Name: "move", ID: "move", Phase: plan.OperationRunning, Spec: schema.MemberOperationSpec{Operation: schema.OpReplace}},
	}}
	v := newView(&reconciler.State{Effective: &schema.Effective{}}, s, now)
	require.Len(t, v.operations, 1)
	require.Equal(t, "the operation hold keep keeps the unit as it is (looked at); the operation release ends that", v.pauseReason())
	v.paused = v.pauseReason()
	require.Equal(t, v.paused, v.pausedText())
}

// The grace is for a worker that had joined, of a unit that is to run.
func TestGraceIsForWorkersThatHadJoined(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	key := schema.InstanceKey("physics", "lab", "train")
	for name, c := range map[string]struct {
		was     plan.State
		since   time.Time
		stopped bool
		want    plan.State
	}{
		"never joined":                    {was: "", want: plan.Partial},
		"joined incompletely":             {was: plan.Partial, want: plan.Partial},
		"ran":                             {was: plan.Running, want: plan.Missing},
		"missing":                         {was: plan.Missing, since: now.Add(-59 * time.Second), want: plan.Missing},
		"missing for the grace":           {was: plan.Missing, since: now.Add(-time.Minute), want: plan.Partial},
		"missing since a later time":      {was: plan.Missing, since: now.Add(time.Hour), want: plan.Missing},
		"of a unit that is to be stopped": {was: plan.Missing, since: now.Add(-time.Hour), stopped: true, want: plan.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			want := &schema.EffectiveUnit{Key: key, Roles: []schema.EffectiveRole{{Name: "worker"}}}
			if c.stopped {
				want.DesiredState = schema.DesiredStopped
			}
			member := plan.Member{Name: "worker-0", Role: "worker", Node: "n1"}
			was := []plan.MemberStatus{{Member: member, State: c.was, MissingSince: c.since}}
			v := unitView{want: want, prev: &plan.Status{Key: key, Members: was}}
			v.at = now
			v.observed = plan.Observed{Key: key, Unit: &plan.Unit{Members: []plan.Member{member}},
				Members: []plan.MemberState{{Name: "worker-0", Node: "n1", State: plan.Missing}}}
			v.noteMissing()
			require.Equal(t, c.want, v.observed.Members[0].State)
			require.False(t, v.missing["worker-0"].After(now))
		})
	}
}
