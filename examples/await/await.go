// Package await is how tests wait. Each wait is for a condition. Its deadline only ends a test
// that hangs, and no other code of a test bounds wall time. `make bench` measures speed;
// tests of time run on a clock of their own.
//
// It must not know particular conditions.
package await

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Limit is how long a wait lasts before its test fails. It is far above what any wait takes,
// also on a slow and busy machine.
const Limit = 5 * time.Minute

// The pause between two checks of a condition begins short and grows. After a check that took long,
// as it started programs, it is twice as long as the check. So a wait takes little processor time,
// and ends soon after its condition holds.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// True waits until ok returns true. A call of ok that hangs needs a Context. After Limit the test fails with what it waited for and
// with what saw returns: the state in the words of the test.
func True(t testing.TB, what string, ok func() bool, saw func() any) {
	t.Helper()
	pause := firstPause
	for deadline := time.Now().Add(Limit); ; pause = min(pause*5/4, longestPause) {
		began := time.Now()
		if ok() {
			return
		}
		if err := context.Cause(t.Context()); err != nil {
			t.Fatalf("the test ended while it waited for %s: %v", what, err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s; saw %+v", Limit, what, saw())
		}
		time.Sleep(min(max(pause, 2*time.Since(began)), longestPause))
	}
}

// Equal waits until got returns want. After Limit the test fails with both.
func Equal[T comparable](t testing.TB, what string, want T, got func() T) {
	t.Helper()
	var last T
	True(t, what, func() bool { last = got(); return last == want },
		func() any { return fmt.Sprintf("%+v, not %+v", last, want) })
}

// NoError waits until try returns no error, and returns its value. After Limit the test fails
// with the last error.
func NoError[T any](t testing.TB, what string, try func() (T, error)) T {
	t.Helper()
	var value T
	var err error
	True(t, what, func() bool { value, err = try(); return err == nil }, func() any { return err })
	return value
}

// Receive waits for a value of the channel, or for its end, and returns the value. After Limit
// the test fails with what saw returns.
func Receive[T any](t testing.TB, what string, from <-chan T, saw func() any) T {
	t.Helper()
	timeout := time.NewTimer(Limit)
	defer timeout.Stop()
	select {
	case value := <-from:
		return value
	case <-timeout.C:
		t.Fatalf("waited %v for %s; saw %+v", Limit, what, saw())
		panic("unreachable")
	}
}

// Context returns a context that ends after Limit, or with the test, for a call that may hang.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Limit, fmt.Errorf("the test waited %v", Limit))
	t.Cleanup(cancel)
	return ctx
}
