package status

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// A member that gets another node is an event without the names of nodes, also if it had none in between. A new member is none.
func TestMovedMembersAreAnEvent(t *testing.T) {
	on := func(worker string) *plan.Status {
		s := &plan.Status{Key: schema.InstanceKey("physics", "lhc", "train"), Phase: plan.PhaseRunning}
		s.App, s.Members = "slurm", []plan.MemberStatus{{Member: plan.Member{Name: "controller-0", Node: "ctl"}}}
		if worker != "" {
			s.Members = append(s.Members, plan.MemberStatus{Member: plan.Member{Name: "worker-0", Node: worker}})
		}
		return s
	}
	moved := func(prev, next *plan.Status) []plan.Event {
		return slices.DeleteFunc(unitEvents(prev, next, time.Unix(0, 0)),
			func(e plan.Event) bool { return e.EventType != string(event.MembersMoved) })
	}
	require.Empty(t, moved(nil, on("gpu-1")))
	require.Empty(t, moved(on(""), on("gpu-1")))
	require.Empty(t, moved(on("gpu-1"), on("gpu-1")))
	require.Empty(t, moved(on("gpu-1"), on("")))
	got := moved(on("gpu-1"), on("gpu-2"))
	require.Len(t, got, 1)
	var p event.Moved
	require.NoError(t, json.Unmarshal(got[0].Payload, &p))
	require.Equal(t, "worker-0", p.Members)
	require.NotContains(t, string(got[0].Payload), "gpu-")
	require.Equal(t, got[0].EventID, moved(on("gpu-1"), on("gpu-2"))[0].EventID)

	waits := on("")
	waits.Observed = &plan.Observed{Unit: &plan.Unit{Members: []plan.Member{{Name: "worker-0", Node: "gpu-1"}}}}
	require.Equal(t, got[0].EventID, moved(waits, on("gpu-2"))[0].EventID)
}

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
