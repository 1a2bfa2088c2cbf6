package sim

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap grow: a schedule keeps little, and collecting it took a sixth of the time. Nobody reads a memory profile,
// whose samples walk the stack.
func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
