//go:build long

package main

import "testing"

// TestLongSchedules plays twenty fields of random faults; see TestSchedules.
func TestLongSchedules(t *testing.T) { playSchedules(t, 20) }
