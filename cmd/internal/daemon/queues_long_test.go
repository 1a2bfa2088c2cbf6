//go:build long

package daemon

import (
	"testing"

	"berth/examples/explore"
)

// 1,000 submissions with 200 connections cut off and 20 kills of the daemon.
func TestLongSubmitsSurviveKills(t *testing.T) {
	t.Parallel()
	submitsOnce(t, explore.Seed(t), explore.Count(100, 1000), explore.Count(20, 200), explore.Count(2, 20))
}
