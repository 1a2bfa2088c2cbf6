//go:build long

package loop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
)

// dying simulates a process that is killed at its first failure: it neither acts nor
// answers afterwards.
type dying struct {
	runtimes.Runtime
	dead chan struct{}
}

func (d dying) isDead() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

func (d dying) Apply(ctx context.Context, c runtimes.Change) error {
	select {
	case <-d.dead:
		<-ctx.Done()
		return ctx.Err()
	default:
	}
	err := d.Runtime.Apply(ctx, c)
	if err != nil {
		select {
		case <-d.dead:
		default:
			close(d.dead)
		}
		<-ctx.Done()
	}
	return err
}

func (d dying) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	select {
	case <-d.dead:
		<-ctx.Done()
	default:
	}
	return d.Runtime.Observe(ctx, s)
}

// A new daemon with an empty cache completes a deployment after the previous one was
// killed at any step. No action and no event is repeated.
func TestLongDeploymentCompletesAfterKill(t *testing.T) {
	t.Parallel()
	for step := 1; step <= 7; step++ {
		t.Run(fmt.Sprint("step ", step), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			path, text := instance("train", 2)
			w.put(map[string]string{path: text})
			w.world.FailStep(step, errors.New("killed"))
			// A killed daemon does not retry.
			rt := dying{memory.New(w.world), make(chan struct{})}
			first := w.start(func(o *loop.Options) { o.Runtimes = map[string]runtimes.Runtime{"bare_metal": rt} })
			w.eventually("death in the deployment, or its end", func() bool { return rt.isDead() || w.phase("train", plan.PhaseRunning)() })
			first.cancel()

			w.start()
			w.eventually("running", w.phase("train", plan.PhaseRunning))
			s := w.status("train")
			require.Len(t, s.Members, 3)
			require.NotContains(t, w.world.Fingerprint(trainKey), "after 2 starts", "a member was created twice")
			w.noEventTwice()
			types := w.eventTypes()
			require.Equal(t, "requested", types[0])
			require.Equal(t, "running", types[len(types)-1])
		})
	}
}

func TestLongRestartWithAnEmptyCacheContinues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start()
	path, text := instance("train", 2)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.NoError(t, first.stop())
	before := w.world.Fingerprint(schema.InstanceKey("physics", "lab", "train"))
	events := len(w.events())

	second := w.start()
	second.ready()
	second.does(theEstate, train)
	second.does(theEstate, train)
	second.written()
	require.Equal(t, before, w.world.Fingerprint(schema.InstanceKey("physics", "lab", "train")), "no action ran")
	require.Len(t, w.events(), events, "no action means no event")
	require.Empty(t, second.Unsettled())

	// A change merged while no daemon ran is applied after the start.
	require.NoError(t, second.stop())
	w.put(nil, path)
	w.start()
	w.eventually("gone", func() bool { return w.status("train") == nil })
}
