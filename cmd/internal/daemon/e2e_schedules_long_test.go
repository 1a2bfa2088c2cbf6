//go:build long

package daemon

import (
	"testing"

	"berth/examples/explore"
)

// TestLongSchedules plays twenty fields of random faults; see TestSchedules.
func TestLongSchedules(t *testing.T) { playSchedules(t, explore.Count(1, 20), 52) }
