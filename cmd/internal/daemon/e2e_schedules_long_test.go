//go:build long

package daemon

import "testing"

// TestLongSchedules plays twenty fields of random faults; see TestSchedules.
func TestLongSchedules(t *testing.T) { playSchedules(t, 20, 52) }
