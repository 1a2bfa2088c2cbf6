//go:build long

package slurm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/explore"
	"berth/schema"
	"berth/schema/queue"
)

func ids(jobs []queue.Job) (all []string) {
	for _, j := range jobs {
		all = append(all, j.JobID)
	}
	return all
}

// slurmctld is killed right after it accepted jobs, so many times: each is there, or is lost and said to be,
// and the same submission again makes exactly one job for each key. No job that was answered as durable is
// lost. While the accounting lacks messages, no job is called lost.
func TestLongQueueAfterKilledSlurmctlds(t *testing.T) {
	t.Parallel()
	kills := explore.Count(2, 20)
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, u, false)
	at := c.queueOf(u, "physics.lattice", nil)
	submit := func(key string) queue.Job {
		job, err := c.rt.Submit(t.Context(), at, submission("physics.lattice", alice, key, "sleep 6000"))
		require.NoError(t, err)
		return job
	}
	list := func() map[string]queue.Job { // by key; those that have not ended
		jobs, err := c.rt.Jobs(t.Context(), at.Unit, at.Stamp)
		require.NoError(t, err)
		alive := map[string]queue.Job{}
		for _, j := range jobs {
			if j.Ended.IsZero() {
				require.Empty(t, alive[j.IdempotencyKey].JobID, "%s has two jobs", j.IdempotencyKey)
				alive[j.IdempotencyKey] = j
			}
		}
		return alive
	}
	submitted := map[string]queue.Job{}
	lost, kept, durable := 0, 0, map[string]bool{}
	for kill := range kills {
		for key, j := range list() { // the jobs of earlier rounds become durable
			durable[key] = j.Durability == queue.Durable
		}
		for i := range 6 {
			key := fmt.Sprintf("kept-%d-%d", kill, i)
			submitted[key] = submit(key)
			require.Equal(t, queue.Accepted, submitted[key].Durability)
		}
		c.onControl(t, u, "kill -KILL $(cat $run/slurmctld.pid)")
		eventually(t, "slurmctld runs again", func() (bool, string) {
			p := c.plan(t, u, false)
			err := c.apply(t, p)
			again := c.plan(t, u, false)
			return err == nil && again.Empty(), fmt.Sprint(err)
		})
		alive := list()
		for key, was := range submitted {
			if alive[key].JobID == was.JobID && alive[key].Submitted.Equal(was.Submitted) {
				if durable[key] {
					kept++
				}
				continue
			}
			var now queue.Job
			var err error
			eventually(t, "accounting has what it needs to answer", func() (bool, string) {
				now, err = c.rt.Job(t.Context(), at, queue.Ref{JobID: was.JobID, Submitted: was.Submitted})
				return !errors.Is(err, queue.ErrUnavailable), fmt.Sprint(err)
			})
			require.False(t, durable[key], "%s was answered as durable and is %s", key, now.State)
			lost++
			switch {
			case err != nil:
				require.ErrorIs(t, err, queue.ErrNotFound, key)
			case now.State == "LOST":
				require.Contains(t, now.Reason, "submit it again")
			default: // Slurm 24.11 ends one that was about to run
				require.Contains(t, []string{"FAILED", "NODE_FAIL"}, now.State, key)
				delete(submitted, key)
				continue
			}
			submitted[key] = submit(key)
		}
	}
	t.Logf("%d kills: accepted jobs were lost %d times, each was reported; durable jobs outlived them %d times", kills, lost, kept)
	for key, was := range submitted {
		require.Equal(t, was.JobID, submit(key).JobID, key)
	}
	require.Len(t, list(), len(submitted))
	require.True(t, kept > 0 || kills < 5)
	c.tool(t, u, "scancel --user="+alice.Name)
}

// Many calls with few keys make one job for each key, while calls are cut off at random.
func TestLongQueueSubmitsOnceForAKey(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, u, false)
	at := c.queueOf(u, "physics.lattice", nil)
	const keys, calls = 8, 5
	var wg sync.WaitGroup
	for key := range keys {
		for call := range calls {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+30*call)*time.Millisecond) // the moment of the cut
				defer cancel()
				_, _ = c.rt.Submit(ctx, at, submission("physics.lattice", alice, fmt.Sprintf("key-%d", key), "sleep 600"))
			})
		}
	}
	wg.Wait()
	for key := range keys {
		_, err := c.rt.Submit(t.Context(), at, submission("physics.lattice", alice, fmt.Sprintf("key-%d", key), "sleep 600"))
		require.NoError(t, err)
	}
	jobs, err := c.rt.Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	jobs = slices.DeleteFunc(jobs, func(j queue.Job) bool { return j.IdempotencyKey == "" || !j.Ended.IsZero() }) // of other tests
	seen := map[string]int{}
	for _, j := range jobs {
		seen[j.IdempotencyKey]++
	}
	require.Len(t, seen, keys)
	for key, n := range seen {
		require.Equal(t, 1, n, key)
	}
	c.tool(t, u, "scancel "+strings.Join(ids(jobs), " "))
}
