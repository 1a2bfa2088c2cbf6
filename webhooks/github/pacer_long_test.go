//go:build long

package github

import (
	"testing"
	"time"
)

func TestLongCrashLoopGainsNoRequests(t *testing.T) {
	t.Parallel()
	checkCrashLoop(t, 2*time.Hour, 2*time.Second)
}
