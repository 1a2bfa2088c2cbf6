package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// play plays one schedule, with a planted fault unless that is "".
func play(t *testing.T, seed uint64, isWide bool, plant string) (s *simulation, virtual time.Duration) {
	t.Helper()
	loader, err := definitions()
	require.NoError(t, err)
	s = &simulation{seed: seed, isWide: isWide, plant: plant, loader: loader}
	synctest.Test(t, func(*testing.T) {
		s.run()
		virtual = time.Since(s.began)
	})
	return s, virtual
}

// Schedules that once violated an invariant hold it. Each is of a fault of Berth that was mended, and runs in the
// estate without rules, in which it was found.
func TestSimulatedPastFaults(t *testing.T) {
	for seed, fault := range map[uint64]string{
		20261132:       "a unit that was declared again while it was deleted counted as lost",
		20261490:       "a repeated decision had its audit records twice",
		20270179:       "a new member joined the node of an unreachable one",
		20280024:       "a unit that was never made was not stopped",
		20281037:       "a unit that was half made was not stopped",
		20290211:       "a node was given away although an action may have put a member there",
		20290282:       "the same, and the unit was stopped",
		30000145:       "the same, and a commit changed the unit before it was observed",
		40001310:       "a unit was recorded at a node that another had got since",
		20261130000182: "a daemon made what a later one had found absent",
	} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, _ := play(t, seed, false, "")
			require.Empty(t, s.violations, "%s\n%s", fault, strings.Join(s.trace[max(0, len(s.trace)-300):], "\n"))
		})
	}
}
