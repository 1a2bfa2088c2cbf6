//go:build long

package loop_test

import "testing"

// TestLongManyPullRequestsAndTheBaseMoves does so with 200 pull requests.
func TestLongManyPullRequestsAndTheBaseMoves(t *testing.T) { moveBaseUnder(t, 200) }
