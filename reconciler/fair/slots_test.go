package fair_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/fair"
)

// Requirement E9: one owner that waits 10,000 times for a slot delays 20 others that come later by few turns: 99 of 100 of
// them wait at most twice as long as without it.
func TestSlotsAreSharedByTurns(t *testing.T) {
	const size, others, each = 4, 20, 10
	waits := func(t *testing.T, large int) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := fair.NewSlots(size)
			var mu sync.Mutex
			use := func(owner string) time.Duration {
				began := time.Now()
				give, err := s.Take(t.Context(), owner)
				require.NoError(t, err)
				defer give()
				waited := time.Since(began)
				time.Sleep(time.Second)
				return waited
			}
			var wg sync.WaitGroup
			for range large {
				wg.Go(func() { use("large") })
			}
			synctest.Wait()
			for i := range others {
				for range each {
					wg.Go(func() {
						waited := use(fmt.Sprint(i))
						mu.Lock()
						defer mu.Unlock()
						all = append(all, waited)
					})
				}
			}
			wg.Wait()
		})
		slices.Sort(all)
		return all
	}
	alone, beside := waits(t, 0), waits(t, 10_000)
	p99 := others * each * 99 / 100
	require.LessOrEqual(t, beside[p99], 2*alone[p99])
	require.LessOrEqual(t, beside[len(beside)/2], 2*alone[len(alone)/2])
}

// An owner that gives up waiting takes no slot, also when it gets one in the same moment.
func TestCancelledWaiterTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.NewSlots(1)
		give, err := s.Take(t.Context(), "a")
		require.NoError(t, err)
		impatient, why := errors.New("no answer"), make(chan error, 100)
		for range cap(why) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
			defer cancel()
			go func() {
				give, err := s.Take(ctx, "b")
				if err == nil {
					give()
				}
				why <- err
			}()
		}
		time.Sleep(time.Second)
		give()
		synctest.Wait()
		for range cap(why) {
			if err := <-why; err != nil {
				require.ErrorIs(t, err, impatient)
			}
		}
		give, err = s.Take(t.Context(), "c")
		require.NoError(t, err)
		give()
	})
}

// However long owners keep their slots, another one finds a free slot, also if each owner took what it may before the next came.
func TestOwnerKeepsNoMoreThanItsSlots(t *testing.T) {
	for size, owners := range map[int]int{4: 1, 8: 2, 64: 3} {
		synctest.Test(t, func(t *testing.T) {
			s := fair.NewSlots(size)
			ctx, cancel := context.WithCancel(t.Context())
			for i := range owners {
				for range 10 * size {
					go func() {
						if give, err := s.Take(ctx, fmt.Sprint("large-", i)); err == nil {
							<-ctx.Done()
							give()
						}
					}()
				}
				synctest.Wait()
			}
			began := time.Now()
			for range 10 {
				give, err := s.Take(t.Context(), "small")
				require.NoError(t, err)
				give()
			}
			require.Zero(t, time.Since(began))
			cancel()
		})
	}
}

// An owner that is alone has three quarters of the places; two that take turns have three sevenths each.
func TestOwnersTakeWhatIsTheirs(t *testing.T) {
	for owners, each := range map[int]int{1: 48, 2: 27, 3: 19} {
		taken, all := make([]int, owners), 0
		for i := range 1000 {
			if o := i % owners; fair.MayTake(taken[o], all, 64) {
				taken[o]++
				all++
			}
		}
		for _, n := range taken {
			require.InDelta(t, each, n, 1)
		}
	}
	require.True(t, fair.MayTake(0, 0, 1))
	require.False(t, fair.MayTake(0, 1, 1))
	require.False(t, fair.MayTake(1, 7, 8), "the last place is for an owner that has none")
	require.True(t, fair.MayTake(0, 7, 8))
}
