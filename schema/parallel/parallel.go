// Package parallel does the same to many things at once, as there are processors
// for it. It knows nothing of what they are.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// Each calls f with 0 to n-1, as many at a time as there are processors, and
// returns the first error once all have returned. If f panics so does Each, where
// its caller can recover, with where it did.
func Each(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	broke := make([]error, n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error {
			defer func() {
				if p := recover(); p != nil {
					broke[i] = fmt.Errorf("%v\n%s", p, debug.Stack())
				}
			}()
			return f(i)
		})
	}
	err := group.Wait()
	for _, p := range broke {
		if p != nil {
			panic(p)
		}
	}
	return err
}
