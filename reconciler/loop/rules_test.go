package loop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/schema/event"
)

// hookRule returns a file with a rule.
func hookRule(name, spec string) map[string]string {
	return map[string]string{"platform/hooks/" + name + ".yaml": "apiVersion: berth/v1\nkind: HookRule\nmetadata: {name: " + name + "}\nspec: " +
		spec + "\n"}
}

// firings returns the firings on berth/status, as "rule resource trigger".
func (w *world) firings() (out []string) {
	for _, e := range w.events() {
		if f, ok := rules.Firing(e); ok {
			out = append(out, f.Rule+" "+f.ResourceName+" "+f.TriggerType)
		}
	}
	return out
}

// A rule in force fires on events of units and nodes, once each, also across a restart. A suspended one does not fire.
func TestRuleInForceFires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alert := "then: [{alert: {severity: warning, summary: look}}]"
	w.put(hookRule("up", "{when: {event: apps.instance.running}, "+alert+", cooldown_seconds: 0}"))
	off := hookRule("off", "{when: {event: apps.instance.running}, "+alert+"}")
	off["platform/hooks/off.yaml"] = "suspend: true\n" + off["platform/hooks/off.yaml"]
	w.put(off)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	d := w.start(w.observed)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.eventually("fired", func() bool { return len(w.firings()) > 0 })
	w.eventually("ready", w.nodeIs("gpu-1", nodes.Ready))
	require.NoError(t, d.stop())
	require.Contains(t, w.firings(), "up physics.lab/train "+string(event.InstanceRunning))
	w.start(w.observed)
	second, text := instance("test", 1)
	w.put(map[string]string{second: text})
	w.eventually("the second one fires", func() bool { return len(w.firings()) >= 2 })
	require.Equal(t, []string{"up physics.lab/train apps.instance.running", "up physics.lab/test apps.instance.running"}, w.firings())
	w.noEventTwice()
}
