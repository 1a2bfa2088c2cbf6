//go:build long

package loop_test

import (
	"testing"

	"berth/examples/explore"
)

// TestLongManyPullRequestsAndTheBaseMoves runs with 200 pull requests.
func TestLongManyPullRequestsAndTheBaseMoves(t *testing.T) { moveBaseUnder(t, explore.Count(60, 200)) }
