//go:build long

package loop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
)

// Equal estates and equal hosts give equal decisions: the same assignments with the
// same reasons, plan digests and action ids.
func TestLongDecisionsAreDeterministic(t *testing.T) {
	t.Parallel()
	type decision struct {
		Digest  string
		Members []plan.MemberStatus
		Actions []string
	}
	var all []decision
	for range 2 {
		w := newWorld(t)
		log := newActionLog(w.world)
		w.start(log.use)
		w.run(3)
		s := w.status("train")
		all = append(all, decision{s.Digest, s.Members, log.sorted()})
	}
	require.NotEmpty(t, all[0].Digest)
	require.Len(t, all[0].Actions, 4)
	require.Equal(t, all[0], all[1])
}
