// Package parallel does the same to many things at once, as there are processors
// for it. It knows nothing of what they are.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Each calls f with 0 to n-1, as many at a time as there are processors. Once all
// have returned it returns the error of the lowest that has one. If f panics so
// does Each, where its caller can recover, with where it did.
func Each(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	errs, broke := make([]error, n), make([]error, n)
	do := func(i int) {
		defer func() {
			if p := recover(); p != nil {
				broke[i] = fmt.Errorf("%v\n%s", p, debug.Stack())
			}
		}()
		errs[i] = f(i)
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() { // goes on to the next, as a stack grows once
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	group.Wait()
	for _, p := range broke {
		if p != nil {
			panic(p)
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
