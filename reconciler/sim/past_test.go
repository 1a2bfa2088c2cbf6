package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// play plays one schedule.
func play(t *testing.T, o options) (s *simulation, virtual time.Duration) {
	t.Helper()
	loader, err := definitions()
	require.NoError(t, err)
	s = &simulation{options: o, loader: loader}
	synctest.Test(t, func(*testing.T) {
		s.run()
		virtual = time.Since(s.began)
	})
	return s, virtual
}

// Schedules that once violated an invariant hold it. Each is of a fault of Berth that was mended, and has what schedules had when
// it was found.
func TestSimulatedPastFaults(t *testing.T) {
	for o, fault := range map[options]string{
		{seed: 20261132}:                           "a unit that was declared again while it was deleted counted as lost",
		{seed: 20261490}:                           "a repeated decision had its audit records twice",
		{seed: 20270179}:                           "a new member joined the node of an unreachable one",
		{seed: 20280024}:                           "a unit that was never made was not stopped",
		{seed: 20281037}:                           "a unit that was half made was not stopped",
		{seed: 20290211}:                           "a node was given away although an action may have put a member there",
		{seed: 20290282}:                           "the same, and the unit was stopped",
		{seed: 30000145}:                           "the same, and a commit changed the unit before it was observed",
		{seed: 40001310}:                           "a unit was recorded at a node that another had got since",
		{seed: 20261130000182}:                     "a daemon made what a later one had found absent",
		{seed: 60000009, isWide: true}:             "a clock that was set back silenced a rule",
		{seed: 80000039, isWide: true, asks: true}: "a member that joined while its replacement waited was never replaced",
		{seed: 90000181, isWide: true, asks: true}: "a unit waited for a node that a moved member had left",
		{seed: 93000536, isWide: true, asks: true}: "a member waited for another that was to come to its node",
		{seed: 500000534, isWide: true, asks: true, holds: true}: "two firings of a rule on a unit had one audit record",
		{seed: 400001099, isWide: true, asks: true, holds: true}: "two changes of a condition at one time had one id",
	} {
		t.Run(fmt.Sprint(o.seed), func(t *testing.T) {
			t.Parallel()
			s, _ := play(t, o)
			require.Empty(t, s.violations, "%s\n%s", fault, strings.Join(s.trace[max(0, len(s.trace)-300):], "\n"))
		})
	}
}
