//go:build long

package decide_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/explore"
)

// TestLongOneTenantNeverChangesAnother tries 100,000 random histories. The
// environment can ask for another number: BERTH_ISOLATION_CASES=1000000.
func TestLongOneTenantNeverChangesAnother(t *testing.T) {
	cases := explore.Count(5_000, 100_000)
	if text := os.Getenv("BERTH_ISOLATION_CASES"); text != "" {
		var err error
		cases, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	compareHistories(t, explore.Seed(t), cases)
}

func TestLongHeldDocumentsTakeNoCapacity(t *testing.T) {
	heldDocumentsTakeNoCapacity(t, explore.Seed(t), explore.Count(200, 2_000))
}

func TestLongCachesDoNotChangeDecisions(t *testing.T) {
	cachesDoNotChangeDecisions(t, explore.Seed(t), uint64(explore.Count(4, 20)))
}

func TestLongDeletionRuleHoldsInAnyHistory(t *testing.T) {
	deletionRuleHolds(t, explore.Seed(t), uint64(explore.Count(20, 100)))
}
