//go:build long

package loop_test

import "testing"

// TestLongManyPullRequestsAndTheBaseMoves runs with 200 pull requests.
func TestLongManyPullRequestsAndTheBaseMoves(t *testing.T) { moveBaseUnder(t, 200) }
