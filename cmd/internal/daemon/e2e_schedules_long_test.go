//go:build long

package daemon

import (
	"testing"

	"berth/examples/explore"
)

// TestLongSchedules plays twenty fields of random faults; see TestSchedules.
func TestLongSchedules(t *testing.T) {
	var fields []int
	for n := 1; n <= 20; n++ {
		fields = append(fields, n)
	}
	playSchedules(t, explore.Draw(t, 1, fields), 52)
}
