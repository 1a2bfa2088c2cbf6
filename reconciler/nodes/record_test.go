package nodes_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/schema"
)

func TestCapacityThatIsMissing(t *testing.T) {
	declared := schema.Capacity{CPUs: 8, MemoryMiB: 32000, DiskGiB: 100, GPUs: []schema.GPU{{Type: "a100", Count: 2}}}
	gpus := func(n int) *int { return &n }
	for _, one := range []struct {
		found nodes.Found
		want  []string
	}{
		{nodes.Found{}, nil}, // nothing is known
		{nodes.Found{CPUs: 16, MemoryMiB: 64000, DiskGiB: 200, GPUs: gpus(4)}, nil},
		{nodes.Found{CPUs: 4, MemoryMiB: 16000, DiskGiB: 50, GPUs: gpus(1)},
			[]string{"4 of 8 CPUs", "16000 of 32000 MiB of memory", "50 of 100 GiB of disk", "1 of 2 GPUs"}},
		{nodes.Found{GPUs: gpus(0), Missing: []string{"/dev/nvidia1"}}, []string{"no device file /dev/nvidia1"}},
	} {
		require.Equal(t, one.want, nodes.Missing(declared, one.found))
		c := nodes.CapacityCondition(declared, one.found)
		require.Equal(t, plan.StatusOf(one.want != nil), c.Status)
	}
	require.Equal(t, "the host has 4 of 8 CPUs; correct spec.capacity or the host",
		nodes.CapacityCondition(declared, nodes.Found{CPUs: 4}).Message)
}

// The condition holds from a minute on, in either direction, and until half of that.
func TestClockThatDiffers(t *testing.T) {
	var was *plan.Condition
	for _, one := range []struct {
		offset time.Duration
		want   string
	}{{0, ""}, {59 * time.Second, ""}, {2 * time.Minute, "the clock of the host is 2m0s ahead of the daemon's"},
		{40 * time.Second, "40s ahead"},
		{29 * time.Second, ""}, {40 * time.Second, ""}, {-time.Hour, "1h0m0s behind the daemon's"}} {
		c := nodes.ClockCondition(was, nodes.Measured{ClockOffset: one.offset.Milliseconds()})
		require.Equal(t, plan.StatusOf(one.want != ""), c.Status, one.offset)
		require.Contains(t, c.Message, one.want)
		was = &c
	}
}

// What berth/status has of a node is the state that a new daemon begins with.
func TestStateIsRestoredFromItsStatus(t *testing.T) {
	require.Equal(t, nodes.Status{}, nodes.Restore(nil, nodes.Record{}))
	broken := &plan.ThingStatus{Phase: "broken", Detail: json.RawMessage("[")}
	require.Equal(t, nodes.Status{}, nodes.Restore(broken, nodes.ReadRecord(broken)))
	at := time.Date(2026, 7, 1, 8, 0, 0, 0, time.UTC)
	s := &plan.ThingStatus{Phase: string(nodes.Lost), Conditions: []plan.Condition{{Type: plan.ConditionReady,
		Status: plan.ConditionFalse, Reason: plan.ReasonHostAndSchedulerSilent}}}
	var err error
	s.Detail, err = json.Marshal(nodes.Record{Transitions: 7, Since: at, Answered: at.Add(-time.Hour), Silence: 600})
	require.NoError(t, err)
	require.Equal(t, nodes.Status{State: nodes.Lost, Since: at, Reason: plan.ReasonHostAndSchedulerSilent, Answered: at.Add(-time.Hour),
		Silence: 10 * time.Minute, Transitions: 7}, nodes.Restore(s, nodes.ReadRecord(s)))
}

// berth/status is not trusted to be well formed.
func TestPhaseThatIsNoStateIsUnknown(t *testing.T) {
	require.Equal(t, nodes.Unknown, nodes.StateOf(""))
	require.Equal(t, nodes.Unknown, nodes.StateOf("failed"))
	require.Equal(t, nodes.Lost, nodes.StateOf("lost"))
}
