package loop_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// A worker of which its host has nothing is made again after the grace of its role, counted from the first such observation, also by
// another daemon. A worker that comes back meanwhile is left alone, and an operation retry ends the grace.
func TestMissingWorkerIsMadeAgainAfterItsGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var hours atomic.Int64
	clock := func(o *loop.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(hours.Load()) * time.Hour) }
	}
	d := w.start(w.observed, clock)
	path, text := instance("train", 2)
	w.put(map[string]string{path: strings.Replace(text, "count: 2, gpus", "count: 2, missing_grace_seconds: 3600, gpus", 1)})
	w.eventually("train runs", w.running("train", 2))
	joins := w.world.Calls("join")
	loses := func() {
		require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Missing))
		w.eventually("missing", func() bool {
			s := w.status("train")
			c := s.Condition(plan.ConditionDegraded)
			return c.Is(plan.ConditionTrue) && s.Condition(plan.ConditionReady).Is(plan.ConditionTrue) &&
				strings.Contains(c.Message, "missing, its host has nothing of it since "+s.Members[1].MissingSince.Format(time.RFC3339)+
					"; Berth makes it again at "+s.Members[1].MissingSince.Add(time.Hour).Format(time.RFC3339))
		})
	}
	loses()
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Running))
	w.eventually("it is back", func() bool {
		s := w.status("train")
		return w.running("train", 2)() && s.Condition(plan.ConditionDegraded) == nil && s.Members[1].MissingSince.IsZero()
	})
	require.Equal(t, joins, w.world.Calls("join"))

	loses()
	since := w.status("train").Members[1].MissingSince
	require.NoError(t, d.stop())
	d = w.start(w.observed, clock)
	d.ready()
	commit := w.put(map[string]string{"README.md": "x"})
	w.eventually("a commit later", func() bool { return w.revision().Commit == commit })
	require.Equal(t, since, w.status("train").Members[1].MissingSince)
	require.Equal(t, joins, w.world.Calls("join"))
	hours.Store(2)
	w.eventually("made again", func() bool { return w.world.Calls("join") == joins+1 && w.running("train", 2)() })

	loses()
	w.ask([3]string{"now", "retry", ""})
	w.operated("now", plan.OperationDone)
	w.eventually("made again", func() bool { return w.world.Calls("join") == joins+2 && w.running("train", 2)() })
}
