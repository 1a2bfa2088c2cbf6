//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/queue"
)

// Figures of the queue beside Slurm's own tools on the same host: a submission beside sbatch, and a list
// of 9,900 jobs (slurmctld keeps 10,000) beside squeue.
func TestLongQueueFigures(t *testing.T) {
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, u, false)
	at := c.queueOf(u, "physics.lattice", nil)
	const submits = 100
	var ours []time.Duration
	for i := range submits {
		began := time.Now()
		_, err := c.rt.Submit(t.Context(), at, submission("physics.lattice", alice, queue.NewKey(began, fmt.Sprint(i)), "true"))
		require.NoError(t, err)
		ours = append(ours, time.Since(began))
	}
	var bare []time.Duration
	out := c.onControl(t, u, fmt.Sprintf(`for i in $(seq %d); do a=$(date +%%s%%N); printf '#!/bin/sh\ntrue\n' | setpriv --reuid=%d --regid=%[2]d --clear-groups sbatch --export=NONE --chdir=/tmp --output=/dev/null >/dev/null; b=$(date +%%s%%N); echo $((b-a)); done`, submits, alice.UID))
	for _, line := range strings.Fields(out) {
		n, err := strconv.Atoi(line)
		require.NoError(t, err)
		bare = append(bare, time.Duration(n))
	}
	p95 := func(all []time.Duration) time.Duration {
		slices.Sort(all)
		return all[len(all)*95/100]
	}
	t.Logf("submit: p95 %s, sbatch alone: p95 %s, difference %s", p95(ours), p95(bare), p95(ours)-p95(bare))

	c.onControl(t, u, fmt.Sprintf(`for k in $(seq 8); do (for i in $(seq 1212); do printf '#!/bin/sh\ntrue\n' | setpriv --reuid=%d --regid=%[1]d --clear-groups sbatch --hold --comment=berth/bulk-$k-$i/x --export=NONE --chdir=/tmp --output=/dev/null >/dev/null; done) & done; wait`, alice.UID))
	var listed []time.Duration
	for range 5 {
		began := time.Now()
		jobs, err := c.rt.Jobs(t.Context(), at)
		require.NoError(t, err)
		require.Greater(t, len(jobs), 9600)
		listed = append(listed, time.Since(began))
	}
	bareList := c.onControl(t, u, `a=$(date +%s%N); squeue --all >/dev/null; b=$(date +%s%N); echo $((b-a))`)
	n, err := strconv.Atoi(strings.TrimSpace(bareList))
	require.NoError(t, err)
	began := time.Now()
	_, err = c.rt.Submit(t.Context(), at, submission("physics.lattice", bob, "beside-many", "true"))
	require.NoError(t, err)
	t.Logf("list: slowest of 5 %s, squeue alone %s; a submission of another user beside them: %s", slices.Max(listed), time.Duration(n), time.Since(began))
	c.onControl(t, u, "scancel --user="+alice.Name)
}
