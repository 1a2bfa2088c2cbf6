// Package parallel runs a function for many items at once, on all processors. It must not
// know the meaning of an item.
package parallel

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Each calls f with 0 to n-1, one call for each processor at a time. After the last call
// it returns the error of the lowest index that has one. If f panics, Each panics with the
// stack of f, so that the caller of Each can recover.
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
		group.Go(func() { // a goroutine takes many items, so its stack grows once
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
