package loop

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A goroutine whose function has returned takes the next function, and end waits for all.
func TestGoroutinesAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ran := newGoroutines(), atomic.Int32{}
		run := func() { ran.Add(1) }
		g.start(func() { g.start(run); run() })
		synctest.Wait()
		require.EqualValues(t, 2, ran.Load())
		for range 2 {
			select {
			case g.next <- run:
			default:
				require.Fail(t, "no goroutine waits for a function")
			}
		}
		release := make(chan struct{})
		g.start(func() { <-release; run() })
		synctest.Wait()
		go close(release)
		g.end()
		require.EqualValues(t, 5, ran.Load())
	})
}
