package sim

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow to 100 MB: a schedule keeps little, and collecting it took a sixth of the time. With a larger heap,
// page faults cost more than that. Nobody reads a memory profile, whose samples walk the stack.
func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
