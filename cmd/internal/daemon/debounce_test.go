package daemon

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// However a storm blows, it is passed on three times within the time it may take,
// and once more after the last that was asked for.
func TestDebouncerBoundsStorms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asks   int
		within time.Duration
		want   int // at most
	}{
		"one":               {1, 0, 1},
		"two people":        {2, 2 * time.Second, 2},
		"at once":           {10_000, 0, 2},
		"in a second":       {10_000, time.Second, 3},
		"in five seconds":   {10_000, 5 * time.Second, 3},
		"people all day":    {30, time.Hour, 30},
		"a storm that goes": {100_000, time.Minute, 15},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var passed []time.Duration
				var mu sync.Mutex
				k := newDebouncer(func(string) {
					mu.Lock()
					defer mu.Unlock()
					passed = append(passed, time.Since(begin))
				})
				var last time.Duration
				for i := range c.asks {
					last = time.Since(begin)
					k.request("estate")
					if i+1 < c.asks {
						time.Sleep(c.within / time.Duration(c.asks))
					}
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Zero(t, passed[0], "at once")
				require.LessOrEqual(t, len(passed), c.want)
				mu.Lock()
				after := passed[len(passed)-1]
				mu.Unlock()
				require.GreaterOrEqual(t, after, last, "a run starts after the last trigger")
				require.LessOrEqual(t, after, last+stormDistance)
				require.Empty(t, k.waiting, "a finished key is still kept")
				// Then all is quiet, and it is at once again.
				n := len(passed)
				k.request("estate")
				require.Len(t, passed, n+1)
				time.Sleep(time.Minute)
			})
		})
	}
}

// A storm on one key does not delay another key.
func TestDebouncerSeparatesKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		passed := map[int]int{}
		k := newDebouncer(func(i int) {
			mu.Lock()
			defer mu.Unlock()
			passed[i]++
		})
		sofar := func() map[int]int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(passed)
		}
		for range 1000 {
			k.request(1)
		}
		k.request(2)
		require.Equal(t, map[int]int{1: 1, 2: 1}, sofar())
		time.Sleep(time.Minute)
		require.Equal(t, map[int]int{1: 2, 2: 1}, sofar())
	})
}
