//go:build long

package loop_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// crashing kills its daemon at the given call of an operation, before or after the effect.
type crashing struct {
	runtimes.Runtime
	mu    sync.Mutex
	calls int
	at    int
	after bool
	crash chan struct{}
}

func (c *crashing) Apply(ctx context.Context, ch runtimes.Change) error {
	if ch.Action.Operation == nil {
		return c.Runtime.Apply(ctx, ch)
	}
	c.mu.Lock()
	c.calls++
	now := c.calls == c.at
	c.mu.Unlock()
	if now && c.after {
		if err := c.Runtime.Apply(ctx, ch); err != nil {
			return err
		}
	}
	if now {
		close(c.crash)
		<-ctx.Done()
		return ctx.Err()
	}
	return c.Runtime.Apply(ctx, ch)
}

// An operation is done exactly once across crashes, lost statuses and further syncs.
func TestLongOperationIsDoneExactlyOnceAcrossCrashes(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("after the effect %v, status lost %v", after, lose), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				rt := &crashing{Runtime: memory.New(w.world), at: 1, after: after, crash: make(chan struct{})}
				use := func(o *loop.Options) {
					o.Forge, o.Runtimes = nil, map[string]runtimes.Runtime{"bare_metal": rt}
				}
				d := w.start(use)
				w.trains(1)
				w.ask([3]string{"again", "restart", "worker-0"})
				await.Receive(t, "the start of the operation", rt.crash, w.saw)
				d.stop()
				if lose {
					_, err := w.git.Git("update-ref", "-d", "refs/heads/"+reconciler.BranchStatus)
					require.NoError(t, err)
				}
				for range 3 {
					d = w.start(use)
					w.operated("again", plan.OperationDone)
					w.eventually("train runs", w.running("train", 1))
					d.stop()
				}
				require.Contains(t, w.world.Fingerprint(trainKey), "worker-0 on gpu-1 is running after 2 starts")
			})
		}
	}
}
