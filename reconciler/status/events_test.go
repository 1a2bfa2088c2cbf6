package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// The event about lost jobs names the first hundred with each user once, and has the same id when it is published again.
func TestLostJobsAreAnEvent(t *testing.T) {
	s := &plan.Status{Key: schema.InstanceKey("physics", "lhc", "train"), Phase: plan.PhaseRunning}
	s.App = "slurm"
	var jobs []plan.LostJob
	for id := 7; id < 7+103; id++ {
		jobs = append(jobs, plan.LostJob{ID: id, User: []string{"anna", "bob", ""}[id%3]})
	}
	e := LostJobsEvent(s, jobs, time.Unix(0, 0))
	require.Equal(t, e.EventID, LostJobsEvent(s, jobs, time.Unix(9, 0)).EventID)
	require.NotEqual(t, e.EventID, LostJobsEvent(s, jobs[1:], time.Unix(0, 0)).EventID)
	require.Equal(t, string(event.JobsLost), e.EventType)
	var p event.LostJobs
	require.NoError(t, json.Unmarshal(e.Payload, &p))
	require.True(t, strings.HasPrefix(p.Jobs, "7, 8, 9, ") && strings.HasSuffix(p.Jobs, "106, and 3 more"), p.Jobs)
	require.Equal(t, "bob, anna", p.Users)
	require.Equal(t, []string{"physics", "physics.lhc", "train", ""}, []string{p.OrgID, p.ProjectID, p.AppInstanceID, p.SharedRuntimeID})
}
