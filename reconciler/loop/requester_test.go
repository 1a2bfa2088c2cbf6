package loop_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// requesters returns the requester in each event of an instance.
func (w *world) requesters(name string) map[string]bool {
	out := map[string]bool{}
	for _, e := range w.events() {
		var p event.Instance
		require.NoError(w.t, json.Unmarshal(e.Payload, &p))
		if strings.HasPrefix(e.EventType, "apps.instance.") && p.ResourceName == "physics.lab/"+name {
			out[p.RequestedBy] = true
		}
	}
	return out
}

// The requester of an instance is the signer of the commit that added it. Changes
// by other users, restarts and a wait for another document do not change that.
func TestRequestedByIsTheSigner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, ana, bo := newSigner(t, w), newSigner(t, w), newSigner(t, w)
	d := w.start(governed(root))
	root.push("both may\n\nBreak-Glass: physics has nobody yet", map[string]string{"tenants/physics/roles.yaml": roleBinding(
		"    - {login: ana, role: tenant_admin, signing_keys: [\"" + ana.publicKey +
			"\"]}\n    - {login: bo, role: tenant_admin, signing_keys: [\"" + bo.publicKey + "\"]}\n")})
	train, text := instance("train", 1)
	claims := text + "  requested_by: somebody-else\n"
	ana.push("train", map[string]string{train: claims})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Equal(t, "ana", w.status("train").RequestedBy)

	_, larger := instance("train", 2)
	bo.push("larger", map[string]string{train: larger})
	w.eventually("larger", w.running("train", 2))
	require.Equal(t, "ana", w.status("train").RequestedBy)
	require.NoError(t, d.stop())
	d = w.start(governed(root))

	// It waits for a version that bo may not add.
	eval, waits := instance("eval", 1)
	bo.push("eval", map[string]string{eval: strings.Replace(waits, "version: v1", "version: v2", 1)})
	w.eventually("held", func() bool { return w.heldReasons()[eval] == schema.HeldInvalid })
	require.NoError(t, d.stop())
	w.start(governed(root))
	root.push("v2", map[string]string{"platform/catalog/batch/v2.yaml": strings.NewReplacer("name: v1", "name: v2", `version: "1"`,
		`version: "2"`).Replace(estateFiles()["platform/catalog/batch/v1.yaml"])})
	w.eventually("running", w.phase("eval", plan.PhaseRunning))
	require.Equal(t, "bo", w.status("eval").RequestedBy)

	// Deleted and created again by another user, it has a new requester.
	bo.push("gone", map[string]string{train: ""})
	w.eventually("gone", func() bool { return w.status("train") == nil })
	bo.push("again", map[string]string{train: text})
	w.eventually("running again", w.phase("train", plan.PhaseRunning))
	require.Equal(t, "bo", w.status("train").RequestedBy)
	require.Equal(t, map[string]bool{"ana": true, "bo": true}, w.requesters("train"))
	require.Equal(t, map[string]bool{"bo": true}, w.requesters("eval"))
}

// With a forge the requester is the author of the merged pull request, not its
// reviewer or merger.
func TestRequestedByIsTheAuthorOfThePullRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put(map[string]string{"tenants/physics/roles.yaml": roleBinding("    - {login: ada, role: tenant_admin}\n    - {login: bob, role: " +
		"tenant_admin}\n")})
	w.start(withRights)
	pr := w.shown(1, instanceNamed("train", 1))
	w.merge(pr)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Equal(t, "ada", w.status("train").RequestedBy)

	pr = w.pull(2, instanceNamed("train", 2))
	pr.Author = "bob"
	w.forge.put(pr)
	w.reviewed(pr)
	w.merge(pr)
	w.eventually("larger", w.running("train", 2))
	require.Equal(t, "ada", w.status("train").RequestedBy)
	require.Equal(t, map[string]bool{"ada": true}, w.requesters("train"))
}
