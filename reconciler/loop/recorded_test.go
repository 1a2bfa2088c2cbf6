package loop_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// refusePushes makes the Git server refuse pushes to one branch with a
// pre-receive hook; "" lets all pushes through again.
func (w *world) refusePushes(branch string) {
	w.t.Helper()
	hook := filepath.Join(w.git.Dir, "hooks", "pre-receive")
	if branch == "" {
		require.NoError(w.t, os.Remove(hook))
		return
	}
	require.NoError(w.t, os.MkdirAll(filepath.Dir(hook), 0o755))
	script := fmt.Sprintf("#!/bin/sh\n! grep -q ' refs/heads/%s$'\n", branch)
	require.NoError(w.t, os.WriteFile(hook, []byte(script), 0o755))
}

// recordReader is a runtime that reads the remote at each action: the instance's
// document in force, and its status.
type recordReader struct {
	runtimes.Runtime
	w    *world
	mu   *sync.Mutex
	seen *[]recorded
}

type recorded struct {
	verb           plan.Verb
	stamp          runtimes.Stamp
	inForce        string // text of the document; "" if there is none
	phase          plan.Phase
	revision       string
	attempt        int
	readInForceErr bool
}

func (r recordReader) Apply(ctx context.Context, c runtimes.Change) error {
	entry := recorded{verb: c.Action.Verb, stamp: c.Stamp}
	text, err := r.w.git.Read(reconciler.BranchInForce, statusOfTrain)
	entry.inForce, entry.readInForceErr = text, err != nil
	if s := r.w.status("train"); s != nil {
		entry.phase, entry.revision, entry.attempt = s.Phase, s.Revision, s.Attempt
	}
	r.mu.Lock()
	*r.seen = append(*r.seen, entry)
	r.mu.Unlock()
	return r.Runtime.Apply(ctx, c)
}

// Requirement E1: the remote holds the document in force and the intended action
// before the first action.
func TestDesiredStateIsRecordedBeforeAnAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reader := recordReader{memory.New(w.world), w, new(sync.Mutex), new([]recorded)}
	w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": reader}
	})
	path, one := instance("train", 1)
	created := w.put(map[string]string{path: one})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	_, two := instance("train", 2)
	changed := w.put(map[string]string{path: two})
	w.eventually("second worker", w.running("train", 2))
	deleted := w.put(nil, path)
	w.eventually("gone", func() bool { return w.status("train") == nil })

	reader.mu.Lock()
	defer reader.mu.Unlock()
	var order []string
	for _, e := range *reader.seen {
		order = append(order, string(e.verb))
		require.Equal(t, e.stamp.Commit, e.revision, "%s: status names the applied commit", e.verb)
		switch e.stamp.Commit {
		case created:
			require.Equal(t, one, e.inForce, e.verb)
			require.Equal(t, plan.PhaseDeploying, e.phase, e.verb)
			require.Equal(t, 1, e.attempt)
		case changed:
			require.Equal(t, two, e.inForce, e.verb)
			require.Equal(t, plan.PhaseUpdating, e.phase, e.verb)
			require.Equal(t, 2, e.attempt)
		case deleted:
			require.True(t, e.readInForceErr, "%s: the document is still in force", e.verb)
			require.Equal(t, plan.PhaseDeleting, e.phase, e.verb)
			require.Equal(t, 3, e.attempt)
		default:
			t.Errorf("%s for an unknown commit %s", e.verb, e.stamp.Commit)
		}
	}
	require.Equal(t, []string{"create", "join", "configure", "join", "delete"}, order)
}

// No new action starts while the decision or the status cannot be written.
func TestNothingStartsBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	for _, branch := range []string{reconciler.BranchInForce, reconciler.BranchStatus} {
		t.Run(filepath.Base(branch), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.start()
			d.ready()
			w.eventually("written", func() bool { return len(d.Unsettled()) == 0 })
			w.refusePushes(branch)
			path, text := instance("train", 1)
			w.put(map[string]string{path: text})
			if branch == reconciler.BranchStatus { // else there is no unit
				w.eventually("the unit observed", func() bool { return w.world.Calls("observe") > 0 })
			}
			pushes := w.git.Requests()["POST git-receive-pack"]
			w.eventually("three refused pushes", func() bool { return w.git.Requests()["POST git-receive-pack"] >= pushes+3 })
			d.does(theEstate)
			require.Zero(t, w.world.TotalCalls()-w.world.Calls("observe"), "an action started without a record on %s", branch)
			w.refusePushes("")
			w.eventually("running", w.phase("train", plan.PhaseRunning))
		})
	}
}
