//go:build long

package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema/event"
)

// suspensions returns the suspended and resumed events of an instance in order, each
// with its reason, and its phase changes.
func (w *world) suspensions(name string) (out []string) {
	for _, e := range w.events() {
		var p event.Suspension
		require.NoError(w.t, json.Unmarshal(e.Payload, &p))
		if p.ResourceName != "physics.lab/"+name {
			continue
		}
		if typ, ok := strings.CutPrefix(e.EventType, "berth.instance."); ok {
			out = append(out, typ+" "+p.Reason+" "+short8(p.Revision))
		}
	}
	return out
}

func short8(s string) string { return s[:min(8, len(s))] }

// suspendedFor waits until the condition Suspended of each instance has this value.
func (w *world) suspendedFor(want string, names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.eventually(name+": "+want, func() bool {
			s := w.status(name)
			if s == nil {
				return false
			}
			for _, c := range s.Conditions {
				if c.Type == "Suspended" {
					return fmt.Sprint(c.Status, " ", c.Reason) == want
				}
			}
			return want == ""
		})
	}
}

// Suspension, pause and resumption are reported once each and in order, whether or not
// the daemon runs.
func TestLongSuspensionIsReportedOnceThroughRestarts(t *testing.T) {
	t.Parallel()
	const pause = "platform/pause.yaml"
	paused := map[string]string{pause: "apiVersion: berth/v1\nkind: Pause\nmetadata: {name: pause}\nspec: {reason: power}\n"}
	w := newWorld(t)
	d := w.start()
	train, trainText := instance("train", 1)
	eval, evalText := instance("eval", 1)
	w.put(map[string]string{train: trainText, eval: evalText})
	for _, name := range []string{"train", "eval"} {
		w.eventually(name+" running", w.phase(name, plan.PhaseRunning))
	}
	w.suspendedFor("", "train", "eval")
	restart := func(while func()) {
		require.NoError(t, d.stop())
		while()
		d = w.start()
	}
	nothing := func() {}
	var wantTrain, wantEval []string

	commit := w.put(map[string]string{train: "suspend: true\n" + trainText})
	w.suspendedFor("True Declared", "train")
	wantTrain = append(wantTrain, "suspended Declared "+short8(commit))
	restart(nothing)

	commit = w.put(paused)
	w.suspendedFor("True Paused", "eval")
	wantEval = append(wantEval, "suspended Paused "+short8(commit))
	restart(nothing)

	w.put(map[string]string{train: trainText}) // the pause continues, so no instance is resumed
	w.suspendedFor("True Paused", "train")
	restart(func() { commit = w.put(nil, pause) })
	w.suspendedFor("False Resumed", "train", "eval")
	wantTrain, wantEval = append(wantTrain, "resumed Resumed "+short8(commit)), append(wantEval, "resumed Resumed "+short8(commit))

	restart(func() { commit = w.put(paused) })
	w.suspendedFor("True Paused", "train", "eval")
	wantTrain, wantEval = append(wantTrain, "suspended Paused "+short8(commit)), append(wantEval, "suspended Paused "+short8(commit))
	commit = w.put(nil, pause)
	w.suspendedFor("False Resumed", "train", "eval")
	wantTrain, wantEval = append(wantTrain, "resumed Resumed "+short8(commit)), append(wantEval, "resumed Resumed "+short8(commit))
	restart(nothing)

	// An instance deleted while suspended is not resumed.
	commit = w.put(map[string]string{train: "suspend: true\n" + trainText})
	w.suspendedFor("True Declared", "train")
	wantTrain = append(wantTrain, "suspended Declared "+short8(commit))
	w.put(nil, train)
	w.eventually("gone", func() bool { return w.status("train") == nil })

	require.Equal(t, wantTrain, w.suspensions("train"))
	require.Equal(t, wantEval, w.suspensions("eval"))
	w.noEventTwice()
}
