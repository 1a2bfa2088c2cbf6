package loop_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

func siteText(name, region, extra string) map[string]string {
	return map[string]string{"platform/sites/" + name + ".yaml": "apiVersion: berth/v1\nkind: Site\nmetadata: {name: " + name +
		"}\nspec:\n  display_name: x\n  regions: [" + region + "]\n" + extra}
}

// otherRegion is a region eu-2 with a node for each role.
func otherRegion() map[string]string {
	at := func(text string) string { return strings.Replace(text, "eu-1", "eu-2", 1) }
	return map[string]string{
		"platform/nodes/ctl-2.yaml": at(node("ctl-2", 31, "controller", "")),
		"platform/nodes/gpu-9.yaml": at(node("gpu-9", 32, "worker", "gpus: [{type: a100, count: 2, devices: \"/dev/nvidia[0-1]\"}]")),
	}
}

// in is an instance that asks for a region.
func in(region, name string, workers int) map[string]string {
	path, text := instance(name, workers)
	return map[string]string{path: text + "  regions: [" + region + "]\n"}
}

// Nothing changes on units with a member at a paused site, and units at other sites go on. The end of the pause goes on with
// what waited.
func TestPausedSiteStopsItsUnitsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.put(otherRegion())
	w.put(siteText("here", "eu-1", ""))
	w.put(in("eu-1", "train", 1))
	w.eventually("train runs", w.running("train", 1))
	w.put(siteText("here", "eu-1", "  paused: {reason: the power is checked}\n"))
	w.put(in("eu-1", "train", 2))
	w.eventually("train waits", func() bool {
		c := w.status("train").Condition(plan.ConditionStalled)
		return c.Is(plan.ConditionTrue) && c.Reason == plan.ReasonPaused && c.Message == "site here: the power is checked"
	})
	w.put(in("eu-2", "far", 1))
	w.eventually("far runs", w.running("far", 1))
	require.Len(t, w.status("train").Observed.Unit.Members, 2, "nothing changed")
	w.put(siteText("here", "eu-1", ""))
	w.eventually("train grows", w.running("train", 2))
}

// A site whose hosts are silent delays no unit of another one.
func TestSilentSiteDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.put(otherRegion())
	w.put(in("eu-1", "train", 1))
	w.eventually("train runs", w.running("train", 1))
	for _, n := range []string{"ctl", "gpu-1", "gpu-2", "gpu-3", "gpu-4"} {
		w.world.SetReachable(n, false)
	}
	w.put(in("eu-1", "train", 2))
	w.put(in("eu-2", "far", 1))
	w.eventually("far runs", w.running("far", 1))
	require.False(t, w.running("train", 2)(), "its hosts do not answer")
}
