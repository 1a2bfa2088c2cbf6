package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow: a schedule keeps little, and collecting it took a sixth of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
