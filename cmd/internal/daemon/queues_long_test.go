//go:build long

package daemon

import "testing"

// 1,000 submissions with 200 connections cut off and 20 kills of the daemon.
func TestLongSubmitsSurviveKills(t *testing.T) {
	t.Parallel()
	submitsOnce(t, 1000, 200, 20)
}
