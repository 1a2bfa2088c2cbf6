//go:build long

package slurm_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// TestLongSideBySide makes and removes two instances on one controller in parallel. They
// share ports and a database server and must not disturb each other.
func TestLongSideBySide(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	first := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
	second := c.unit(onePartition, []schema.UnixUser{alice}, nil, 2)
	second.Effective.Key.Name = "other"
	units := []plan.Unit{first, second}

	// all applies the plans of all units: what no other action of the same plan
	// has to wait for goes side by side.
	all := func(gone bool) {
		var g errgroup.Group
		for _, u := range units {
			p := c.plan(t, u, gone)
			require.Empty(t, p.Blocked)
			g.Go(func() error {
				var joins errgroup.Group
				for _, a := range p.Actions {
					apply := func() error {
						a.ID += ".1"
						return c.rt.Apply(t.Context(),
							runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID, Verb: string(a.Verb)}})
					}
					if a.Verb == plan.Join {
						joins.Go(apply)
					} else if err := apply(); err != nil {
						return err
					}
				}
				return joins.Wait()
			})
		}
		require.NoError(t, g.Wait())
		for _, u := range units {
			again := c.plan(t, u, gone)
			require.True(t, again.Empty(), "still to do: %+v", again.Actions)
		}
	}

	began := time.Now()
	all(false)
	t.Logf("two instances and three workers: %.1f s", time.Since(began).Seconds())
	seen := map[string]bool{}
	for _, u := range units {
		var state struct {
			Ports map[string]int `json:"ports"`
		}
		obs := c.observe(t, u)
		require.NoError(t, json.Unmarshal(obs.RuntimeState, &state))
		for _, port := range state.Ports {
			require.False(t, seen[fmt.Sprint(port)], "port %d twice", port)
			seen[fmt.Sprint(port)] = true
		}
		id := c.submit(t, u, alice, `test -n "$CUDA_VISIBLE_DEVICES" || exit 3`, 2)
		c.await(t, u, id, slurmtest.Completed)
	}

	// A worker that is another instance's is not taken.
	greedy := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1, 2)
	require.ErrorContains(t, c.apply(t, c.plan(t, greedy, false)), "is a worker of Instance physics.lattice/other")
	require.Len(t, c.observe(t, first).Members, 3, "a refused worker is not a member")
	c.carry(t, first, false)

	began = time.Now()
	all(true)
	t.Logf("both deleted: %.1f s", time.Since(began).Seconds())
	for _, u := range units {
		require.Equal(t, plan.Absent, c.observe(t, u).Presence)
		require.Empty(t, c.remains(t, u))
	}
}
