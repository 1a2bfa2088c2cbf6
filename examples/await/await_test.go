package await_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
)

// recorder is a test that a wait may fail.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

// failure returns what a wait fails with.
func failure(t *testing.T, wait func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	require.PanicsWithValue(t, r, func() { wait(r) })
	return r.failure
}

func TestWaitEndsWithItsCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		await.Equal(t, "the last minute", true, func() bool { return time.Since(began) >= await.Limit-time.Minute })
		require.Less(t, time.Since(began), await.Limit-time.Minute+time.Second) // soon after its condition holds
		value := await.NoError(t, "the second try", func() func() (int, error) {
			n := 0
			return func() (int, error) {
				if n++; n < 2 {
					return 0, errors.New("too early")
				}
				return n, nil
			}
		}())
		require.Equal(t, 2, value)
		ch := make(chan string, 1)
		time.AfterFunc(time.Minute, func() { ch <- "done" })
		require.Equal(t, "done", await.Receive(t, "the answer", ch, func() any { return nil }))
	})
}

func TestWaitSaysWhatItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, "waited 5m0s for the third worker; saw 2 workers",
			failure(t, func(t testing.TB) {
				await.True(t, "the third worker", func() bool { return false }, func() any { return "2 workers" })
			}))
		require.Equal(t, "waited 5m0s for the phase; saw deploying, not running",
			failure(t, func(t testing.TB) {
				await.Equal(t, "the phase", "running", func() string { return "deploying" })
			}))
		require.Equal(t, "waited 5m0s for the server; saw connection refused",
			failure(t, func(t testing.TB) {
				await.NoError(t, "the server", func() (int, error) { return 0, errors.New("connection refused") })
			}))
		require.Equal(t, "waited 5m0s for the end of the process; saw its pid 7",
			failure(t, func(t testing.TB) {
				await.Receive(t, "the end of the process", make(chan int), func() any { return "its pid 7" })
			}))
	})
}
