package loop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/usage"
)

// Once jobs used the GPU hours of the month, the unit has a condition, and a change that adds GPUs is held while what runs goes
// on. A month later, and when the policy allows more, it comes into force without another commit of its author.
func TestUsedUpGPUHoursHoldAddedGPUs(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, clock *testClock){
		"a month begins": func(_ *world, clock *testClock) { clock.set(firstDay.AddDate(0, 0, 2)) },
		"the policy allows more": func(w *world, _ *testClock) {
			w.put(map[string]string{"tenants/physics/policy.yaml": gpuHours(3)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var clock testClock
			now := firstDay.Add(6 * time.Hour)
			clock.set(now)
			w.start(func(o *loop.Options) { o.Settings.Usage, o.Now = 20*time.Millisecond, clock.now })
			w.run(1)
			w.put(map[string]string{"tenants/physics/policy.yaml": gpuHours(2)})
			job := usage.Job{Cluster: memory.New(w.world).Cluster(trainKey), JobID: 1, Submitted: firstDay, Started: firstDay,
				Ended: firstDay.Add(time.Hour), State: "COMPLETED", User: "eve", Resources: usage.Resources{CPUs: 1, GPUs: 2}}
			require.NoError(t, w.world.SetClock(trainKey, now))
			require.NoError(t, w.world.SetUsage(trainKey, job))
			w.eventually("the hours are used up", func() bool {
				c := w.status("train").Condition(plan.ConditionWithinQuota)
				return c.Is(plan.ConditionFalse) && c.Reason == plan.ReasonGPUHoursUsedUp
			})
			path, text := instance("train", 2)
			w.put(map[string]string{path: text})
			w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldQuota })
			require.True(t, w.running("train", 1)(), "the running unit goes on")
			end(w, &clock)
			w.eventually("it grows", w.running("train", 2))
			w.eventually("the condition is gone", func() bool { return w.status("train").Condition(plan.ConditionWithinQuota) == nil })
			require.Empty(t, w.heldReasons())
		})
	}
}

func gpuHours(n int) string {
	return fmt.Sprintf("apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec: {max_monthly_gpu_hours_per_project: %d}\n", n)
}

// A project begins as many changes in an hour as its policy allows. Another one waits and says until when, and a repair does not.
func TestChangesWaitForTheirHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var clock testClock
	now := firstDay.Add(6 * time.Hour)
	clock.set(now)
	w.start(func(o *loop.Options) { o.Now = clock.now })
	const policy = "tenants/physics/policy.yaml"
	w.put(map[string]string{policy: "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\n" +
		"spec: {max_hourly_changes_per_project: 1}\n"})
	w.run(1)
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("the next change waits", func() bool {
		c := w.status("train").Condition(plan.ConditionReady)
		return c != nil && strings.Contains(c.Message, "change waits: policy allows physics.lab 1 in an hour ("+policy+":4)")
	})
	starts := w.world.Calls("start")
	require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
	w.eventually("a repair does not wait", func() bool { return w.world.Calls("start") > starts })
	w.put(map[string]string{path: strings.Replace(text, "  app: batch\n", "  app: batch\n  desired_state: stopped\n", 1)})
	w.eventually("a stop does not wait", w.phase("train", plan.PhaseStopped))
	w.put(map[string]string{path: text})
	w.eventually("the start waits, and starts nothing before", func() bool {
		c := w.status("train").Condition(plan.ConditionReady)
		return c != nil && strings.Contains(c.Message, "change waits") && w.status("train").Revision == w.git.Tip("main")
	})
	for _, m := range w.status("train").Members {
		require.NotEqual(t, plan.Running, m.State, m.Name)
	}
	clock.set(now.Add(time.Hour))
	w.eventually("its hour has come", w.running("train", 2))
	w.put(nil, path)
	w.eventually("a deletion does not wait", func() bool { return w.world.Calls("delete") > 0 })
}
